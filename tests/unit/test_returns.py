"""Returns and advantages: by hand, against a slow implementation per episode, and against each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.returns import Transitions, gae, n_step_returns, true_next_values

Float64 = NDArray[np.float64]
DISCOUNT, LAMBDA = 0.5, 0.5  # so that every number below is exact
NEVER: list[int] = []


def column(numbers: list[float]) -> Tensor:
    """One environment, `[T, 1]`."""
    return torch.tensor(numbers)[:, None]


def one_env(
    num_steps: int, terminated: list[int], truncated: list[int], bootstraps: dict[int, float] | None = None
) -> Transitions:
    """Rewards 1, 2, 3 ..., values 10, 20, 30 ..., and the steps at which episodes end."""
    values = column([10.0 * (t + 1) for t in range(num_steps)])
    bootstrap_values = column([(bootstraps or {}).get(t, 0.0) for t in range(num_steps)])
    is_truncated = column([t in truncated for t in range(num_steps)])
    return Transitions(
        rewards_TB=column([t + 1.0 for t in range(num_steps)]),
        values_TB=values,
        next_values_TB=true_next_values(values, bootstrap_values, is_truncated),
        terminated_TB=column([t in terminated for t in range(num_steps)]),
        truncated_TB=is_truncated,
    )


@dataclass(frozen=True)
class Case:
    """A trajectory and what a pencil makes of it."""

    steps: Transitions
    unroll_steps: int
    advantages: list[float]
    returns: list[float]


BY_HAND = {
    # Errors r + 0.5 v' - v: 1 + 10 - 10 = 1, 2 + 15 - 20 = -3, 3 + 20 - 30 = -7; each advantage is its error plus a
    # quarter of the next. Returns: 3 + 40/2 = 23, 2 + 23/2 = 13.5, 1 + 13.5/2 = 7.75.
    "an episode continues": Case(one_env(3, NEVER, NEVER, {2: 40.0}), 3, [-0.1875, -4.75, -7.0], [7.75, 13.5, 23.0]),
    # The middle step has no future: its error is 2 - 20 = -18 and its return 2.
    "termination": Case(one_env(3, [1], NEVER, {2: 40.0}), 3, [-3.5, -18.0, -7.0], [2.0, 2.0, 23.0]),
    # The middle step was followed by an observation worth 50: error 2 + 25 - 20 = 7, return 2 + 25.
    "truncation": Case(one_env(3, NEVER, [1], {1: 50.0, 2: 40.0}), 3, [2.75, 7.0, -7.0], [14.5, 27.0, 23.0]),
    # Errors 1, -3, -7 and 4 + 25 - 40 = -11; no sum crosses from step 2 back to step 1.
    "unroll cut": Case(one_env(4, NEVER, NEVER, {3: 50.0}), 2, [0.25, -3.0, -9.75, -11.0], [9.5, 17.0, 17.5, 29.0]),
    "termination at the end": Case(one_env(2, [1], NEVER), 2, [-3.5, -18.0], [2.0, 2.0]),
    "truncation at the end": Case(one_env(2, NEVER, [1], {1: 50.0}), 2, [2.75, 7.0], [14.5, 27.0]),
    # Three episodes and the start of a fourth: errors 1 - 10 = -9, 2 + 15 - 20 = -3, 3 + 30 - 30 = 3, 4 - 40 = -36,
    # 5 + 35 - 50 = -10.
    "several episodes": Case(
        one_env(5, [0, 3], [2], {2: 60.0, 4: 70.0}),
        5,
        [-9.0, -2.25, 3.0, -36.0, -10.0],
        [1.0, 18.5, 33.0, 4.0, 40.0],
    ),
    # A step may be both; then there is no future, whatever the bootstrap says.
    "termination and truncation": Case(one_env(2, [0], [0], {0: 99.0, 1: 30.0}), 2, [-9.0, -3.0], [1.0, 17.0]),
    "unrolls of one step": Case(one_env(2, NEVER, NEVER, {1: 30.0}), 1, [1.0, -3.0], [11.0, 17.0]),
}


@pytest.mark.parametrize("case", BY_HAND.values(), ids=list(BY_HAND))
def test_advantages_agree_with_pencil_and_paper(case: Case) -> None:
    assert gae(case.steps, DISCOUNT, LAMBDA, case.unroll_steps).flatten().tolist() == case.advantages


@pytest.mark.parametrize("case", BY_HAND.values(), ids=list(BY_HAND))
def test_n_step_returns_agree_with_pencil_and_paper(case: Case) -> None:
    assert n_step_returns(case.steps, DISCOUNT, case.unroll_steps).flatten().tolist() == case.returns


def test_the_next_value_is_the_next_rows_unless_that_row_is_another_episodes_or_missing() -> None:
    values_TB = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    bootstrap_values_TB = torch.tensor([[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]])
    truncated_TB = torch.tensor([[False, True], [False, False], [True, False]])
    expected = [[3.0, 20.0], [5.0, 6.0], [50.0, 60.0]]
    assert true_next_values(values_TB, bootstrap_values_TB, truncated_TB).tolist() == expected


def test_of_what_is_not_among_the_steps_another_versions_value_differs_as_the_steps_own_does() -> None:
    """Values 1, 2, 3, 4 instead of 10, 20, 30, 40: less 27 at the time limit, less 36 at the end."""
    steps = one_env(4, terminated=[1], truncated=[2], bootstraps={2: 35.0, 3: 50.0})
    again = steps.valued_by(column([1.0, 2.0, 3.0, 4.0]))
    assert again.values_TB.flatten().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert again.next_values_TB.flatten().tolist() == [2.0, 3.0, 35.0 - 27.0, 50.0 - 36.0]
    assert steps.next_values_TB.flatten().tolist() == [20.0, 30.0, 35.0, 50.0], "the batch is as it was"


def test_a_batch_over_a_storage_copies_nothing_and_knows_the_true_next_values() -> None:
    steps = one_env(3, [0], [1], {1: 50.0, 2: 40.0})
    fields: dict[str, NDArray[Any]] = {
        "obs": np.arange(6, dtype=np.float32).reshape(3, 1, 2),
        "actions": np.zeros((3, 1), np.int64),
        "log_probs": np.zeros((3, 1), np.float32),
        "values": steps.values_TB.numpy(),
        "rewards": steps.rewards_TB.numpy(),
        "terminated": steps.terminated_TB.numpy(),
        "truncated": steps.truncated_TB.numpy(),
        "bootstrap_values": column([0.0, 50.0, 40.0]).numpy(),
    }
    batch = Batch.from_storage(fields, ("obs",), torch.device("cpu"))
    assert batch.steps.next_values_TB.flatten().tolist() == [20.0, 50.0, 40.0]
    fields["obs"][0, 0, 0] = 7.0
    fields["rewards"][2, 0] = 8.0
    assert batch.observations["obs"][0, 0, 0] == 7.0
    assert batch.steps.rewards_TB[2, 0] == 8.0


def test_flattening_puts_all_environments_of_a_step_side_by_side() -> None:
    assert flat_steps(torch.tensor([[1, 2, 3], [4, 5, 6]])).tolist() == [1, 2, 3, 4, 5, 6]


@dataclass(frozen=True)
class Trajectories:
    """Anything that a storage may hold, and how it is cut."""

    steps: Transitions
    unroll_steps: int
    discount: float
    gae_lambda: float


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectories:
    unroll_steps, num_unrolls, num_envs = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shape = (unroll_steps * num_unrolls, num_envs)
    size = shape[0] * shape[1]

    def table(elements: st.SearchStrategy[float] | st.SearchStrategy[bool]) -> Tensor:
        return torch.tensor(draw(st.lists(elements, min_size=size, max_size=size))).view(shape)

    numbers, now_and_then = st.floats(-100, 100, width=32), st.sampled_from([False, False, False, True])
    values_TB, truncated_TB = table(numbers), table(now_and_then)
    steps = Transitions(
        rewards_TB=table(numbers),
        values_TB=values_TB,
        next_values_TB=true_next_values(values_TB, table(numbers), truncated_TB),
        terminated_TB=table(now_and_then),
        truncated_TB=truncated_TB,
    )
    return Trajectories(steps, unroll_steps, draw(st.floats(0, 1)), draw(st.floats(0, 1)))


def pieces(data: Trajectories) -> list[tuple[int, range]]:
    """(environment, steps) of every stretch that no episode's end and no unroll's end cuts."""
    ends = (data.steps.terminated_TB | data.steps.truncated_TB).numpy().copy()
    ends[data.unroll_steps - 1 :: data.unroll_steps] = True
    found = []
    for env in range(ends.shape[1]):
        first = 0
        for last in np.flatnonzero(ends[:, env]).tolist():
            found.append((env, range(first, last + 1)))
            first = last + 1
    return found


def slow_advantages(data: Trajectories) -> Float64:
    """Every advantage as the sum that the paper writes, in float64."""
    rewards, values, next_values, terminated = _arrays(data.steps)
    result = np.full(rewards.shape, np.nan)
    for env, steps in pieces(data):
        for t in steps:
            result[t, env] = sum(
                (data.discount * data.gae_lambda) ** (s - t)
                * (rewards[s, env] + data.discount * (1 - terminated[s, env]) * next_values[s, env] - values[s, env])
                for s in range(t, steps.stop)
            )
    return result


def slow_returns(data: Trajectories) -> Float64:
    """Every return as the discounted sum of rewards and, unless the episode terminated, a last value."""
    rewards, _, next_values, terminated = _arrays(data.steps)
    result = np.full(rewards.shape, np.nan)
    for env, steps in pieces(data):
        last = steps[-1]
        for t in steps:
            result[t, env] = sum(data.discount ** (s - t) * rewards[s, env] for s in range(t, last + 1))
            if not terminated[last, env]:
                result[t, env] += data.discount ** (last + 1 - t) * next_values[last, env]
    return result


def _arrays(steps: Transitions) -> tuple[Float64, Float64, Float64, Float64]:
    tensors = (steps.rewards_TB, steps.values_TB, steps.next_values_TB, steps.terminated_TB)
    rewards, values, next_values, terminated = (x.double().numpy() for x in tensors)
    return rewards, values, next_values, terminated


@settings(deadline=None)
@given(trajectories())
def test_advantages_agree_with_the_slow_sum_over_every_episode(data: Trajectories) -> None:
    advantages = gae(data.steps, data.discount, data.gae_lambda, data.unroll_steps)
    np.testing.assert_allclose(advantages.numpy(), slow_advantages(data), rtol=1e-5, atol=1e-3)


@settings(deadline=None)
@given(trajectories())
def test_n_step_returns_agree_with_the_slow_sum_over_every_episode(data: Trajectories) -> None:
    returns = n_step_returns(data.steps, data.discount, data.unroll_steps)
    np.testing.assert_allclose(returns.numpy(), slow_returns(data), rtol=1e-5, atol=1e-3)


@settings(deadline=None)
@given(trajectories())
def test_with_lambda_one_the_advantage_is_the_n_step_return_minus_the_value(data: Trajectories) -> None:
    advantages = gae(data.steps, data.discount, 1.0, data.unroll_steps)
    returns = n_step_returns(data.steps, data.discount, data.unroll_steps)
    torch.testing.assert_close(advantages, returns - data.steps.values_TB, rtol=1e-5, atol=1e-3)


@settings(deadline=None)
@given(trajectories())
def test_computing_returns_leaves_the_storage_as_it_was(data: Trajectories) -> None:
    steps = data.steps
    tensors = [steps.rewards_TB, steps.values_TB, steps.next_values_TB, steps.terminated_TB, steps.truncated_TB]
    before = [tensor.clone() for tensor in tensors]
    gae(steps, data.discount, data.gae_lambda, data.unroll_steps)
    n_step_returns(steps, data.discount, data.unroll_steps)
    assert all(torch.equal(x, y) for x, y in zip(tensors, before, strict=True))
