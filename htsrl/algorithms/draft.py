"""A draft: the next version while it is being made from the one before.

Gradients are flat, like the parameters, so clipping and stepping are a few vector operations. They may be taken at
one version and applied to another: that is all the delayed gradient needs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from htsrl.algorithms.gradient import Gradient
from htsrl.algorithms.objective import Objective, TargetsOf
from htsrl.algorithms.optimizers import Optimizer, optimizer_of
from htsrl.algorithms.sequences import Chosen
from htsrl.config.algorithm_settings import CommonSettings
from htsrl.dataflow.parameters import ParameterRing
from htsrl.errors import TrainingDiverged
from htsrl.policies.policy import Policy
from htsrl.processes.kill_points import kill_point


class Draft:
    """The version being written: its policy, and how to move it."""

    def __init__(self, policy: Policy, optimizer: Optimizer, gradient: Gradient) -> None:
        self.policy = policy
        self._optimizer = optimizer
        self._gradient = gradient
        self._loss = torch.zeros(())

    def targets(self, kind: type[TargetsOf], num_rows: int) -> TargetsOf:
        """Where to write what the gradients of this update aim at: everybody who takes them looks there."""
        return self._gradient.targets(kind, num_rows)

    def set_targets(self, targets: TargetsOf) -> TargetsOf:
        """Write down what the gradients of this update aim at; returns them where everybody looks."""
        columns: Any = targets
        shared: Any = self.targets(type(targets), len(columns[0]))
        for place, column in zip(shared, columns, strict=True):
            place.copy_(column)
        return shared  # type: ignore[no-any-return]

    def differentiate(self, objective: Objective, at: Policy, chosen: Chosen) -> Tensor:
        """Take the gradient of the mean loss of some sequences, at whichever parameters; returns the loss's parts."""
        parts = self._gradient.take(objective, at, chosen)
        self._loss = parts[0]
        return parts

    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradient down to `max_norm`; returns its length before. Nothing moves by what is not finite."""
        gradient = self._gradient.sum
        norm: Tensor = torch.linalg.vector_norm(gradient)
        if not math.isfinite((self._loss + norm).item()):  # one look at both: on a GPU each would wait for the device
            raise TrainingDiverged(f"the loss is {self._loss:g} and the length of its gradient {norm:g}")
        gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def step(self, learning_rate: float) -> None:
        """Move the draft's parameters by the gradient, wherever that was taken."""
        self._optimizer.step(learning_rate)
        self._gradient.beat()
        kill_point("optimizer step")


class Drafts:
    """Makes drafts: an optimizer for every slot of the parameter ring, all moving by the same gradient."""

    def __init__(self, ring: ParameterRing, settings: CommonSettings, gradient: Gradient | None = None) -> None:
        """Unless told otherwise, gradients are taken here, in one shard."""
        self._ring = ring
        self._gradient = gradient or Gradient.in_one_shard(ring.modules[0])
        self._optimizers = [
            optimizer_of(settings, slot, steps, self._gradient.sum)
            for slot, steps in zip(ring.slots, ring.steps, strict=True)
        ]

    def begin(self, version: int) -> Draft:
        """A draft of `version`, equal to the version before."""
        self._gradient.begin(update=version - 1)
        slot = self._ring.draft(version)
        policy = self._ring.modules[slot]
        assert isinstance(policy, Policy)
        return Draft(policy, self._optimizers[slot], self._gradient)
