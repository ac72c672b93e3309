"""The gradient worker: takes its shards of the gradients that the learner orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from htsrl.algorithms.algorithm import Update, batch_kind, build_algorithm
from htsrl.algorithms.draft import models_in
from htsrl.algorithms.gradient import GradientShards, Objectives, chosen_by, shared_targets
from htsrl.config import Experiment
from htsrl.dataflow.gradient_orders import GradientOrder, GradientOrders
from htsrl.dataflow.parameters import ParameterRing
from htsrl.roles.role import Notify
from htsrl.roles.shared import Shared


@dataclass(frozen=True)
class GradientShare:
    """Which shards a worker takes, and where orders come from and results go."""

    worker: int
    shards: Sequence[int]
    orders: GradientOrders
    gradient: GradientShards


class GradientWorker:
    """Holds no state that an order needs: all of that lies in shared memory."""

    def __init__(
        self,
        share: GradientShare,
        experiment: Experiment,
        shared: Shared,
        parameters: ParameterRing,
        notify_learner: Notify,
    ) -> None:
        self._worker = share.worker
        self._shards = share.shards
        self._algorithm = build_algorithm(experiment)
        self._batch_names = shared.storages.spec.batch_names
        self._source = shared.source
        self._replay_buffer = shared.replay_buffer
        self._dataset = shared.dataset
        self._parameters = parameters
        self._device = parameters.slots.device
        self._orders = share.orders
        self._gradient = share.gradient
        self._notify_learner = notify_learner
        self._objectives: dict[int, Objectives] = {}  # of the update under way

    def advance(self) -> bool:
        order = self._orders.pending(self._worker)
        if order is None:
            return False
        self.carry_out(order)
        self._orders.answer(self._worker)
        self._notify_learner()
        return True

    def waits_for(self) -> str:
        return "gradients to take"

    def carry_out(self, order: GradientOrder) -> None:
        models, chosen = models_in(self._parameters, order.slot), chosen_by(order, self._orders)
        objective = self._objective_of(order)
        objective.epoch = order.epoch
        if order.model:
            name = self._gradient.model_names[order.model - 1]
            self._gradient.take(self._shards, objective, models, chosen, order.num_steps, name)
        else:
            self._gradient.take(self._shards, objective, models.policy, chosen, order.num_steps)

    def _objective_of(self, order: GradientOrder) -> Objectives:
        if order.update not in self._objectives:
            targets = shared_targets(self._algorithm.Targets, self._orders)
            objective = self._algorithm.objective(Update(order.update), self._batch_of(order), targets)
            self._objectives = {order.update: objective}
        return self._objectives[order.update]

    def _batch_of(self, order: GradientOrder) -> Any:
        """What the learner learns from."""
        fields, kind = self._source.fields(order.update), batch_kind(self._algorithm)
        batch = kind.from_storage(fields, self._batch_names, self._device)
        return batch.with_replay_buffer(self._replay_buffer).with_dataset(self._dataset)
