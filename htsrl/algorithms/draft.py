"""A draft: the next version while it is being made from the one before.

Gradients are flat, like the parameters, so clipping and stepping are a few vector operations. They may be taken at
one version and applied to another: that is all the delayed gradient needs. An algorithm with several models takes the
gradient of one after another; clipping and stepping are about the model whose gradient was taken last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn

from htsrl.algorithms.gradient import At, Gradient, Objectives
from htsrl.algorithms.models import Model, Models
from htsrl.algorithms.objective import TargetsOf
from htsrl.algorithms.optimizers import Adam, Optimizer, optimizer_of
from htsrl.algorithms.sequences import Chosen
from htsrl.config.algorithm_settings import CommonSettings
from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.versions import POLICY
from htsrl.errors import TrainingDiverged
from htsrl.policies.policy import Policy
from htsrl.processes.kill_points import kill_point

NO_MODELS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class FurtherModels:
    """Those of a draft beside the policy, and how to move them."""

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, Optimizer]
    follow: Callable[[str, float], None]


class Draft:
    """The version being written: its models, and how to move them."""

    def __init__(
        self, policy: Policy, optimizer: Optimizer, gradient: Gradient, further: FurtherModels | None = None
    ) -> None:
        self.policy = policy
        self.models = Models(policy, further.modules if further else {})
        self._optimizers = {POLICY: optimizer, **(further.optimizers if further else {})}
        self._further = further
        self._gradient = gradient
        self._loss = torch.zeros(())
        self._of = POLICY
        self._is_checked = True
        self._learning_rate_factor = 1.0
        self._norms: list[Tensor] = []
        self.learning_rate = 0.0
        """Of the last step, before the factor."""

    def adjust(self, learning_rate_factor: float, momentum_factor: float) -> None:
        """Before the first gradient: multiply all learning rates of the update, and the momentum it starts with."""
        self._learning_rate_factor = learning_rate_factor
        for optimizer in self._optimizers.values():
            if isinstance(optimizer, Adam) and momentum_factor != 1.0:  # the others have none
                optimizer.scale_momentum(momentum_factor)

    @property
    def gradient_norm(self) -> float:
        """Mean length of the gradients so far, before they were clipped."""
        return sum(norm.item() for norm in self._norms) / max(len(self._norms), 1)

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

    def differentiate(self, objective: Objectives, at: At, chosen: Chosen, of: str = POLICY) -> Tensor:
        """Take the gradient of the mean loss of some sequences, at whichever parameters; returns the loss's parts.

        At a version's policy it is the policy's. At all models of a version, such as `draft.models`, it is that of the
        model `of`, and the objective is asked for `loss_of` it.
        """
        parts = self._gradient.take(objective, at, chosen, of)
        self._loss, self._of, self._is_checked = parts[0], of, False
        return parts

    def set_gradient(self, of: str, gradient: Tensor) -> None:
        """In place of `differentiate`, for a model with one parameter whose gradient is known by other means."""
        flat = self._gradient.sum_of(of)
        flat[0] = gradient
        flat[1:].zero_()
        self._loss, self._of, self._is_checked = gradient, of, False

    def clip(self, max_norm: float | None) -> Tensor:
        """Scale the gradient down to `max_norm` (None: leave it); returns its length before. Nothing moves by what is
        not finite."""
        gradient = self._gradient.sum_of(self._of)
        self._is_checked = True
        norm: Tensor = torch.linalg.vector_norm(gradient)
        self._norms.append(norm)
        if not math.isfinite((self._loss + norm).item()):  # one look at both: on a GPU each would wait for the device
            raise TrainingDiverged(f"the loss is {self._loss:g} and the length of its gradient {norm:g}")
        if max_norm is not None:
            gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def step(self, learning_rate: float) -> None:
        """Move the parameters of the draft's model by its gradient, wherever that was taken."""
        if not self._is_checked:
            self.clip(None)
        self.learning_rate = learning_rate
        self._optimizers[self._of].step(learning_rate * self._learning_rate_factor)
        self._gradient.beat()
        kill_point("optimizer step")

    def follow(self, model: str, rate: float) -> None:
        """Move a model towards the one that it `copies`: target += rate (source - target); 1 makes them equal."""
        assert self._further is not None, f"the algorithm declares no model {model!r}"
        self._further.follow(model, rate)


class Drafts:
    """Makes drafts: an optimizer for every slot of the parameter ring, all moving by the same gradient."""

    def __init__(
        self,
        ring: ParameterRing,
        settings: CommonSettings,
        gradient: Gradient | None = None,
        models: Mapping[str, Model] = NO_MODELS,
    ) -> None:
        """Unless told otherwise, gradients are taken here, in one shard. `models` are those beside the policy."""
        self._ring = ring
        self._gradient = gradient or Gradient.in_one_shard(ring.modules[0])
        self._leaders = {name: model.copies for name, model in models.items() if model.copies is not None}
        self._optimizers = {POLICY: self._optimizers_over(ring, POLICY, settings)}
        for name, model in models.items():
            if model.optimizer is not None:
                own = replace(settings, optimizer=model.optimizer)
                self._optimizers[name] = self._optimizers_over(ring.further[name], name, own)

    def begin(self, version: int) -> Draft:
        """A draft of `version`, equal to the version before."""
        self._gradient.begin(update=version - 1)
        slot = self._ring.draft(version)
        models = models_in(self._ring, slot)
        optimizers = {name: by_slot[slot] for name, by_slot in self._optimizers.items()}
        further = FurtherModels(models.further, optimizers, partial(self._follow, version))
        return Draft(models.policy, optimizers[POLICY], self._gradient, further)

    def _follow(self, version: int, model: str, rate: float) -> None:
        leader = self._leaders[model]
        ring = self._ring if leader == POLICY else self._ring.further[leader]
        self._ring.further[model].follow(version, ring, rate)

    def _optimizers_over(self, ring: ParameterRing, model: str, settings: CommonSettings) -> list[Optimizer]:
        gradient = self._gradient.sum_of(model)
        return [
            optimizer_of(settings, slot, steps, gradient) for slot, steps in zip(ring.slots, ring.steps, strict=True)
        ]


def models_in(ring: ParameterRing, slot: int) -> Models:
    """All models of the version in a slot."""
    policy = cast("Policy", ring.modules[slot])
    return Models(policy, {name: of_model.modules[slot] for name, of_model in ring.further.items()})
