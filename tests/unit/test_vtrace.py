"""V-trace: by hand, against the sum that its paper writes, and against GAE where nothing lags."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_returns import Trajectories, column, one_env, pieces, trajectories
from torch import Tensor

from htsrl.algorithms.returns import Transitions, gae
from htsrl.algorithms.vtrace import vtrace

Float64 = NDArray[np.float64]
DISCOUNT = 0.5  # so that every number below is exact
NEVER: list[int] = []


@dataclass(frozen=True)
class Case:
    """Steps, how much likelier each action has become, and what a pencil makes of them."""

    steps: Transitions
    ratios: list[float]
    returns: list[float]
    advantages: list[float]
    trace_decay: float = 1.0
    unroll_steps: int = 3


BY_HAND = {
    # Errors 1, -3 and -7 (see test_returns). A ratio of 2 counts as 1. From the end: -7; -3/2 - 7/4 = -3.25;
    # 1 - 3.25/2 = -0.625; that is how far the returns are from the values 10, 20, 30.
    "an episode continues": Case(
        one_env(3, NEVER, NEVER, {2: 40.0}), [2.0, 0.5, 1.0], [9.375, 16.75, 23.0], [-0.625, -6.5, -7.0]
    ),
    # With half of the trace: -7; -3/2 - 7/8 = -2.375; 1 - 2.375/4 = 0.40625. Advantages: -3 - 7/4; 1 - 2.375/4.
    "a trace that decays": Case(
        one_env(3, NEVER, NEVER, {2: 40.0}),
        [2.0, 0.5, 1.0],
        [10.40625, 17.625, 23.0],
        [0.40625, -4.75, -7.0],
        trace_decay=0.5,
    ),
    # What the policy would no longer do teaches nothing, and nothing reaches back across it.
    "an action that has become impossible": Case(
        one_env(3, NEVER, NEVER, {2: 40.0}), [1.0, 0.0, 1.0], [11.0, 20.0, 23.0], [1.0, -6.5, -7.0]
    ),
    # The middle step has no future, error 2 - 20 = -18: -9 to its return, and 1/2 - 9/4 to the one before.
    "termination": Case(one_env(3, [1], NEVER, {2: 40.0}), [0.5] * 3, [8.25, 11.0, 26.5], [-3.5, -18.0, -7.0]),
    # The middle step was followed by something worth 8: error 2 + 4 - 20 = -14.
    "truncation": Case(one_env(3, NEVER, [1], {1: 8.0, 2: 40.0}), [0.5] * 3, [8.75, 13.0, 26.5], [-2.5, -14.0, -7.0]),
    "unrolls of one step": Case(
        one_env(3, NEVER, NEVER, {2: 40.0}), [0.5] * 3, [10.5, 18.5, 26.5], [1.0, -3.0, -7.0], unroll_steps=1
    ),
}


@pytest.mark.parametrize("case", BY_HAND.values(), ids=list(BY_HAND))
def test_it_agrees_with_pencil_and_paper(case: Case) -> None:
    made = vtrace(case.steps, column(case.ratios).log(), DISCOUNT, case.trace_decay, case.unroll_steps)
    assert made.returns_TB.flatten().tolist() == case.returns
    assert made.advantages_TB.flatten().tolist() == case.advantages


@st.composite
def lagging(draw: st.DrawFn) -> tuple[Trajectories, Tensor]:
    data = draw(trajectories())
    size = data.steps.rewards_TB.numel()
    log_ratios = draw(st.lists(st.floats(-4, 4, width=32), min_size=size, max_size=size))
    return data, torch.tensor(log_ratios).view_as(data.steps.rewards_TB)


def slow_vtrace(data: Trajectories, log_ratios_TB: Tensor) -> tuple[Float64, Float64]:
    """Every return as V(x_s) + sum_t discount^(t-s) (prod_{i<t} c_i) rho_t error_t, in float64, stretch by stretch.

    An advantage is a one-step look ahead to the return of the next step, or to its value as the trace decays.
    """
    rewards, values, next_values = (
        x.double().numpy() for x in (data.steps.rewards_TB, data.steps.values_TB, data.steps.next_values_TB)
    )
    discounts = data.discount * (1 - data.steps.terminated_TB.double().numpy())
    truncated_ratios, decay = np.minimum(1.0, np.exp(log_ratios_TB.double().numpy())), data.gae_lambda
    errors = rewards + discounts * next_values - values
    returns, advantages = np.full(errors.shape, np.nan), np.full(errors.shape, np.nan)
    for env, steps in pieces(data):
        for s in reversed(steps):
            returns[s, env] = values[s, env] + sum(
                data.discount ** (t - s)
                * np.prod(decay * truncated_ratios[s:t, env])
                * truncated_ratios[t, env]
                * errors[t, env]
                for t in range(s, steps.stop)
            )
            following = next_values[s, env]
            if s + 1 < steps.stop:
                following = decay * returns[s + 1, env] + (1 - decay) * values[s + 1, env]
            advantages[s, env] = rewards[s, env] + discounts[s, env] * following - values[s, env]
    return returns, advantages


@settings(deadline=None)
@given(drawn=lagging())
def test_it_agrees_with_the_sum_that_the_paper_writes(drawn: tuple[Trajectories, Tensor]) -> None:
    data, log_ratios_TB = drawn
    made = vtrace(data.steps, log_ratios_TB, data.discount, data.gae_lambda, data.unroll_steps)
    returns, advantages = slow_vtrace(data, log_ratios_TB)
    np.testing.assert_allclose(made.returns_TB.numpy(), returns, rtol=1e-4, atol=2e-3)
    np.testing.assert_allclose(made.advantages_TB.numpy(), advantages, rtol=1e-4, atol=2e-3)


@settings(deadline=None)
@given(data=trajectories())
def test_where_nothing_lags_it_is_gae(data: Trajectories) -> None:
    made = vtrace(
        data.steps, torch.zeros_like(data.steps.rewards_TB), data.discount, data.gae_lambda, data.unroll_steps
    )
    advantages_TB = gae(data.steps, data.discount, data.gae_lambda, data.unroll_steps)
    torch.testing.assert_close(made.advantages_TB, advantages_TB, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(made.returns_TB, advantages_TB + data.steps.values_TB, rtol=1e-4, atol=1e-3)


def test_what_lies_behind_the_end_of_an_episode_changes_nothing_before_it() -> None:
    steps = one_env(4, [1], NEVER, {3: 40.0})
    other = replace(steps, rewards_TB=steps.rewards_TB + column([0.0, 0.0, 100.0, 100.0]))
    log_ratios_TB = column([0.5, 0.25, 0.5, 0.5]).log()
    one, two = (vtrace(s, log_ratios_TB, DISCOUNT, 1.0, 4) for s in (steps, other))
    assert one.returns_TB[:2].equal(two.returns_TB[:2])
    assert not one.returns_TB[2:].equal(two.returns_TB[2:])
