"""The replay buffer against a list of transitions that anybody can follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.trajectory import final_observations, trajectory_spec
from htsrl.seeding import replay_draws
from htsrl.sources.replay import ReplayBuffer, replay_arrays
from htsrl.spaces import Interface

NUM_STEPS, NUM_ENVS, CAPACITY = 4, 3, 40  # so 12 of 13 steps of each: whole rollouts
INTERFACE = Interface(
    spaces.Dict({"at": spaces.Box(-1, 1, (2,), np.float32), "kind": spaces.Discrete(5)}),
    spaces.Box(-1, 1, (1,), np.float32),
)
SPEC = trajectory_spec(INTERFACE, NUM_STEPS, NUM_ENVS, own_fields=final_observations(INTERFACE))


class World:
    """Rollouts whose every observation is another number, and all transitions in a list for each environment."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)
        self.known: list[list[dict[str, Any]]] = [[] for _ in range(NUM_ENVS)]
        self.seen = [self._observation() for _ in range(NUM_ENVS)]

    def rollout(self) -> dict[str, Any]:
        fields = {f.name: np.zeros((NUM_STEPS, NUM_ENVS, *f.shape), f.dtype) for f in SPEC.fields}
        for t, b in np.ndindex(NUM_STEPS, NUM_ENVS):
            terminated, truncated = self.generator.random(2) < 0.2
            following, reward = self._observation(), np.float32(self.generator.normal())
            for name in INTERFACE.observations:
                fields[name][t, b] = self.seen[b][name]
                if terminated or truncated or t == NUM_STEPS - 1:
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
    world, memory = World(), SharedArrays(replay_arrays(SPEC, CAPACITY))
    buffer = ReplayBuffer(memory, SPEC, CAPACITY)
    for update in range(num_updates):
        buffer.put(update, world.rollout())
    last, filled = num_updates - 1, min(num_updates * NUM_STEPS, 12)
    assert buffer.size(last) == filled * NUM_ENVS
    ages, columns = (x.ravel() for x in np.indices((filled, NUM_ENVS)))
    found = buffer.transitions(last, ages, columns, 0.9, n)
    oldest = num_updates * NUM_STEPS - filled
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
