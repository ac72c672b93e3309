"""Runs keep to the masks of their environments and teams, and blame those whose masks are wrong."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from helpers import assert_same_run, run
from test_masks import FOUR, SEEN

from htsrl import A2C, PPO, Config, ConfigError, EnvironmentFailure, Experiment, Network, Placement
from htsrl.digest import first_difference
from htsrl.envs.agents import agents_of
from htsrl.envs.look import interface_of
from htsrl.envs.team import Team
from htsrl.placements.survey import draw_blueprint
from htsrl.spaces.observations import MASK_KEY

Info = dict[str, Any]
LAST_SEED_OF_THE_SURVEY = 5
NUM_LINKS = 4


class Turnstile(gymnasium.Env[Any, np.int64]):
    """Of four gates the one that the clock names is shut; says nothing of it, or something wrong, when told to.

    Who runs into it gets an exception, except in the survey before a run, which tries any actions.
    """

    def __init__(self, fault: str = "", at_step: int = 14, length: int = 5) -> None:
        self.observation_space, self.action_space = SEEN, FOUR
        self._fault, self._at_step, self._length = fault, at_step, length
        self._total = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._steps = 0
        self._is_strict = seed is not None and seed > LAST_SEED_OF_THE_SURVEY
        return self._seen(), self._info(is_last=False)

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, Info]:
        self._bump(action)
        self._steps += 1
        self._total += 1
        ended = self._steps == self._length
        return self._seen(), float(action), ended and self._total % 2 == 0, ended, self._info(ended)

    def _bump(self, action: np.int64) -> None:
        if action == self._steps % 4 and self._is_strict:
            raise RuntimeError(f"gate {action} is shut")

    def _seen(self) -> Any:
        return np.array([self._steps / self._length, 1.0], np.float32)

    def _info(self, is_last: bool) -> Info:
        mask = np.ones(4, np.int8)
        mask[self._steps % 4] = 0
        if self._fault == "nothing after the end":
            return {MASK_KEY: mask * 0} if is_last else {MASK_KEY: mask}
        if self._fault == "missing after the end":
            return {} if is_last else {MASK_KEY: mask}
        if self._fault and self._total >= self._at_step:
            return {"missing": {}, "nothing": {MASK_KEY: mask * 0}, "short": {MASK_KEY: mask[:3]}}[self._fault]
        return {MASK_KEY: mask}


def short_run(env: Any, **experiment: Any) -> Experiment:
    return Experiment(env, algorithm=A2C(), num_envs=2, sync_interval=6, total_steps=48, **experiment)


@pytest.mark.parametrize("fault", ["", "nothing after the end", "missing after the end"])
def test_a_run_respects_the_masks_of_info_and_asks_for_none_after_the_last_step(fault: str) -> None:
    """The environment itself refuses what is forbidden; its episodes are truncated and terminated by turns."""
    assert len(run(short_run(lambda: Turnstile(fault))).links) == NUM_LINKS


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("missing", "info has no action_mask, which it had after the first reset; return it after every step"),
        ("nothing", "the action mask allows nothing; while the episode continues, something must be allowed"),
        ("short", r"the action mask has 3 values of int8; Discrete\(4\) needs 4, of 0 and 1"),
    ],
)
def test_a_mask_that_goes_wrong_in_mid_run_is_blamed_on_its_environment(fault: str, message: str) -> None:
    with pytest.raises(EnvironmentFailure, match=rf"environment \d broke a rule in step\(.*{message}"):
        run(short_run(lambda: Turnstile(fault)))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nothing", r"Turnstile: in reset\(seed=0\), the action mask allows nothing"),
        ("short", "Turnstile: in reading its action mask, the action mask has 3 values"),
    ],
)
def test_a_mask_that_is_wrong_from_the_start_is_a_config_error(fault: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        draw_blueprint(Config(short_run(lambda: Turnstile(fault, at_step=0)), Placement("inline")))


def test_the_mask_of_a_continuous_environment_is_refused_before_anything_starts() -> None:
    def make() -> gymnasium.Env[Any, Any]:
        env = Turnstile()
        env.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)  # type: ignore[assignment]
        env.step = lambda action: (env._seen(), 0.0, False, False, env._info(False))  # type: ignore[method-assign]
        return env

    with pytest.raises(ConfigError, match="there is an action_mask, but action space Box"):
        draw_blueprint(Config(short_run(make), Placement("inline")))


@pytest.mark.parametrize(
    ("algorithm", "recurrent"), [(A2C(), "none"), (PPO(epochs=2, num_minibatches=2), "lstm")], ids=["a2c", "ppo lstm"]
)
def test_a_run_is_the_same_wherever_its_masks_are(algorithm: Any, recurrent: Any) -> None:
    in_observation, in_info, nowhere = (
        run(
            Experiment(
                "htsrl/Lock-v0",
                {"num_actions": 12, "length": 7, "mask_in": mask_in},
                algorithm=algorithm,
                network=Network(recurrent=recurrent, recurrent_size=8),
                num_envs=4,
                sync_interval=8,
                total_steps=128,
            )
        )
        for mask_in in ("observation", "info", "nowhere")
    )
    assert_same_run(in_observation, in_info)
    assert first_difference(in_observation.links, nowhere.links) is not None


class Gatekeepers(Team):
    """Two agents, each with a mask of its own in info; the second goes after three steps, and has none from then on."""

    def __init__(self) -> None:
        self.observation_space: spaces.Space[Any] = SEEN
        self.action_space: spaces.Space[Any] = FOUR
        self.num_agents = 2
        self.active = np.zeros(2, np.bool_)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._steps, self.active = 0, np.ones(2, np.bool_)
        self._is_strict = seed is not None and seed > LAST_SEED_OF_THE_SURVEY
        return np.zeros((2, 2), np.float32), self._info()

    def step(self, action: Any) -> Any:
        if self._is_strict:
            assert all(action[agent] == self._allowed(agent) for agent in np.flatnonzero(self.active))
        self._steps += 1
        before, self.active = self.active, np.array([self._steps < 5, self._steps < 3])
        return np.zeros((2, 2), np.float32), np.ones(2), before & ~self.active, np.zeros(2, np.bool_), self._info()

    def _allowed(self, agent: Any) -> int:
        return int(self._steps + agent) % 4

    def _info(self) -> Info:
        masks = [np.eye(4, dtype=np.int8)[self._allowed(agent)] for agent in range(2)]
        return {MASK_KEY: [mask if self.active[agent] else mask * 0 for agent, mask in enumerate(masks)]}


def test_every_agent_of_a_team_has_the_mask_that_info_gives_it() -> None:
    env = Gatekeepers()
    interface = interface_of(env, Network())
    rows = interface.empty_rows(2)
    agents = agents_of(env, interface)
    agents.reset(0, rows)
    assert rows[MASK_KEY].astype(int).tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]
    for action in ([0, 1], [1, 2], [2, 3]):
        agents.step(np.array(action), rows)
    assert rows[MASK_KEY].astype(int).tolist() == [[0, 0, 0, 1], [1, 1, 1, 1]]
    assert len(run(short_run(Gatekeepers)).links) == NUM_LINKS


class Strict(Turnstile):
    """Refuses what is forbidden from the first reset on."""

    def _bump(self, action: np.int64) -> None:
        if action == self._steps % 4:
            raise RuntimeError(f"gate {action} is shut")


def test_an_environment_may_raise_for_what_its_mask_forbids() -> None:
    assert len(run(short_run(Strict)).links) == NUM_LINKS


class SelfWriting(Turnstile):
    """Writes its observations where it is told to, and its masks into info."""

    def reset_into(self, place: Any, *, seed: int) -> Info:
        place[...], info = self.reset(seed=seed)
        return info

    def step_into(self, action: np.int64, place: Any) -> tuple[float, bool, bool, Info]:
        place[...], *rest = self.step(action)
        return tuple(rest)  # type: ignore[return-value]


def test_an_environment_that_writes_its_own_observation_can_have_masks() -> None:
    assert len(run(short_run(SelfWriting)).links) == NUM_LINKS
