"""A gradient in shards: the sequences that it is taken of are cut into a fixed number of parts, each part is
differentiated by itself, and the sum is taken in their order. So its bits depend on how many shards there are, and not
on who takes which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from htsrl.algorithms.objective import Objective, TargetsOf
from htsrl.algorithms.sequences import Chosen, count, cut
from htsrl.dataflow.gradient_orders import MAX_PARTS, GradientOrders, Helpers, Order
from htsrl.dataflow.parameters import FlatLayout, ParameterRing
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.policies.policy import Policy
from htsrl.processes.kill_points import kill_point

Beat = Callable[[], None]
"""A sign of life in the middle of an update."""


def no_beat() -> None:
    """Where nobody watches."""


class GradientShards:
    """Takes shards of a gradient, each into a row of its own, and adds them up in the first."""

    def __init__(self, rows: Tensor, losses: Tensor, module: nn.Module, beat: Beat = no_beat) -> None:
        """`rows` are flat like the parameters of `module`, and of all others that are differentiated. `beat` is called
        after every shard."""
        self._rows = rows
        self._losses = losses
        self.beat = beat
        layout = FlatLayout.of(module)
        self._views = [layout.views(row, module) for row in rows]
        self._parameters: dict[Policy, tuple[nn.Parameter, ...]] = {}  # of those that were differentiated

    @classmethod
    def over(cls, block: SharedArrays, ring: ParameterRing, beat: Beat = no_beat) -> GradientShards:
        """Where others find them, or on the ring's own device."""
        rows, losses = (torch.from_numpy(block[name]) for name in ("shard_gradients", "shard_losses"))
        return cls(rows.to(ring.slots.device), losses.to(ring.slots.device), ring.modules[0], beat)

    @property
    def sum(self) -> Tensor:
        """The gradient, once it was added up."""
        return self._rows[0]

    @property
    def num_shards(self) -> int:
        return len(self._rows)

    def take(self, shards: Sequence[int], objective: Objective, policy: Policy, chosen: Chosen, num_steps: int) -> None:
        """Some shards of the gradient of a mean over the `num_steps` steps of the chosen sequences."""
        parts = cut(chosen, self.num_shards)
        for shard in shards:
            self._rows[shard].zero_()
            self._losses[shard].zero_()
            share = count(objective.learned_rows(parts[shard])) / max(num_steps, 1)
            if not share:
                continue
            self._direct_gradient(policy, shard)
            loss = objective(policy, parts[shard])
            (loss[0] * share).backward()  # type: ignore[no-untyped-call]
            self._losses[shard, : len(loss)] = torch.stack(loss).detach() * share
            self.beat()

    def _direct_gradient(self, policy: Policy, shard: int) -> None:
        """Have the policy's next gradient added to a shard's row. Its parameters take a while to find, so only once."""
        if policy not in self._parameters:
            self._parameters[policy] = tuple(policy.parameters())
        for parameter, view in zip(self._parameters[policy], self._views[shard], strict=True):
            parameter.grad = view

    def add_up(self) -> Tensor:
        """Sum all shards; returns the sum of their losses."""
        losses = self._losses[0].clone()
        for row, loss in zip(self._rows[1:], self._losses[1:], strict=True):
            self.sum.add_(row)
            losses.add_(loss)
        return losses


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

    def take(self, objective: Objective, policy: Policy, chosen: Chosen) -> Tensor:
        """The gradient of the mean loss of these sequences, in `sum`; returns the parts of the loss."""
        num_steps = count(objective.learned_rows(chosen))
        if self._helpers:
            self._ask(self._helpers, objective.epoch, policy, chosen, num_steps)
        self.shards.take(self._own, objective, policy, chosen, num_steps)
        if self._helpers:
            self._helpers.await_answers()
        kill_point("before a sum of gradients")
        return self.shards.add_up()[: objective.num_parts]

    def _ask(self, helpers: Helpers, epoch: int, policy: Policy, chosen: Chosen, num_steps: int) -> None:
        if isinstance(chosen, Tensor):
            helpers.orders.sequences[: len(chosen)] = chosen.numpy()
        neighbours = slice(0, len(chosen)) if isinstance(chosen, Tensor) else chosen
        slot = next(slot for slot, module in enumerate(self._modules) if module is policy)
        is_shuffled = isinstance(chosen, Tensor)
        helpers.ask(Order(self._update, epoch, slot, is_shuffled, neighbours.start, neighbours.stop, num_steps))


def shared_targets(kind: type[TargetsOf], orders: GradientOrders) -> TargetsOf:
    assert len(orders.targets) == num_columns(kind)
    return kind(*torch.from_numpy(orders.targets))


def num_columns(kind: Any) -> int:
    """Of a NamedTuple of targets."""
    return len(kind._fields)


def chosen_by(order: Order, orders: GradientOrders) -> Chosen:
    if order.is_shuffled:
        return torch.from_numpy(orders.sequences[order.begin : order.end])
    return slice(order.begin, order.end)
