"""One replica's part of an update: from its rollout, completed, to a draft of its next version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from htsrl.algorithms.algorithm import Update, batch_kind, build_algorithm
from htsrl.algorithms.draft import Drafts
from htsrl.algorithms.gradient import Gradient
from htsrl.algorithms.models import Model
from htsrl.algorithms.update import improve
from htsrl.config import Experiment
from htsrl.config.algorithm_settings import CommonSettings
from htsrl.dataflow.parameters import ParameterRing
from htsrl.errors import TrainingDiverged
from htsrl.learners.rule import ReplicaReport, SyncRule
from htsrl.policies.policy import Policy
from htsrl.roles.rollout_finisher import Finisher
from htsrl.roles.shared import Shared
from htsrl.sources.source import Fields


@dataclass(frozen=True)
class UpdaterState:
    """What an update works with, beside the batch."""

    parameters: ParameterRing
    gradient: Gradient
    finisher: Finisher | None
    models: Mapping[str, Model]
    """Those of the algorithm beside its policy."""
    rule: SyncRule | None = None
    """Where there are several replicas: it may change learning rate and momentum."""


class Updater:
    """Turns version u and the batch of update u into a draft of version u+1; knows nothing of when and for whom."""

    def __init__(self, experiment: Experiment, shared: Shared, state: UpdaterState) -> None:
        """`experiment` is that of the replica."""
        self._spec = shared.storages.spec
        self._source = shared.source
        self._replay_buffer = shared.replay_buffer
        self._dataset = shared.dataset
        self._parameters = state.parameters
        self.gradient = state.gradient
        self.finisher = state.finisher
        self._rule = state.rule
        self._algorithm = build_algorithm(experiment)
        settings = CommonSettings.of(experiment.algorithm)
        self._discount = settings.discount
        self._drafts = Drafts(state.parameters, settings, state.gradient, state.models)
        self.report = ReplicaReport(0.0, 0.0)
        """Of the last update."""

    def learn(self, update: int, fields: Fields) -> dict[str, float]:
        try:
            return self._learn(update, fields)
        except TrainingDiverged as error:
            learned = {name: fields[name] for name in self._spec.hashed_names}
            broken = [name for name, x in learned.items() if x.dtype.kind == "f" and not np.isfinite(x).all()]
            finite = f"holds values that are not finite in {', '.join(broken)}" if broken else "is finite"
            raise TrainingDiverged(
                f"in update {update}, {error}; the batch {finite}. The policy before it is kept. Lower "
                "learning_rate or max_gradient_norm, or look at the scale of the rewards"
            ) from error

    def _learn(self, update: int, fields: Fields) -> dict[str, float]:
        kind, device = batch_kind(self._algorithm), self._parameters.slots.device
        batch = kind.from_storage(fields, self._spec.batch_names, device)
        batch = batch.with_replay_buffer(self._replay_buffer).with_dataset(self._dataset)
        version = self._source.behaviour_version(update)
        behaviour = None if version is None else cast("Policy", self._parameters.module(version))
        draft = self._drafts.begin(version=update + 1)
        if self._rule is not None:
            draft.adjust(self._rule.learning_rate_factor(update), self._rule.momentum_factor(update))
        if self._replay_buffer is not None:
            self._replay_buffer.put(update, fields)
        metrics = improve(self._algorithm, Update(update, behaviour), draft, batch, self._discount)
        self.report = ReplicaReport(draft.learning_rate, draft.gradient_norm)
        return metrics
