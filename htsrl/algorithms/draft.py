"""A draft: the next version while it is being made from the one before.

Gradients are flat, like the parameters, so clipping and stepping are a few vector operations. They may be taken at
one version and applied to another: that is all the delayed gradient needs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from htsrl.config import Algorithm
from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.versions import NUM_SLOTS
from htsrl.errors import TrainingDiverged
from htsrl.kill_points import reach
from htsrl.policies.policy import Policy

OPTIMIZER_VECTORS = {"adam": ("exp_avg", "exp_avg_sq"), "rmsprop": ("square_avg",)}


class Draft:
    """The version being written: its policy, and how to move it."""

    def __init__(self, policy: Policy, optimizer: torch.optim.Optimizer, gradient: Tensor) -> None:
        self.policy = policy
        self._optimizer = optimizer
        self._gradient = gradient
        self._loss = torch.zeros(())

    def differentiate(self, loss: Tensor) -> None:
        """Take the gradient of `loss` at the parameters it was computed with."""
        self._gradient.zero_()
        self._loss = loss.detach()
        loss.backward()  # type: ignore[no-untyped-call]

    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradient down to `max_norm`; returns its length before. Nothing moves by what is not finite."""
        norm: Tensor = torch.linalg.vector_norm(self._gradient)
        if not torch.isfinite(self._loss + norm):  # one look at both: on a GPU each would wait for the device
            raise TrainingDiverged(f"the loss is {self._loss:g} and the length of its gradient {norm:g}")
        self._gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def step(self, learning_rate: float) -> None:
        """Move the draft's parameters by the gradient, wherever that was taken."""
        self._optimizer.param_groups[0]["lr"] = learning_rate
        self._optimizer.step()
        reach("optimizer step")


class Drafts:
    """Makes drafts: an optimizer and gradient views for every slot of the parameter ring."""

    def __init__(self, ring: ParameterRing, algorithm: Algorithm) -> None:
        self._ring = ring
        self._gradient = torch.zeros_like(ring.slots[0, 0])
        for module in ring.modules:
            views = ring.layout.views(self._gradient, module)
            for parameter, view in zip(module.parameters(), views, strict=True):
                parameter.grad = view
        self._optimizers = [self._slot_optimizer(slot, algorithm) for slot in range(NUM_SLOTS)]

    def begin(self, version: int) -> Draft:
        """A draft of `version`, equal to the version before."""
        slot = self._ring.draft(version)
        policy = self._ring.modules[slot]
        assert isinstance(policy, Policy)
        return Draft(policy, self._optimizers[slot], self._gradient)

    def _slot_optimizer(self, slot: int, algorithm: Algorithm) -> torch.optim.Optimizer:
        """An optimizer whose parameters and state are the slot's own memory."""
        flat = nn.Parameter(self._ring.slots[slot, 0], requires_grad=False)
        flat.grad = self._gradient
        optimizer: torch.optim.Optimizer
        if algorithm.optimizer == "adam":
            optimizer = torch.optim.Adam([flat], eps=algorithm.optimizer_epsilon, fused=True)
        else:
            optimizer = torch.optim.RMSprop(
                [flat], alpha=algorithm.rmsprop_decay, eps=algorithm.optimizer_epsilon, foreach=False
            )
        vectors = OPTIMIZER_VECTORS[algorithm.optimizer]
        optimizer.state[flat] = {name: self._ring.slots[slot, 1 + k] for k, name in enumerate(vectors)}
        optimizer.state[flat]["step"] = self._ring.steps[slot]
        return optimizer
