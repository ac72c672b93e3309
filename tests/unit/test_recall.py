"""An environment is brought back to where it stood, by its state or by its actions, or it is named."""

from __future__ import annotations

import itertools
import random
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit, TransformReward
from numpy.typing import NDArray

from htsrl import A2C, Config, Experiment, NotReproduced, Placement
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.survey import draw_blueprint
from htsrl.roles.actor import Actor
from htsrl.roles.executor import NO_BELLS, Executor

NUM_ENVS, SYNC_INTERVAL, NUM_ROLLOUTS = 2, 7, 12


class Walk(gymnasium.Env[NDArray[np.float32], np.int64]):
    """A random walk; its episodes end at random, and its position depends on all actions and draws so far."""

    _other_seeds = itertools.count()

    def __init__(self, forgets_seed: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._forgets_seed = forgets_seed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=next(self._other_seeds) if self._forgets_seed else seed)
        self._position = np.zeros(2, np.float32)
        return self._position.copy(), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._position += self.np_random.random(2, np.float32) * (2 * int(action) - 1)
        return self._position.copy(), float(self._position[0]), bool(self.np_random.random() < 0.05), False, {}


class SavingWalk(Walk):
    """Saves its position and its generator; counts how often it was asked to."""

    restored = 0

    def save_state(self) -> bytes:
        state = self.np_random.bit_generator.state["state"]
        words = state["state"].to_bytes(16, "little") + state["inc"].to_bytes(16, "little")
        return bytes(words) + self._position.tobytes()

    def restore_state(self, data: bytes) -> None:
        type(self).restored += 1
        state: Any = self.np_random.bit_generator.state
        state["state"] = {"state": int.from_bytes(data[:16], "little"), "inc": int.from_bytes(data[16:32], "little")}
        self.np_random.bit_generator.state = state
        self._position = np.frombuffer(data[32:], np.float32).copy()


def time_limited(make: Any) -> gymnasium.Env[Any, Any]:
    return TimeLimit(make(), 11)


class Stage:
    """Executor and actor of a run whose only version is 0, so that nothing but environments moves."""

    def __init__(self, make: Any) -> None:
        experiment = Experiment(
            make,
            algorithm=A2C(),
            num_envs=NUM_ENVS,
            sync_interval=SYNC_INTERVAL,
            total_steps=NUM_ENVS * SYNC_INTERVAL * NUM_ROLLOUTS,
        )
        self.blueprint: Blueprint = draw_blueprint(Config(experiment, Placement("inline", num_executors=1)))
        self.block = SharedArrays(self.blueprint.block_specs())
        self.shared = self.blueprint.shared(self.block)
        parameters = self.blueprint.build_parameters(self.block)
        parameters.initialise(self.blueprint.build_policy())
        for slot in (1, 2):  # every version acts alike
            parameters.slots[slot].copy_(parameters.slots[0])
        self.actor: Actor = self.blueprint.build_actor(0, self.shared, self.block, lambda envs: None)
        self.executor: Executor = self.new_executor()

    def new_executor(self) -> Executor:
        return self.blueprint.build_executor(0, self.shared, NO_BELLS)

    def play(self, num_rollouts: int, restart_seed: int | None = None) -> list[dict[str, NDArray[Any]]]:
        """Every rollout as it was; with a seed, the executor is thrown away at random and made anew."""
        drawn = random.Random(restart_seed)
        rollouts: list[dict[str, NDArray[Any]]] = []
        while len(rollouts) < num_rollouts:
            self.executor.advance()
            self.actor.advance()
            if restart_seed is not None and drawn.random() < 0.1:
                self.executor = self.new_executor()
            if self.shared.exchange.rollout_is_complete(len(rollouts)):
                batch = self.shared.storages.batch(len(rollouts) % 2)
                rollouts.append({name: array.copy() for name, array in batch.items() if name != "versions"})
                self.shared.exchange.published_version = len(rollouts)
        return rollouts


MAKERS = {
    "actions": Walk,
    "state": SavingWalk,
    "actions, time limit": partial(time_limited, Walk),
    "state, time limit": partial(time_limited, SavingWalk),
    "classic control": partial(gymnasium.make, "CartPole-v1"),
    "continuous actions": partial(gymnasium.make, "Pendulum-v1"),
}


@pytest.mark.parametrize("name", MAKERS)
def test_an_executor_made_anew_at_any_moment_goes_on_to_the_same_bits(name: str) -> None:
    undisturbed = Stage(MAKERS[name]).play(NUM_ROLLOUTS)
    for seed in range(3):
        disturbed = Stage(MAKERS[name]).play(NUM_ROLLOUTS, restart_seed=seed)
        for one, other in zip(undisturbed, disturbed, strict=True):
            for field in one:
                np.testing.assert_array_equal(one[field], other[field], err_msg=f"{field}, seed {seed}")


@pytest.mark.parametrize("make", [SavingWalk, partial(time_limited, SavingWalk)])
def test_an_environment_that_can_save_its_state_is_asked_to(make: Any) -> None:
    before = SavingWalk.restored
    stage = Stage(make)
    stage.play(2)
    stage.new_executor()
    assert SavingWalk.restored == before + NUM_ENVS


def test_below_a_wrapper_that_may_have_a_state_of_its_own_the_actions_are_played_again() -> None:
    before = SavingWalk.restored
    with pytest.warns(UserWarning, match="its wrapper TransformReward may have one of its own"):
        stage = Stage(lambda: TransformReward(SavingWalk(), lambda reward: reward))
    stage.play(2)
    stage.new_executor()
    assert SavingWalk.restored == before


def test_an_environment_that_does_not_reproduce_is_named_with_its_episode_and_step() -> None:
    Walk._other_seeds = itertools.count()
    stage = Stage(partial(Walk, forgets_seed=True))
    stage.play(3)
    with pytest.raises(
        NotReproduced, match=r"^environment 0 does not reproduce: its episode \d+ \(seed \d+\)"
    ) as error:
        stage.new_executor()
    assert error.value.env == 0
    assert "htsrl check-env" in str(error.value)
