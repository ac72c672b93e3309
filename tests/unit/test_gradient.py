"""Gradients in shards: how sequences are cut, what a shard counts for, and that the sum is the whole gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from updates import Lengths, PPOProgress, a2c_objective, a2c_update, ppo_objective, ppo_update

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.a2c.algorithm import A2CTargets
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.gradient import Gradient, GradientShards
from htsrl.algorithms.lag_correction import ppo_correction_of
from htsrl.algorithms.ppo import PPO
from htsrl.algorithms.ppo.algorithm import PPOTargets
from htsrl.algorithms.returns import Transitions
from htsrl.algorithms.sequences import Chosen, Rows, count, cut
from htsrl.config import Network
from htsrl.dataflow.gradient_orders import MAX_PARTS
from htsrl.dataflow.parameters import FlatLayout
from htsrl.policies.policy import Policy, build_policy

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
NUM_STEPS, NUM_COLUMNS = 8, 4


pytestmark = pytest.mark.usefixtures("one_thread", "fixed_seed")


# --- the cut ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9))
def test_shards_are_neighbours_nearly_equal_and_the_same_for_ranges_and_lists(
    begin: int, size: int, num_shards: int
) -> None:
    ranges = cut(slice(begin, begin + size), num_shards)
    lists = cut(torch.arange(begin, begin + size), num_shards)
    everything = torch.arange(begin + size)
    for a, b in zip(ranges, lists, strict=True):
        assert torch.equal(everything[a], everything[b])
    assert [x for shard in ranges for x in everything[shard].tolist()] == list(range(begin, begin + size))
    sizes = [count(shard) for shard in ranges]
    assert sizes == [count(shard) for shard in lists]
    assert max(sizes) - min(sizes) <= 1


# --- what a shard counts for -----------------------------------------------------------------------------------------


class Squares:
    """The loss of a step is its number times the weight, squared over two."""

    num_parts, epoch = 1, 0

    def learned_rows(self, chosen: Chosen) -> Rows:
        """All but step 1."""
        rows = torch.arange(10)[chosen]
        return rows[rows != 1]

    def __call__(self, policy: Any, chosen: Chosen) -> tuple[Tensor, ...]:
        return ((self.learned_rows(chosen) * policy.weight.squeeze()).square().mean() / 2,)


def test_the_shards_of_a_gradient_agree_with_pencil_and_paper() -> None:
    """Of steps 0, 2, 3 and 4 at weight 1: (0 + 4 + 9 + 16) / 4 = 7.25, of which steps 0 to 2 make 1, the rest 6.25."""
    layer: Any = nn.Linear(1, 1, bias=False)
    layer.weight.data.fill_(1.0)
    rows, losses = torch.full((2, 16), torch.nan), torch.full((2, MAX_PARTS), torch.nan)
    gradient = Gradient(GradientShards(rows, losses, layer), own=(0, 1), modules=(layer,))
    (loss,) = gradient.take(Squares(), layer, slice(0, 5))
    assert rows[1, 0] == 6.25
    assert gradient.sum[0] == 7.25
    assert losses[:, 0].tolist() == [0.5, 3.125]
    assert loss == 3.625


def test_shards_are_added_up_in_their_order() -> None:
    """(1e8 + 1) - 1e8 is 0 in single precision, and 1 in any order that begins with the large ones."""
    layer = nn.Linear(1, 1, bias=False)
    rows, losses = torch.tensor([[1e8], [1.0], [-1e8]]).expand(3, 16).contiguous(), torch.zeros(3, MAX_PARTS)
    losses[:, 0] = torch.tensor([1e8, 1.0, -1e8])
    shards = GradientShards(rows, losses, layer)
    assert shards.add_up()[0] == 0.0
    assert (shards.sum == 0.0).all()


def test_a_shard_of_nothing_adds_nothing() -> None:
    policy, batch = small_policy("none"), random_batch("none", has_gaps=False)
    gradient, shards = sharded(policy, 5)
    steps = NUM_STEPS * NUM_COLUMNS
    objective = a2c_objective(A2C(), batch, A2CTargets(*torch.randn(3, steps)), Lengths(NUM_STEPS, 1), "none")
    gradient.take(objective, policy, slice(0, 3))
    expected, _ = sharded(policy, 1)
    expected.take(objective, policy, slice(0, 3))
    assert [bool(row.any()) for row in shards[1:]] == [True, True, False, False]
    torch.testing.assert_close(gradient.sum, expected.sum)


# --- the sum ---------------------------------------------------------------------------------------------------------


PPO_OF_TWO = PPO(epochs=2, num_minibatches=2)
BY_BATCH = replace(PPO_OF_TWO, advantage_normalization="batch")
RECENTERED = replace(PPO_OF_TWO, lag_correction="recentered")
DECOUPLED = replace(PPO_OF_TWO, lag_correction="decoupled")


def small_policy(recurrent: Any) -> Policy:
    return build_policy(
        OBSERVATIONS, spaces.Discrete(4), Network(hidden_sizes=(8,), recurrent=recurrent, recurrent_size=6), 1
    )


def random_batch(recurrent: str, has_gaps: bool) -> Batch:
    shape = (NUM_STEPS, NUM_COLUMNS)
    ends = torch.rand(shape) < 0.1
    steps = Transitions(torch.randn(shape), torch.randn(shape), torch.randn(shape), ends, torch.zeros_like(ends))
    return Batch(
        observations={"obs": torch.randn(*shape, 3)},
        actions=torch.randint(4, shape),
        log_probs=torch.full(shape, 0.25).log() + 0.1 * torch.randn(shape),
        steps=steps,
        active=torch.rand(shape) < 0.6 if has_gaps else None,
        states=None if recurrent == "none" else torch.randn(*shape, small_policy(recurrent).state_size),
    )


def sharded(policy: Policy, num_shards: int) -> tuple[Gradient, Tensor]:
    rows = torch.full((num_shards, FlatLayout.of(policy).size), torch.nan)  # of the gradient before
    shards = GradientShards(rows, torch.full((num_shards, MAX_PARTS), torch.nan), policy)
    return Gradient(shards, range(num_shards), [policy]), rows


class Steps:
    """Writes down the gradients that it is given, and moves along."""

    def __init__(self, policy: Policy, gradient: Gradient) -> None:
        self.gradients: list[Tensor] = []
        self._policy, self._gradient = policy, gradient

    def step(self, learning_rate: float) -> None:
        self.gradients.append(self._gradient.sum.clone())
        views = FlatLayout.of(self._policy).views(self._gradient.sum, self._policy)
        for parameter, view in zip(self._policy.parameters(), views, strict=True):
            parameter.data -= learning_rate * view


def update(
    algorithm: A2C | PPO, recurrent: str, batch: Batch, num_shards: int
) -> tuple[Sequence[Tensor], dict[str, float]]:
    policy, length = small_policy(recurrent), 1 if recurrent == "none" else 4
    gradient, _ = sharded(policy, num_shards)
    steps = Steps(policy, gradient)
    draft = Draft(policy, steps, gradient)
    if isinstance(algorithm, A2C):
        metrics = a2c_update(algorithm, draft, policy, batch, Lengths(4, length), learning_rate=0.01)
    else:
        correction = ppo_correction_of(algorithm, overlaps_learning=algorithm in (RECENTERED, DECOUPLED))
        progress = PPOProgress(1, 0, 0.01, 0.2, correction, sequence_steps=length)
        metrics = ppo_update(algorithm, draft, batch, NUM_STEPS, progress)
    return steps.gradients, metrics


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("has_gaps", [False, True], ids=["", "gaps"])
@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_the_first_epoch_writes_down_what_the_policy_says_one_step_after_another(
    recurrent: str, has_gaps: bool, num_shards: int
) -> None:
    policy, batch, length = small_policy(recurrent), random_batch(recurrent, has_gaps), 1 if recurrent == "none" else 4
    targets = PPOTargets(*torch.full((4, NUM_STEPS * NUM_COLUMNS), torch.nan))
    progress = PPOProgress(1, 0, 0.01, 0.2, "recentered", sequence_steps=length)
    objective = ppo_objective(PPO(), batch, targets, progress)
    gradient, _ = sharded(policy, num_shards)
    for piece in cut(slice(0, len(objective.sequences.starts)), 2):
        gradient.take(objective, policy, piece)
    states, begins = batch.states, batch.episode_begins()
    for column in range(NUM_COLUMNS):
        state = torch.zeros(0)
        for t in range(NUM_STEPS):
            if states is not None:
                state = states[t, column] if t % length == 0 else state
                state = torch.zeros_like(state) if begins[t, column] else state
            with torch.no_grad():
                seen = {"obs": batch.observations["obs"][t, column][None], "memory": state[None]}
                distribution, values, after = policy.respond(seen)
            state = state if after is None else after[0]
            log_probs = distribution.log_prob(batch.actions[t, column][None])
            is_learned = batch.active is None or bool(batch.active[t, column])
            row = t * NUM_COLUMNS + column
            made = torch.stack([targets.log_probs[row], targets.values[row]])
            expected = torch.cat([log_probs, values]) if is_learned else torch.full((2,), torch.nan)
            torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert targets.advantages.isnan().all()
    before = [target.clone() for target in targets]
    objective.epoch = 1
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1)
    gradient.take(objective, policy, slice(0, len(objective.sequences.starts)))
    assert all(
        torch.equal(x, y) for x, y in zip(*(map(torch.nan_to_num, part) for part in (targets, before)), strict=True)
    )


@pytest.mark.parametrize("num_shards", [2, 3, 7])
@pytest.mark.parametrize("has_gaps", [False, True], ids=["", "gaps"])
@pytest.mark.parametrize("recurrent", ["none", "lstm"])
@pytest.mark.parametrize(
    "algorithm",
    [A2C(entropy_coefficient=0.1), A2C(normalize_advantages=True), PPO_OF_TWO, BY_BATCH, RECENTERED, DECOUPLED],
    ids=["a2c", "a2c_normalized", "ppo", "ppo_by_batch", "ppo_recentered", "ppo_decoupled"],
)
def test_a_gradient_in_shards_is_that_of_the_whole(
    algorithm: A2C | PPO, recurrent: str, has_gaps: bool, num_shards: int
) -> None:
    """Though with agents that come and go, shards hold different numbers of learned steps."""
    batch = random_batch(recurrent, has_gaps)
    whole, whole_metrics = update(algorithm, recurrent, batch, 1)
    parts, metrics = update(algorithm, recurrent, batch, num_shards)
    assert len(whole) == (4 if isinstance(algorithm, PPO) else 2)
    for one, other in zip(whole, parts, strict=True):
        assert one.norm() > 0.01
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert metrics == pytest.approx(whole_metrics, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("algorithm", "num_passes"), [(RECENTERED, 2), (DECOUPLED, 3)])
def test_an_update_looks_at_every_step_once_in_an_epoch_and_once_before_if_it_is_decoupled(
    algorithm: PPO, num_passes: int
) -> None:
    batch, policy, looks = random_batch("none", has_gaps=False), small_policy("none"), list[int]()
    policy.register_forward_pre_hook(lambda _, given: looks.append(len(given[0]["obs"])))
    gradient, _ = sharded(policy, 2)
    progress = PPOProgress(1, 0, 0.01, 0.2, ppo_correction_of(algorithm, overlaps_learning=True))
    ppo_update(algorithm, Draft(policy, Steps(policy, gradient), gradient), batch, NUM_STEPS, progress)
    assert sum(looks) == num_passes * NUM_STEPS * NUM_COLUMNS
