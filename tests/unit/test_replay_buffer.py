"""The replay buffer against a list of transitions that anybody can follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.trajectory import Stored, TrajectorySpec, final_observations, trajectory_spec
from htsrl.seeding import replay_draws
from htsrl.sources.replay_buffer import ReplayBuffer, replay_arrays
from htsrl.spaces import Interface

NUM_STEPS, NUM_ENVS, CAPACITY = 4, 3, 40  # so 12 of 13 steps of each: whole rollouts
INTERFACE = Interface(
    spaces.Dict({"at": spaces.Box(-1, 1, (2,), np.float32), "kind": spaces.Discrete(5)}),
    spaces.Box(-1, 1, (1,), np.float32),
)
SPEC = trajectory_spec(INTERFACE, NUM_STEPS, NUM_ENVS, Stored(own_fields=final_observations(INTERFACE)))


class World:
    """Rollouts whose every observation is another number, and all transitions in a list for each environment."""

    def __init__(self, spec: TrajectorySpec = SPEC, seed: int = 0, ends: tuple[float, float] = (0.2, 0.2)) -> None:
        """`ends` is how often a step terminates an episode, and how often a time limit does."""
        self.spec, self.ends = spec, ends
        self.generator = np.random.default_rng(seed)
        self.known: list[list[dict[str, Any]]] = [[] for _ in range(spec.num_envs)]
        self.seen = [self._observation() for _ in range(spec.num_envs)]

    def rollout(self) -> dict[str, Any]:
        num_steps, num_envs = self.spec.num_steps, self.spec.num_envs
        fields = {f.name: np.zeros((num_steps, num_envs, *f.shape), f.dtype) for f in self.spec.fields}
        for t, b in np.ndindex(num_steps, num_envs):
            terminated, truncated = self.generator.random(2) < self.ends
            following, reward = self._observation(), np.float32(self.generator.normal())
            for name in INTERFACE.observations:
                fields[name][t, b] = self.seen[b][name]
                if terminated or truncated or t == num_steps - 1:
                    fields[f"final/{name}"][t, b] = following[name]
            fields["rewards"][t, b] = fields["actions"][t, b] = reward
            fields["terminated"][t, b], fields["truncated"][t, b] = terminated, truncated
            ends = {"terminated": terminated, "truncated": truncated}
            self.known[b].append({"seen": self.seen[b], "reward": reward, "then": following, **ends})
            self.seen[b] = self._observation() if terminated or truncated else following
        return fields

    def expected(self, b: int, first: int, discount: float, n: int) -> tuple[float, Any, float]:
        """Reward, what followed and what a value there is worth, of a transition of n steps."""
        reward, worth = 0.0, 1.0
        for step in self.known[b][first : first + n]:
            reward, worth = reward + worth * step["reward"], worth * discount
            if step["terminated"] or step["truncated"]:
                break
        return reward, step["then"], 0.0 if step["terminated"] else worth

    def _observation(self) -> dict[str, Any]:
        return {"obs/at": self.generator.normal(size=2).astype(np.float32), "obs/kind": self.generator.integers(5)}


@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("num_updates", [1, 2, 3, 4, 8])
def test_transitions_are_true_at_ends_borders_and_behind_the_wrap_around(num_updates: int, n: int) -> None:
    assert_true_transitions(World(), CAPACITY, num_updates, n)


@pytest.mark.parametrize("seed", range(25))
def test_transitions_are_true_of_buffers_and_episodes_of_any_size(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    num_steps, num_envs, room, num_updates = (int(drawn.integers(1, most)) for most in (6, 4, 5, 12))
    spec = trajectory_spec(INTERFACE, num_steps, num_envs, Stored(own_fields=final_observations(INTERFACE)))
    capacity = room * num_steps * num_envs + int(drawn.integers(num_steps * num_envs))
    ends = drawn.choice([0.0, 0.05, 0.5, 1.0], 2)
    assert_true_transitions(World(spec, seed, (ends[0], ends[1])), capacity, num_updates, int(drawn.integers(1, 9)))


def assert_true_transitions(world: World, capacity: int, num_updates: int, n: int) -> None:
    """Of all that the buffer holds after so many updates."""
    spec = world.spec
    num_steps, num_envs = spec.num_steps, spec.num_envs
    memory = SharedArrays(replay_arrays(spec, capacity))
    buffer = ReplayBuffer(memory, spec, capacity)
    for update in range(num_updates):
        buffer.put(update, world.rollout())
    room = capacity // (num_steps * num_envs) * num_steps
    last, filled = num_updates - 1, min(num_updates * num_steps, room)
    assert buffer.size(last) == filled * num_envs
    ages, columns = (x.ravel() for x in np.indices((filled, num_envs)))
    found = buffer.transitions(last, ages, columns, 0.9, n)
    oldest = num_updates * num_steps - filled
    for i, (age, b) in enumerate(zip(ages.tolist(), columns.tolist(), strict=True)):
        reward, following, worth = world.expected(b, oldest + age, 0.9, n)
        assert found.rewards[i] == pytest.approx(reward, abs=1e-5)
        assert found.discounts[i] == pytest.approx(worth, abs=1e-6)
        for name in INTERFACE.observations:
            assert np.array_equal(found.observations[name][i], world.known[b][oldest + age]["seen"][name])
            assert np.array_equal(found.next_observations[name][i], following[name])
    memory.close()


def test_a_rollout_that_is_put_again_changes_nothing() -> None:
    world, memory = World(), SharedArrays(replay_arrays(SPEC, CAPACITY))
    buffer = ReplayBuffer(memory, SPEC, CAPACITY)
    rollouts = [world.rollout() for _ in range(5)]
    for update, fields in enumerate(rollouts):
        buffer.put(update, fields)
    before = {spec.name: memory[spec.name].copy() for spec in memory.specs}
    buffer.put(4, rollouts[4])
    assert all(np.array_equal(memory[name], array) for name, array in before.items())
    memory.close()


def test_draws_are_a_function_of_seed_update_and_gradient_step() -> None:
    draws = {(s, u, g): replay_draws(s, u, g, 1000, 8).tolist() for s in (1, 2) for u in (0, 5) for g in (0, 1)}
    assert len({tuple(drawn) for drawn in draws.values()}) == len(draws)
    assert replay_draws(1, 5, 1, 1000, 8).tolist() == draws[1, 5, 1]
    counts = np.bincount(np.concatenate([replay_draws(1, u, 0, 10, 100) for u in range(100)]), minlength=10)
    assert counts.min() > 900
    assert counts.max() < 1100
