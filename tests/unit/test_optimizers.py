"""Flat optimizers over slots against torch's own over separate parameters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.draft import Draft, Drafts
from htsrl.algorithms.optimizers import BLOCK, NUM_VECTORS, optimizer_of
from htsrl.algorithms.ppo import PPO
from htsrl.algorithms.sequences import Chosen, Rows
from htsrl.config import AlgorithmSettings, Network
from htsrl.config.algorithm_settings import CommonSettings
from htsrl.dataflow.parameters import ParameterRing, parameter_arrays
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.policies.policy import Policy, build_policy

PIXELS = spaces.Box(0, 255, (3, 44, 44), np.uint8)
VECTORS = spaces.Box(-1.0, 1.0, (5,), np.float32)
NUM_STEPS = 20

RMSPROP, ADAM = A2C(rmsprop_decay=0.95, optimizer_epsilon=1e-4), PPO(optimizer_epsilon=1e-4)
ALGORITHMS: list[AlgorithmSettings] = [
    RMSPROP,
    ADAM,
    replace(RMSPROP, optimizer="adam"),
    replace(ADAM, optimizer="rmsprop"),
]


def small_policy(observations: spaces.Space[object] = VECTORS) -> Policy:
    return build_policy(observations, VECTORS, Network(hidden_sizes=(7,)), seed=1)


def build_ring(algorithm: AlgorithmSettings, observations: spaces.Space[object] = VECTORS) -> ParameterRing:
    block = SharedArrays(parameter_arrays(small_policy(observations), NUM_VECTORS[algorithm.optimizer]))
    block.close_fd()
    ring = ParameterRing(block, lambda: small_policy(observations), torch.device("cpu"))
    ring.initialise(small_policy(observations))
    return ring


def torch_optimizer(algorithm: AlgorithmSettings, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Torch's simplest implementation."""
    if algorithm.optimizer == "adam":
        return torch.optim.Adam(parameters, eps=algorithm.optimizer_epsilon, foreach=False)
    return torch.optim.RMSprop(
        parameters, alpha=algorithm.rmsprop_decay, eps=algorithm.optimizer_epsilon, foreach=False
    )


def some_loss(policy: nn.Module, step: int) -> Tensor:
    """A gradient in every parameter, another one at every step."""
    generator = torch.Generator().manual_seed(step)
    losses = [
        (parameter * torch.randn(parameter.shape, generator=generator)).sum() for parameter in policy.parameters()
    ]
    return torch.stack(losses).sum()


class Whole:
    """A loss that is no sum over steps."""

    num_parts, epoch = 1, 0

    def __init__(self, loss: Callable[[Policy], Tensor]) -> None:
        self._loss = loss

    def learned_rows(self, chosen: Chosen) -> Rows:
        return chosen

    def __call__(self, policy: Policy, chosen: Chosen) -> tuple[Tensor, ...]:
        return (self._loss(policy),)


def differentiate(draft: Draft, step: int) -> None:
    draft.differentiate(Whole(lambda policy: some_loss(policy, step)), draft.policy, slice(0, 1))


@pytest.mark.parametrize("observations", [VECTORS, PIXELS], ids=["vector", "image"])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: f"{a.name}-{a.optimizer}")
def test_flat_optimizers_do_what_torchs_do_on_separate_parameters(
    algorithm: AlgorithmSettings, observations: spaces.Space[object]
) -> None:
    """Over versions and slots, several steps to a version, with a learning rate that changes."""
    ring, plain = build_ring(algorithm, observations), small_policy(observations)
    drafts, optimizer = Drafts(ring, CommonSettings.of(algorithm)), torch_optimizer(algorithm, plain.parameters())
    steps = itertools.count()
    for version in range(1, NUM_STEPS // 4 + 1):
        draft = drafts.begin(version)
        for step in itertools.islice(steps, 4):
            learning_rate = 0.01 / (1 + step)
            differentiate(draft, step)
            draft.step(learning_rate)
            optimizer.zero_grad()
            some_loss(plain, step).backward()  # type: ignore[no-untyped-call]
            optimizer.param_groups[0]["lr"] = learning_rate
            optimizer.step()
        ring.commit(version)
    assert next(steps) == NUM_STEPS
    for ours, theirs in zip(ring.module(NUM_STEPS // 4).parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    assert ring.steps[ring.slot_of(NUM_STEPS // 4)] == NUM_STEPS


def test_rmsprop_is_torchs_to_the_bit_where_gradients_vanish_too() -> None:
    """More than a block, with gradients of zero, and others whose squares are no normal numbers."""
    size = 2 * BLOCK + 77
    generator = torch.Generator().manual_seed(5)
    gradient, vectors = torch.zeros(size), torch.zeros(2, size)
    vectors[0] = torch.randn(size, generator=generator)
    theirs = nn.Parameter(vectors[0].clone())
    theirs.grad = gradient
    ours = optimizer_of(CommonSettings.of(RMSPROP), vectors, torch.zeros(()), gradient)
    optimizer = torch_optimizer(RMSPROP, [theirs])
    scales = torch.tensor([0.0, 1e-30, 1e-20, 1e-3, 1.0])
    for _ in range(5):
        chosen = torch.randint(len(scales), (size,), generator=generator)
        gradient.copy_(torch.randn(size, generator=generator) * scales[chosen])
        optimizer.param_groups[0]["lr"] = 0.01
        ours.step(0.01)
        optimizer.step()
    assert torch.equal(vectors[0], theirs.detach())
    assert torch.equal(vectors[1], optimizer.state[theirs]["square_avg"])


@pytest.mark.parametrize("algorithm", [RMSPROP, ADAM], ids=["rmsprop", "adam"])
def test_an_abandoned_draft_leaves_no_trace(algorithm: AlgorithmSettings) -> None:
    """A learner killed in mid-update begins the same draft again."""

    def second_version(with_false_start: bool) -> Tensor:
        ring = build_ring(algorithm)
        drafts = Drafts(ring, CommonSettings.of(algorithm))
        draft = drafts.begin(1)
        differentiate(draft, 0)
        draft.step(0.01)
        if with_false_start:
            abandoned = drafts.begin(2)
            differentiate(abandoned, 7)
            abandoned.step(0.5)
        draft = drafts.begin(2)
        differentiate(draft, 1)
        draft.step(0.01)
        return ring.slots[ring.slot_of(2)].clone()

    assert torch.equal(second_version(with_false_start=True), second_version(with_false_start=False))


def test_a_gradient_may_be_taken_at_one_version_and_applied_to_another() -> None:
    ring = build_ring(RMSPROP)
    drafts = Drafts(ring, CommonSettings.of(RMSPROP))
    draft = drafts.begin(1)
    behaviour = ring.module(0)
    assert isinstance(behaviour, Policy)
    squares = Whole(lambda policy: torch.stack([parameter.square().sum() for parameter in policy.parameters()]).sum())
    draft.differentiate(squares, behaviour, slice(0, 1))
    before = ring.slots[:, 0].clone()
    draft.step(0.01)
    assert torch.equal(ring.slots[0, 0], before[0])
    # RMSprop's first step: the gradient 2 theta over its own length, times sqrt of one over (1 - decay).
    gradient = 2 * before[0]
    expected = before[1] - 0.01 * gradient / ((0.05 * gradient.square()).sqrt() + 1e-4)
    torch.testing.assert_close(ring.slots[1, 0], expected)


def test_a_gradient_replaces_the_one_before() -> None:
    draft = Drafts(build_ring(ADAM), CommonSettings.of(ADAM)).begin(1)
    lengths = []
    for _ in range(3):
        differentiate(draft, 0)
        lengths.append(draft.clip(max_norm=1e9).item())
    assert lengths == [lengths[0]] * 3


@pytest.mark.parametrize("max_norm", [0.5, 1e3])
def test_clipping_agrees_with_torchs_on_separate_parameters(max_norm: float) -> None:
    draft, plain = Drafts(build_ring(ADAM), CommonSettings.of(ADAM)).begin(1), small_policy()
    differentiate(draft, 0)
    norm = draft.clip(max_norm)
    some_loss(plain, step=0).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(plain.parameters(), max_norm))
    for ours, theirs in zip(draft.policy.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad, theirs.grad)
