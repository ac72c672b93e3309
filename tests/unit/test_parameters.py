"""The ring of versions: modules read their slots, and a draft leaves the versions before it alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from htsrl.config import Network
from htsrl.dataflow.parameters import FLOAT_BYTES, FlatLayout, ParameterRing, parameter_arrays
from htsrl.dataflow.shared_arrays import ALIGNMENT, SharedArrays
from htsrl.dataflow.versions import num_slots_for
from htsrl.policies.policy import Policy, build_policy

PIXELS = spaces.Box(0, 255, (3, 44, 44), np.uint8)
VECTORS = spaces.Box(-1.0, 1.0, (5,), np.float32)


def convolutional() -> Policy:
    return build_policy(PIXELS, spaces.Discrete(3), Network(), seed=1)


def fully_connected() -> Policy:
    return build_policy(VECTORS, VECTORS, Network(hidden_sizes=(7,)), seed=1)


def build_ring(build: Callable[[], Policy], num_optimizer_vectors: int = 2, lag: int = 1) -> ParameterRing:
    block = SharedArrays(parameter_arrays(build(), num_optimizer_vectors, num_slots_for(lag)))
    block.close_fd()
    return ParameterRing(block, build, torch.device("cpu"))


both = pytest.mark.parametrize("build", [convolutional, fully_connected])


@both
def test_every_parameter_has_cache_lines_of_its_own(build: Callable[[], Policy]) -> None:
    policy = build()
    layout = FlatLayout.of(policy)
    per_line = ALIGNMENT // FLOAT_BYTES
    assert len(layout.offsets) == len(list(policy.parameters()))
    ends = [*layout.offsets[1:], layout.size]
    for offset, end, parameter in zip(layout.offsets, ends, policy.parameters(), strict=True):
        assert offset % per_line == 0
        assert offset + parameter.numel() <= end < offset + parameter.numel() + per_line


@both
def test_views_tell_every_number_of_a_vector_once(build: Callable[[], Policy]) -> None:
    policy = build()
    layout = FlatLayout.of(policy)
    flat = torch.arange(layout.size, dtype=torch.float32)
    views = layout.views(flat, policy)
    assert [view.shape for view in views] == [parameter.shape for parameter in policy.parameters()]
    numbers = torch.cat([view.flatten() for view in views])
    assert len(set(numbers.tolist())) == sum(parameter.numel() for parameter in policy.parameters())


@both
def test_writing_into_a_slot_changes_its_module_and_no_other(build: Callable[[], Policy]) -> None:
    ring = build_ring(build)
    ring.slots.fill_(0.0)
    ring.slots[1, 0].fill_(3.0)
    for slot, module in enumerate(ring.modules):
        expected = 3.0 if slot == 1 else 0.0
        assert all((parameter == expected).all() for parameter in module.parameters())


@both
def test_writing_into_a_module_changes_its_slot_and_no_other(build: Callable[[], Policy]) -> None:
    ring = build_ring(build)
    ring.slots.fill_(0.0)
    with torch.no_grad():
        for parameter in ring.modules[2].parameters():
            parameter.fill_(1.0)
    num_written = sum(parameter.numel() for parameter in ring.modules[2].parameters())
    assert ring.slots[2, 0].sum() == num_written
    assert not ring.slots[:2].any()
    assert not ring.slots[2, 1:].any()


@both
def test_the_initial_version_computes_what_the_module_it_came_from_does(build: Callable[[], Policy]) -> None:
    ring, source = build_ring(build), build()
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.mul_(1.5)
    ring.initialise(source)
    assert all(torch.equal(x, y) for x, y in zip(ring.module(0).parameters(), source.parameters(), strict=True))
    leaf = source.interface.observations["obs"]
    obs = torch.randint(0, 256, (4, *leaf.shape)).to(getattr(torch, leaf.dtype))
    with torch.inference_mode():
        values, expected = ring.module(0)({"obs": obs})[1], source({"obs": obs})[1]
    torch.testing.assert_close(values, expected)


@both
def test_the_padding_between_parameters_stays_zero(build: Callable[[], Policy]) -> None:
    ring, source = build_ring(build), build()
    ring.initialise(source)
    padding = torch.ones(ring.layout.size, dtype=torch.bool)
    for offset, parameter in zip(ring.layout.offsets, source.parameters(), strict=True):
        padding[offset : offset + parameter.numel()] = False
    assert padding.any()
    assert not ring.slots[0, 0][padding].any()


@pytest.mark.parametrize("lag", [0, 1, 4])
def test_a_draft_begins_as_the_version_before_with_its_optimizer_and_leaves_it_untouched(lag: int) -> None:
    ring = build_ring(fully_connected, lag=lag)
    ring.initialise(fully_connected())
    for version in range(1, 7):
        previous = ring.slot_of(version - 1)
        before: Tensor = ring.slots[previous].clone()
        steps_before = ring.steps[previous].item()
        slot = ring.draft(version)
        assert slot == ring.slot_of(version) != previous
        assert torch.equal(ring.slots[slot], before)
        assert ring.steps[slot] == steps_before
        ring.slots[slot].add_(version)
        ring.steps[slot] += 1
        assert torch.equal(ring.slots[previous], before)
        assert ring.steps[previous] == steps_before
        ring.commit(version)
    assert ring.steps[ring.slot_of(6)] == 6


@pytest.mark.parametrize("lag", [0, 1, 4])
def test_the_newest_versions_have_slots_of_their_own(lag: int) -> None:
    """While update u runs, u-lag made its data, those from there to u act and u+1 is being written."""
    ring = build_ring(fully_connected, lag=lag)
    for update in range(lag, 10):
        in_use = range(update - lag, update + 2)
        assert {ring.slot_of(version) for version in in_use} == {*range(lag + 2)}
        assert ring.module(update) is ring.modules[ring.slot_of(update)]


def test_convolution_weights_lie_in_memory_in_channels_last_order() -> None:
    ring = build_ring(convolutional)
    ring.initialise(convolutional())
    weights = [parameter for module in ring.modules for parameter in module.parameters() if parameter.dim() == 4]
    assert len(weights) == 3 * len(ring.modules)
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)
    assert not any(weight.is_contiguous() for weight in weights)


def test_two_rings_over_one_memory_see_the_same_versions() -> None:
    """As a learner and its actors do."""
    block = SharedArrays(parameter_arrays(fully_connected(), 1))
    block.close_fd()
    learner, actor = (ParameterRing(block, fully_connected, torch.device("cpu")) for _ in range(2))
    learner.initialise(fully_connected())
    slot = learner.draft(1)
    learner.slots[slot, 0].mul_(2)
    learner.commit(1)
    for mine, theirs in zip(learner.module(1).parameters(), actor.module(1).parameters(), strict=True):
        assert torch.equal(mine, theirs)
        assert mine.data_ptr() == theirs.data_ptr()


def test_on_another_device_the_first_version_is_seen_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a GPU: whatever goes there is a copy."""

    class OtherDevice:
        type = "other"

    to_device, other = torch.Tensor.to, OtherDevice()
    monkeypatch.setattr(
        torch.Tensor, "to", lambda self, *args, **kw: self.clone() if other in args else to_device(self, *args, **kw)
    )
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, device: self)
    block = SharedArrays(parameter_arrays(fully_connected(), 1))
    block.close_fd()
    learner, actor = (ParameterRing(block, fully_connected, cast(Any, other)) for _ in range(2))
    learner.initialise(fully_connected())
    for ring in (learner, actor):
        expected = list(fully_connected().parameters())
        assert all(map(torch.equal, ring.module(version=0).parameters(), expected))
