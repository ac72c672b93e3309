"""A gradient in shards: the sequences that it is taken of are cut into a fixed number of parts, each part is
differentiated by itself, and the sum is taken in their order. So its bits depend on how many shards there are, and not
on who takes which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from htsrl.algorithms.models import Models
from htsrl.algorithms.objective import ModelsObjective, Objective, TargetsOf
from htsrl.algorithms.sequences import Chosen, count, cut
from htsrl.dataflow.gradient_orders import MAX_PARTS, GradientOrder, GradientOrders, Helpers
from htsrl.dataflow.parameters import FlatLayout, ParameterRing
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.versions import POLICY
from htsrl.policies.half_precision import HalfEncoder, HeldCopies, half_encoders
from htsrl.policies.policy import Policy
from htsrl.processes.kill_points import kill_point

Beat = Callable[[], None]
"""A sign of life in the middle of an update."""


Objectives = Objective | ModelsObjective
At = Policy | Models
"""Where a gradient is taken: a version's policy, or all models of a version."""


def no_beat() -> None:
    """Where nobody watches."""


class GradientShards:
    """Takes shards of a gradient, each into a row of its own, and adds them up in the first."""

    def __init__(
        self,
        rows: Tensor,
        losses: Tensor,
        module: nn.Module,
        beat: Beat = no_beat,
        further: Mapping[str, nn.Module] = MappingProxyType({}),
    ) -> None:
        """`rows` are flat like the parameters of `module`, and of all others that are differentiated, each of which
        begins where they begin. `beat` is called after every shard."""
        self._rows = rows
        self._losses = losses
        self.beat = beat
        modules = {POLICY: module, **further}
        layouts = {name: FlatLayout.of(model) for name, model in modules.items()}
        self._views = {name: [layouts[name].views(row, model) for row in rows] for name, model in modules.items()}
        self._sizes = {name: layout.size for name, layout in layouts.items()}
        self._parameters: dict[nn.Module, tuple[nn.Parameter, ...]] = {}  # of those that were differentiated
        self._half_encoders: dict[nn.Module, tuple[HalfEncoder, ...]] = {}

    @classmethod
    def over(cls, block: SharedArrays, ring: ParameterRing, beat: Beat = no_beat) -> GradientShards:
        """Where others find them, or on the ring's own device."""
        rows, losses = (torch.from_numpy(block[name]) for name in ("shard_gradients", "shard_losses"))
        further = {name: of_model.modules[0] for name, of_model in ring.further.items()}
        return cls(rows.to(ring.slots.device), losses.to(ring.slots.device), ring.modules[0], beat, further)

    @property
    def sum(self) -> Tensor:
        """The policy's gradient, once it was added up."""
        return self.sum_of(POLICY)

    @property
    def model_names(self) -> list[str]:
        return list(self._sizes)

    def sum_of(self, model: str) -> Tensor:
        return self._rows[0, : self._sizes[model]]

    @property
    def num_shards(self) -> int:
        return len(self._rows)

    def take(
        self,
        shards: Sequence[int],
        objective: Objectives,
        at: At,
        chosen: Chosen,
        num_steps: int,
        of: str = POLICY,
    ) -> None:
        """Some shards of the gradient of a mean over the `num_steps` steps of the chosen sequences."""
        parts = cut(chosen, self.num_shards)
        with self._copies_held(at):
            self._take_each(shards, objective, at, parts, num_steps, of)

    def _take_each(
        self,
        shards: Sequence[int],
        objective: Objectives,
        at: At,
        parts: Sequence[Chosen],
        num_steps: int,
        of: str,
    ) -> None:
        for shard in shards:
            self._rows[shard].zero_()
            self._losses[shard].zero_()
            share = count(objective.learned_rows(parts[shard])) / max(num_steps, 1)
            if not share:
                continue
            loss = self._backpropagate(objective, at, parts[shard], share, of, shard)
            self._losses[shard, : len(loss)] = torch.stack(loss).detach() * share
            self.beat()

    def _copies_held(self, at: At) -> AbstractContextManager[None]:
        """Nothing moves between the shards of a gradient, so weights in bfloat16 are copied once for all of them."""
        modules = tuple(at.values()) if isinstance(at, Models) else (at,)
        found = [encoder for module in modules for encoder in self._half(module)]
        return HeldCopies(found).used() if found else nullcontext()

    def _half(self, module: nn.Module) -> tuple[HalfEncoder, ...]:
        if module not in self._half_encoders:
            self._half_encoders[module] = half_encoders(module)
        return self._half_encoders[module]

    def _backpropagate(
        self, objective: Objectives, at: At, chosen: Chosen, share: float, of: str, shard: int
    ) -> tuple[Tensor, ...]:
        """A share of the gradient into a shard's row; returns the parts of the loss."""
        if isinstance(at, Models):
            parameters = self._direct_gradient(at[of], of, shard)
            loss = cast(ModelsObjective, objective).loss_of(of, at, chosen)
            # Of this model alone: the others that the loss went through stay as they are.
            torch.autograd.backward(loss[0] * share, inputs=parameters)
        else:
            self._direct_gradient(at, of, shard)
            loss = cast(Objective, objective)(at, chosen)
            (loss[0] * share).backward()  # type: ignore[no-untyped-call]
        return loss

    def _direct_gradient(self, module: nn.Module, model: str, shard: int) -> tuple[nn.Parameter, ...]:
        """Have the module's next gradient added to a shard's row. Its parameters take a while to find, so only once."""
        if module not in self._parameters:
            self._parameters[module] = tuple(module.parameters())
        for parameter, view in zip(self._parameters[module], self._views[model][shard], strict=True):
            parameter.grad = view
        return self._parameters[module]

    def add_up(self) -> Tensor:
        """Sum all shards; returns the sum of their losses."""
        losses = self._losses[0].clone()
        for row, loss in zip(self._rows[1:], self._losses[1:], strict=True):
            self._rows[0].add_(row)
            losses.add_(loss)
        return losses


class Place(NamedTuple):
    """Where a gradient is taken, as an order says it."""

    epoch: int
    policy: Policy
    model: int


class Gradient:
    """The learner's: it takes the first shards, helpers if it has any take the others."""

    def __init__(
        self, shards: GradientShards, own: Sequence[int], modules: Sequence[nn.Module], helpers: Helpers | None = None
    ) -> None:
        """`modules` are the ring's."""
        assert own[0] == 0, "the sum is taken in the first row, which must be ours"
        self.shards = shards
        self._own = own
        self._modules = modules
        self._helpers = helpers
        self._update = 0

    @classmethod
    def in_one_shard(cls, module: nn.Module) -> Gradient:
        """In memory of its own."""
        size, device = FlatLayout.of(module).size, next(module.parameters()).device
        rows, losses = torch.zeros(1, size, device=device), torch.zeros(1, MAX_PARTS, device=device)
        return cls(GradientShards(rows, losses, module), own=(0,), modules=(module,))

    @property
    def sum(self) -> Tensor:
        return self.shards.sum

    def sum_of(self, model: str) -> Tensor:
        """The gradient that was taken last, if it was one of this model."""
        return self.shards.sum_of(model)

    def beat(self) -> None:
        """Tell the supervisor that the update gets on."""
        self.shards.beat()

    def begin(self, update: int) -> None:
        """Before anything is written that gradients of the update are taken from."""
        self._update = update
        if self._helpers:  # may still be at an order of a learner that has died
            self._helpers.await_answers()

    def targets(self, kind: type[TargetsOf], num_rows: int) -> TargetsOf:
        """Helpers, if there are any, look at the same, so the learner writes there between gradients."""
        if self._helpers:
            return shared_targets(kind, self._helpers.orders)
        return kind(*torch.zeros(num_columns(kind), num_rows, device=self.sum.device))

    def take(self, objective: Objectives, at: At, chosen: Chosen, of: str = POLICY) -> Tensor:
        """The gradient of the mean loss of these sequences, in `sum_of`; returns the parts of the loss."""
        num_steps = count(objective.learned_rows(chosen))
        if self._helpers:
            model = 1 + self.shards.model_names.index(of) if isinstance(at, Models) else 0
            policy = at.policy if isinstance(at, Models) else at
            self._ask(self._helpers, Place(objective.epoch, policy, model), chosen, num_steps)
        self.shards.take(self._own, objective, at, chosen, num_steps, of)
        if self._helpers:
            self._helpers.await_answers()
        kill_point("before a sum of gradients")
        return self.shards.add_up()[: objective.num_parts]

    def _ask(self, helpers: Helpers, place: Place, chosen: Chosen, num_steps: int) -> None:
        if isinstance(chosen, Tensor):
            helpers.orders.sequences[: len(chosen)] = chosen.numpy()
        neighbours = slice(0, len(chosen)) if isinstance(chosen, Tensor) else chosen
        slot = next(slot for slot, module in enumerate(self._modules) if module is place.policy)
        which = neighbours.start, neighbours.stop, num_steps, place.model
        helpers.ask(GradientOrder(self._update, place.epoch, slot, isinstance(chosen, Tensor), *which))


def shared_targets(kind: type[TargetsOf], orders: GradientOrders) -> TargetsOf:
    assert len(orders.targets) == num_columns(kind)
    return kind(*torch.from_numpy(orders.targets))


def num_columns(kind: Any) -> int:
    """Of a NamedTuple of targets."""
    return len(kind._fields)


def chosen_by(order: GradientOrder, orders: GradientOrders) -> Chosen:
    if order.is_shuffled:
        return torch.from_numpy(orders.sequences[order.begin : order.end])
    return slice(order.begin, order.end)
