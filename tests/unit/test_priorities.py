"""Prioritised replay against a list that anybody can follow."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from test_replay_buffer import CAPACITY, NUM_ENVS, NUM_STEPS, SPEC, World

from htsrl.algorithms.off_policy import importance_weights
from htsrl.config.algorithm_settings import CommonSettings
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.seeding import replay_positions
from htsrl.sources.priorities import ERROR_OFFSET, PriorityRule
from htsrl.sources.replay_buffer import ReplayBuffer, replay_arrays

SIZE, NUM_ROWS = 4, 12
RULE = PriorityRule(exponent=0.5, minibatch_size=SIZE, max_gradient_steps=3)


@pytest.fixture
def memory() -> Iterator[SharedArrays]:
    memory = SharedArrays(replay_arrays(SPEC, CAPACITY, RULE))
    yield memory
    memory.close()


def learn(buffer: ReplayBuffer, update: int, errors: list[list[float]]) -> list[np.ndarray]:
    """Gradient steps with these errors; returns the places that each of them drew."""
    assert buffer.priorities is not None
    drawn = []
    for step, of_step in enumerate(errors):
        places = buffer.sample(1, update, step, SIZE, 0.9).places
        assert places is not None
        buffer.priorities.note_errors(slice(0, 2), np.array(of_step[:2], np.float32))
        buffer.priorities.note_errors(np.array([2, 3]), np.array(of_step[2:], np.float32))
        buffer.priorities.revise(update, step, places)
        drawn.append(places)
    return drawn


def test_errors_count_from_the_next_update_on_and_new_rows_have_the_highest_priority(memory: SharedArrays) -> None:
    world, buffer = World(), ReplayBuffer(memory, SPEC, CAPACITY, RULE)
    expected, highest = np.zeros((NUM_ROWS, NUM_ENVS)), 1.0
    pending: list[tuple[np.ndarray, np.ndarray]] = []
    generator = np.random.default_rng(3)
    for update in range(9):
        buffer.put(update, world.rollout())
        for places, found in pending:
            for place, priority in zip(places.tolist(), found.tolist(), strict=True):
                expected.flat[place] = priority
        expected[update * NUM_STEPS % NUM_ROWS :][:NUM_STEPS] = highest
        np.testing.assert_allclose(memory["priorities/now"], expected, rtol=1e-6)
        errors = generator.normal(size=(update % 4 if update != 5 else 0, SIZE)) * 3
        drawn = learn(buffer, update, errors.tolist())
        np.testing.assert_allclose(memory["priorities/now"], expected, rtol=1e-6, err_msg="not before the next update")
        pending = [(of, (abs(e) + ERROR_OFFSET) ** 0.5) for of, e in zip(drawn, errors, strict=True)]
        highest = max([highest, *(found.max() for _, found in pending)])


def test_draws_follow_priorities_and_weights_make_up_for_it(memory: SharedArrays) -> None:
    world, buffer = World(), ReplayBuffer(memory, SPEC, CAPACITY, RULE)
    for update in range(5):
        buffer.put(update, world.rollout())
    generator = np.random.default_rng(1)
    memory["priorities/now"][...] = generator.random((NUM_ROWS, NUM_ENVS)) ** 3
    shares = memory["priorities/now"].ravel() / memory["priorities/now"].sum()
    found = [buffer.sample(1, 4, step, 250, 0.9) for step in range(200)]
    places = [one.places for one in found if one.places is not None]
    counts = np.bincount(np.concatenate(places), minlength=NUM_ROWS * NUM_ENVS)
    np.testing.assert_allclose(counts / counts.sum(), shares, atol=0.005)
    likelihoods = found[0].likelihoods
    assert likelihoods is not None
    np.testing.assert_allclose(likelihoods, shares[places[0]] * NUM_ROWS * NUM_ENVS, rtol=1e-5)
    weights = importance_weights(likelihoods, 0.5, torch.device("cpu"))
    assert weights is not None
    by_hand = (NUM_ROWS * NUM_ENVS * shares[places[0]]) ** -0.5
    np.testing.assert_allclose(weights.numpy(), by_hand / by_hand.max(), rtol=1e-5)


def test_the_transitions_of_a_draw_are_those_at_its_places(memory: SharedArrays) -> None:
    world, buffer = World(), ReplayBuffer(memory, SPEC, CAPACITY, RULE)
    for update in range(7):
        buffer.put(update, world.rollout())
    found = buffer.sample(1, 6, 0, 50, 0.9, n=3)
    assert buffer.priorities is not None
    np.testing.assert_array_equal(found.places, buffer.priorities.draw(1, 6, 0, 50, buffer.size(6))[0])
    assert found.places is not None
    rows, columns = np.divmod(found.places, NUM_ENVS)
    np.testing.assert_array_equal(found.actions, memory["replay/actions"][rows, columns])
    oldest = 7 * NUM_STEPS - NUM_ROWS
    for i, (row, b) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        age = (row - 7 * NUM_STEPS) % NUM_ROWS
        reward, _, worth = world.expected(b, oldest + age, 0.9, 3)
        assert found.rewards[i] == pytest.approx(reward, abs=1e-5)
        assert found.discounts[i] == pytest.approx(worth, abs=1e-6)


@pytest.mark.parametrize("killed_after", ["the old were taken over", "the first gradient step", "the last"])
def test_an_update_that_is_made_again_draws_and_finds_the_same(killed_after: str, memory: SharedArrays) -> None:
    world, buffer = World(), ReplayBuffer(memory, SPEC, CAPACITY, RULE)
    rollouts = [world.rollout() for _ in range(6)]
    errors = [[1.0, 2.0, 3.0, 4.0], [0.5, 6.0, 0.1, 2.0]]
    for update in range(5):
        buffer.put(update, rollouts[update])
        learn(buffer, update, errors)
    buffer.put(5, rollouts[5])
    if killed_after != "the old were taken over":
        learn(buffer, 5, errors[: 1 if killed_after == "the first gradient step" else 2])
    after = ReplayBuffer(memory, SPEC, CAPACITY, RULE)
    after.put(5, rollouts[5])
    before = memory["priorities/now"].copy()
    drawn = learn(after, 5, errors)
    undisturbed = SharedArrays(replay_arrays(SPEC, CAPACITY, RULE))
    other = ReplayBuffer(undisturbed, SPEC, CAPACITY, RULE)
    for update in range(6):
        other.put(update, rollouts[update])
        expected = learn(other, update, errors)
    np.testing.assert_array_equal(before, undisturbed["priorities/now"])
    np.testing.assert_array_equal(drawn, expected)
    for name in ("found", "places", "num_found", "highest"):
        np.testing.assert_array_equal(memory[f"priorities/{name}"][6 % 2], undisturbed[f"priorities/{name}"][6 % 2])
    undisturbed.close()


def test_positions_are_one_from_each_part_and_a_function_of_their_place() -> None:
    for place in ((1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0)):
        positions = replay_positions(*place, 8)
        assert (np.floor(positions * 8) == np.arange(8)).all()
        np.testing.assert_array_equal(positions, replay_positions(*place, 8))
    assert not np.array_equal(replay_positions(1, 0, 0, 8), replay_positions(1, 0, 1, 8))


def test_uniform_draws_have_no_priorities_and_there_is_room_for_all_that_an_update_can_find() -> None:
    assert PriorityRule.of(CommonSettings(), 32) is None
    rule = PriorityRule.of(CommonSettings(priority_exponent=0.6, minibatch_size=16, update_to_data=0.3), 32)
    assert rule is not None
    assert rule.max_gradient_steps >= 10
