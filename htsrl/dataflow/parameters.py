"""Versioned parameters: one flat vector per version, in a ring of slots of shared memory.

A slot holds the parameters, the optimizer's state and the running statistics behind them, so an update reads one
whole slot and writes another, and a kill in the middle leaves a whole state behind. On the CPU the modules are views
into the slots and publishing copies nothing; on another device each slot has a mirror there.

Further models of an algorithm, such as critics and target networks, have rings of their own beside the policy's, which
drafts and commits them along with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from htsrl.dataflow.shared_arrays import ALIGNMENT, ArraySpec, SharedArrays
from htsrl.dataflow.versions import POLICY, num_slots_for, slot_of

FLOAT_BYTES = 4


@dataclass(frozen=True)
class FlatLayout:
    """Where each parameter of a module lies in the flat vector, each on a cache line of its own."""

    offsets: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, module: nn.Module) -> FlatLayout:
        per_line = ALIGNMENT // FLOAT_BYTES
        offsets, size = [], 0
        for parameter in module.parameters():
            assert parameter.dtype == torch.float32, f"parameters are float32, not {parameter.dtype}"
            offsets.append(size)
            size += -(-parameter.numel() // per_line) * per_line
        return cls(tuple(offsets), size)

    def views(self, flat: torch.Tensor, module: nn.Module) -> list[torch.Tensor]:
        """The parts of `flat` shaped like the parameters of `module`, convolutions in channels_last order."""
        images = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Conv2d)}
        return [
            _shaped_like(parameter, flat[offset : offset + parameter.numel()], id(parameter) in images)
            for offset, parameter in zip(self.offsets, module.parameters(), strict=True)
        ]


def _shaped_like(parameter: torch.Tensor, part: torch.Tensor, is_convolution: bool) -> torch.Tensor:
    if is_convolution:
        out, channels, height, width = parameter.shape
        return part.view(out, height, width, channels).permute(0, 3, 1, 2)
    return part.view(parameter.shape)


def parameter_arrays(
    module: nn.Module, num_optimizer_vectors: int, num_slots: int = num_slots_for(max_lag=1), model: str = POLICY
) -> list[ArraySpec]:
    """A slot is [parameters, optimizer vectors ...], and beside it the optimizer's step count and the statistics."""
    slots, steps, statistics = array_names(model)
    size, num_statistics = FlatLayout.of(module).size, sum(s.numel() for s in statistics_of(module).values())
    of_slots, of_statistics = (1, num_statistics) if model == POLICY else (0, 0)
    return [
        ArraySpec(slots, (num_slots, 1 + num_optimizer_vectors, size), "float32", "version", acting_rows=of_slots),
        ArraySpec(steps, (num_slots,), "float32", kept_by="version"),
        ArraySpec(statistics, (num_slots, num_statistics), "float64", "version", acting_rows=of_statistics),
    ]


def array_names(model: str) -> tuple[str, str, str]:
    """The policy's arrays are called as they are, those of another model by its name too."""
    prefix = "" if model == POLICY else f"model {model}/"
    return f"{prefix}parameter_slots", f"{prefix}optimizer_steps", f"{prefix}statistics"


def statistics_of(module: nn.Module) -> dict[tuple[nn.Module, str], torch.Tensor]:
    """The buffers that change from version to version, by owner and name; any others are constants."""
    return {
        (owner, name): buffer
        for owner in module.modules()
        if getattr(owner, "holds_statistics", False)
        for name, buffer in owner.named_buffers(recurse=False)
    }


def bind_statistics(module: nn.Module, flat: torch.Tensor) -> None:
    """Lay the module's statistics, one after another, over `flat`."""
    offset = 0
    for (owner, name), buffer in statistics_of(module).items():
        assert buffer.dtype == torch.float64, f"statistics are float64, {name} is {buffer.dtype}"
        setattr(owner, name, flat[offset : offset + buffer.numel()].view(buffer.shape))
        offset += buffer.numel()


class ParameterRing:
    """The newest versions, each as a module that reads its slot."""

    def __init__(
        self,
        block: SharedArrays,
        build_module: Callable[[], nn.Module],
        device: torch.device,
        model: str = POLICY,
        further: Mapping[str, ParameterRing] = MappingProxyType({}),
    ) -> None:
        """`further` are the rings of the algorithm's other models, by name."""
        slots, steps, statistics = array_names(model)
        self.further = further
        self._shared = torch.from_numpy(block[slots])
        self._shared_steps = torch.from_numpy(block[steps])
        self._shared_statistics = torch.from_numpy(block[statistics])
        self._on_host = device.type == "cpu"
        self.slots = self._shared if self._on_host else self._shared.to(device)
        self.steps = self._shared_steps if self._on_host else self._shared_steps.to(device)
        self.statistics = self._shared_statistics if self._on_host else self._shared_statistics.to(device)
        module = build_module().to(device)  # once: initial values take a while, and are not needed here
        self.modules = [deepcopy(module) for _ in self.slots]
        self.layout = FlatLayout.of(self.modules[0])
        self._mirrored_versions = [-1] * len(self.modules)
        for module, slot, of_slot in zip(self.modules, self.slots, self.statistics, strict=True):
            bind_statistics(module, of_slot)
            for parameter, view in zip(module.parameters(), self.layout.views(slot[0], module), strict=True):
                parameter.data = view

    def slot_of(self, version: int) -> int:
        return slot_of(version, len(self.modules))

    def module(self, version: int) -> nn.Module:
        """The policy of a published version."""
        slot = self.slot_of(version)
        if not self._on_host and self._mirrored_versions[slot] != version:
            self.slots[slot, 0].copy_(self._shared[slot, 0])
            self.statistics[slot].copy_(self._shared_statistics[slot])
            self._mirrored_versions[slot] = version
        return self.modules[slot]

    def vectors(self, version: int) -> NDArray[Any]:
        """Parameters and optimizer's vectors of a version, a row each, as they lie in shared memory."""
        return self._shared[self.slot_of(version)].numpy()

    def own_statistics(self, version: int) -> NDArray[Any]:
        """The running statistics of a version, as they lie in shared memory."""
        return self._shared_statistics[self.slot_of(version)].numpy()

    def acting_arrays(self, version: int) -> list[NDArray[Any]]:
        """All that acting with a committed version depends on: its parameters, and its statistics if it has any."""
        slot = self.slot_of(version)
        arrays = [self._shared[slot, 0].numpy(), self._shared_statistics[slot].numpy()]
        return [array for array in arrays if array.size]

    def optimizer_arrays(self, version: int) -> list[NDArray[Any]]:
        """The optimizers' vectors and step counts behind a committed version, those of further models included."""
        slot = self.slot_of(version)
        arrays = [self._shared[slot, 1:].numpy(), np.atleast_1d(self._shared_steps[slot].numpy())]
        return arrays + [array for ring in self.further.values() for array in ring.optimizer_arrays(version)]

    def model_arrays(self, version: int) -> dict[str, list[NDArray[Any]]]:
        """The further models of a committed version, by name."""
        return {name: ring.acting_arrays(version) for name, ring in self.further.items()}

    def num_steps(self, version: int) -> int:
        """Optimizer steps of all models up to a version."""
        own = int(self._shared_steps[self.slot_of(version)])
        return own + sum(ring.num_steps(version) for ring in self.further.values())

    @property
    def gradient_bytes(self) -> int:
        """Of one gradient of the policy."""
        return self.layout.size * FLOAT_BYTES

    def initialise(self, module: nn.Module) -> None:
        """Make `module` version 0."""
        for view, parameter in zip(self.layout.views(self.slots[0, 0], module), module.parameters(), strict=True):
            view.copy_(parameter.detach())
        initial = statistics_of(module).values()
        for buffer, value in zip(statistics_of(self.modules[0]).values(), initial, strict=True):
            buffer.copy_(value)
        self.commit(version=0)

    def follow(self, version: int, leader: ParameterRing, rate: float) -> None:
        """Move a draft's parameters towards those of another model of the same shape; a rate of 1 makes them equal."""
        slot = self.slot_of(version)
        self.slots[slot, 0].lerp_(leader.slots[slot, 0], rate)
        self.statistics[slot].copy_(leader.statistics[slot])

    def draft(self, version: int) -> int:
        """Copy the version before into the slot of `version`, to be improved there; returns the slot."""
        for ring in self.further.values():
            ring.draft(version)
        slot, previous = self.slot_of(version), self.slot_of(version - 1)
        self.slots[slot].copy_(self.slots[previous])
        self.steps[slot] = self.steps[previous]
        self.statistics[slot].copy_(self.statistics[previous])
        return slot

    def commit(self, version: int) -> None:
        """Bring a finished draft into shared memory; a no-op where the draft was written there."""
        for ring in self.further.values():
            ring.commit(version)
        slot = self.slot_of(version)
        if not self._on_host:
            self._shared[slot].copy_(self.slots[slot])
            self._shared_steps[slot] = self.steps[slot]
            self._shared_statistics[slot].copy_(self.statistics[slot])
            self._mirrored_versions[slot] = version
