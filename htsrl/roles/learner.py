"""The learner: reads a full storage, improves the parameters, publishes the next version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from htsrl.config import Experiment
from htsrl.config.data_source import data_identity
from htsrl.config.init_from import identity_of
from htsrl.dataflow.learner_slots import NUM_HASHED_COLUMNS, LearnerSlots
from htsrl.dataflow.parameters import ParameterRing
from htsrl.digest import BatchHash, DigestChain, VersionState, hash_batch
from htsrl.errors import ConfigError, EnvironmentFailure
from htsrl.metrics.episodes import WINDOW, EpisodeMeter, ended_episodes
from htsrl.metrics.report import EndedEpisode, UpdateReport
from htsrl.numerics import OwnNumerics
from htsrl.processes.kill_points import kill_point
from htsrl.roles.meetings import Meetings
from htsrl.roles.role import Notify
from htsrl.roles.shared import Shared
from htsrl.roles.updater import Updater
from htsrl.sources.provenance import BatchProvenance
from htsrl.sources.source import Fields, lag_metrics


@dataclass(frozen=True)
class LearnerState:
    """What a learner works with, beside the batches."""

    parameters: ParameterRing
    slots: LearnerSlots
    updater: Updater
    envs: range
    """Those that it learns from itself: all, unless there are several replicas."""
    meetings: Meetings | None = None
    """Of replicas, where there are several."""


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
        parameters, slots, finisher = state.parameters, state.slots, state.updater.finisher
        self._experiment = experiment
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._source = shared.source
        self._parameters = parameters
        self._slots = slots
        self._outlets = outlets
        self._verify_storages = verify_storages
        self._numerics = OwnNumerics()
        self.finisher = finisher
        if finisher and shared.exchange.published_version == shared.exchange.restored_version:
            with self._numerics:
                finisher.add_activations()
        self._updater = state.updater
        self._envs = state.envs
        self._meetings = state.meetings
        self.gradient = state.updater.gradient
        self._beat = state.updater.gradient.beat
        self.update = version = shared.exchange.published_version
        self._num_updates = min(experiment.num_intervals, self._source.max_updates)
        self.finished = version == self._num_updates
        self._episodes = EpisodeMeter(tuple(shared.storages.spec.info_names), slots.episodes(version))
        self._env_errors = slots.env_errors(version)
        self._digest = DigestChain(slots.chain(version)) if version else self._first_link()

    def _first_link(self) -> DigestChain:
        begins_with = identity_of(self._experiment.init_from) + data_identity(self._experiment.source)
        return DigestChain.begin(self._parameters.acting_arrays(0), begins_with)

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
            self._check_place(fields)
            self.finisher.complete(self.update)  # the fields are views, and see it
            self._beat()
        spec, own = self._storages.spec, self._storages.batch_of_envs(self._envs, fields)
        verification_hash = self._verification_hash()
        # Lanes may end thousands in an update, of which the window shows the last.
        episodes = ended_episodes(fields, spec, None if self._outlets.reports_episodes else WINDOW)
        self._episodes.add(episodes)
        self._env_errors += int(fields["failures"].sum()) if "failures" in fields else 0
        if "active" in fields and not fields["active"].any():
            raise EnvironmentFailure(
                f"in update {self.update} there is nothing to learn from: every episode of the batch failed and was "
                "excluded (on_env_error=exclude)"
            )
        self._outlets.at_barrier(self.update)
        self._beat()
        metrics = self.learn(own) | lag_metrics(self.update, fields)
        if self._meetings is not None:
            metrics |= self._meetings.hold(self.update, self._updater.report)
        # Only now: other replicas complete their part of the batch themselves, and are done with it when they meet.
        batch_hash = hash_batch({name: fields[name] for name in spec.hashed_names}, spec.num_envs)
        self._beat()
        assert self._verification_hash() == verification_hash, (
            f"somebody wrote to {self._source.describe(self.update)} while the learner read it"
        )
        self.publish(metrics, batch_hash, self._source.provenance(self.update, fields), episodes)

    def _check_place(self, fields: Fields) -> None:
        """Only what lies in the rollout of the update's own number is finished."""
        own = self._storages.batch(self._storages.of_rollout(self.update))
        if not np.may_share_memory(fields["versions"], own["versions"]):
            raise ConfigError(
                f"update {self.update} learns from {self._source.describe(self.update)}, not from the rollout of its "
                "number; let the schedule say mixes_versions = True"
            )

    def waits_for(self) -> str:
        return self._source.waits_for(self.update)

    def learn(self, fields: Fields) -> dict[str, float]:
        return self._updater.learn(self.update, fields)

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
        metrics |= self._episodes.metrics() | self._averaged_gradients(version)
        metrics["train/n_updates"] = float(version)
        if self._experiment.tolerates_env_errors:
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

    def _averaged_gradients(self, version: int) -> dict[str, float]:
        """What learners that average gradients have sent so far: theirs, and what they are sent back, at each step."""
        learners = self._experiment.learners
        if learners == 1 or self._meetings is not None:
            return {}
        rounds = self._parameters.num_steps(version)
        return {"sync/rounds": float(rounds), "sync/bytes": 2.0 * learners * self._parameters.gradient_bytes * rounds}

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
        if self._meetings is not None:
            learner["replicas"] = self._meetings.arrays(version)
        return VersionState(self._parameters.acting_arrays(version), learner)

    def _verification_hash(self) -> BatchHash | None:
        """Of all fields of what it learns from, for those who do not trust the others."""
        if not self._verify_storages:
            return None
        own = self._storages.batch_of_envs(self._envs, self._source.fields(self.update))
        return hash_batch(own, len(self._envs))
