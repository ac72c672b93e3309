"""The learner: reads a full storage, improves the parameters, publishes the next version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from htsrl.algorithms.algorithm import Update, build_algorithm
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Drafts
from htsrl.algorithms.gradient import Gradient
from htsrl.algorithms.models import Model
from htsrl.algorithms.update import improve
from htsrl.config import Experiment
from htsrl.config.algorithm_settings import CommonSettings
from htsrl.config.init_from import identity_of
from htsrl.dataflow.learner_slots import NUM_HASHED_COLUMNS, LearnerSlots
from htsrl.dataflow.parameters import ParameterRing
from htsrl.digest import BatchHash, DigestChain, VersionState, hash_batch
from htsrl.errors import TrainingDiverged
from htsrl.metrics.episodes import EpisodeMeter, ended_episodes
from htsrl.metrics.report import EndedEpisode, UpdateReport
from htsrl.numerics import OwnNumerics
from htsrl.policies.policy import Policy
from htsrl.processes.kill_points import kill_point
from htsrl.roles.role import Notify
from htsrl.roles.rollout_finisher import RolloutFinisher
from htsrl.roles.shared import Shared
from htsrl.sources.provenance import BatchProvenance
from htsrl.sources.source import Fields, lag_metrics


@dataclass(frozen=True)
class LearnerState:
    """What a learner works with, beside the batches."""

    parameters: ParameterRing
    slots: LearnerSlots
    gradient: Gradient
    finisher: RolloutFinisher | None
    models: Mapping[str, Model]
    """Those of the algorithm beside its policy."""


@dataclass(frozen=True)
class Outlets:
    """Whom a learner tells what."""

    notify_executors: Notify
    report: Callable[[UpdateReport], None]
    at_barrier: Callable[[int], None]
    reports_episodes: bool = False


class Learner:
    """Update u turns a batch and version u into version u+1."""

    def __init__(
        self,
        experiment: Experiment,
        shared: Shared,
        state: LearnerState,
        outlets: Outlets,
        verify_storages: bool = False,
    ) -> None:
        parameters, slots, finisher = state.parameters, state.slots, state.finisher
        self._experiment = experiment
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._source = shared.source
        self._replay = shared.replay
        self._parameters = parameters
        self._slots = slots
        self._outlets = outlets
        self._verify_storages = verify_storages
        self._numerics = OwnNumerics()
        self.finisher = finisher
        if finisher and shared.exchange.published_version == shared.exchange.restored_version:
            with self._numerics:
                finisher.add_activations()
        self.gradient = state.gradient
        self._beat = state.gradient.beat
        self._algorithm = build_algorithm(experiment)
        self._discount = CommonSettings.of(experiment.algorithm).discount
        self._drafts = Drafts(parameters, CommonSettings.of(experiment.algorithm), state.gradient, state.models)
        self.update = version = shared.exchange.published_version
        self._num_updates = min(experiment.num_intervals, self._source.max_updates)
        self.finished = version == self._num_updates
        self._episodes = EpisodeMeter(tuple(shared.storages.spec.info_names), slots.episodes(version))
        self._env_errors = slots.env_errors(version)
        self._digest = DigestChain(slots.chain(version)) if version else self._first_link()

    def _first_link(self) -> DigestChain:
        return DigestChain.begin(self._parameters.acting_arrays(0), identity_of(self._experiment.init_from))

    def advance(self) -> bool:
        if self.finished or not self._source.is_ready(self.update):
            return False
        with self._numerics:
            self.make_version()
        return True

    def make_version(self) -> None:
        self._source.claim(self.update)
        fields = self._source.fields(self.update)
        self._source.check_versions(self.update, fields)
        if self.finisher:
            self.finisher.complete(self.update)  # the fields are views, and see it
            self._beat()
        spec = self._storages.spec
        hashed = {name: fields[name] for name in spec.hashed_names}
        batch_hash, verification_hash = hash_batch(hashed, spec.num_envs), self._verification_hash()
        self._beat()
        episodes = ended_episodes(fields, spec)
        self._episodes.add(episodes)
        self._env_errors += int(fields["failures"].sum()) if "failures" in fields else 0
        self._outlets.at_barrier(self.update)
        self._beat()
        metrics = self._learn_or_explain(fields) | lag_metrics(self.update, fields)
        assert self._verification_hash() == verification_hash, (
            f"somebody wrote to {self._source.describe(self.update)} while the learner read it"
        )
        self.publish(metrics, batch_hash, self._source.provenance(self.update, fields), episodes)

    def waits_for(self) -> str:
        return self._source.waits_for(self.update)

    def learn(self, fields: Fields) -> dict[str, float]:
        batch = Batch.from_storage(fields, self._storages.spec.batch_names, self._parameters.slots.device)
        batch = batch.with_replay(self._replay)
        version = self._source.behaviour_version(self.update)
        behaviour = None if version is None else self._parameters.module(version)
        assert behaviour is None or isinstance(behaviour, Policy)
        draft = self._drafts.begin(version=self.update + 1)
        if self._replay is not None:
            self._replay.put(self.update, fields)
        return improve(self._algorithm, Update(self.update, behaviour), draft, batch, self._discount)

    def _learn_or_explain(self, fields: Fields) -> dict[str, float]:
        try:
            return self.learn(fields)
        except TrainingDiverged as error:
            learned = {name: fields[name] for name in self._storages.spec.hashed_names}
            broken = [name for name, x in learned.items() if x.dtype.kind == "f" and not np.isfinite(x).all()]
            finite = f"holds values that are not finite in {', '.join(broken)}" if broken else "is finite"
            raise TrainingDiverged(
                f"in update {self.update}, {error}; the batch {finite}. The policy before it is kept. Lower "
                "learning_rate or max_gradient_norm, or look at the scale of the rewards"
            ) from error

    def publish(
        self,
        metrics: dict[str, float],
        batch_hash: BatchHash,
        provenance: BatchProvenance | None,
        episodes: Sequence[EndedEpisode],
    ) -> None:
        version = self.update + 1
        kill_point("before a commit")
        self._parameters.commit(version)
        link = self._digest.extend(self.update, self._state(version), batch_hash)
        self._slots.write(version, link.chain, self._episodes.rows, self._env_errors)
        self._source.release(self.update)
        steps = version * self._experiment.batch_steps
        metrics |= self._episodes.metrics()
        metrics["train/n_updates"] = float(version)
        if self._experiment.on_env_error == "truncate":
            metrics["rollout/env_errors"] = float(self._env_errors)
        self.update = version
        self.finished = version == self._num_updates or self._is_solved()
        # Before it is published: of a learner that is killed in between, the supervisor publishes what was reported;
        # the other way round a report could be missing.
        line = provenance.to_json() if provenance else None
        reported = episodes if self._outlets.reports_episodes else ()
        self._outlets.report(UpdateReport(version, steps, metrics, link, self.finished, line, reported))
        kill_point("before a publish")
        # From here on executors may write into the storage that was read.
        self._exchange.published_version = version
        kill_point("after a publish")
        self._outlets.notify_executors()

    def _is_solved(self) -> bool:
        goal = self._experiment.stop_at_return
        return goal is not None and self._episodes.has_reached(goal)

    def _state(self, version: int) -> VersionState:
        """All that a run that is resumed from `version` starts with, beside its environments and what is only shown."""
        episodes = [
            np.array([*(row[:NUM_HASHED_COLUMNS] for row in self._episodes.rows)], np.float64),
            np.array([self._env_errors]),
        ]
        learner = {"optimizer": self._parameters.optimizer_arrays(version), "episodes": episodes}
        learner |= {f"model {name}": arrays for name, arrays in self._parameters.model_arrays(version).items()}
        return VersionState(self._parameters.acting_arrays(version), learner)

    def _verification_hash(self) -> BatchHash | None:
        """Of all fields of the batch, for those who do not trust the others."""
        if not self._verify_storages:
            return None
        return hash_batch(self._source.fields(self.update), self._storages.spec.num_envs)
