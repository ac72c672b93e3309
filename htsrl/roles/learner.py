"""The learner: reads a full storage, improves the parameters, publishes the next version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Drafts
from htsrl.algorithms.gradient import Gradient
from htsrl.algorithms.update import improve
from htsrl.config import Experiment
from htsrl.dataflow.learner_slots import LearnerSlots
from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.shared import Shared
from htsrl.dataflow.versions import slot_of
from htsrl.digest import BatchHash, DigestChain, hash_batch
from htsrl.errors import TrainingDiverged
from htsrl.kill_points import reach
from htsrl.metrics.episodes import EpisodeMeter
from htsrl.policies.policy import Policy
from htsrl.roles.completion import Completion
from htsrl.roles.feed import Fields, feed_of, lag_metrics
from htsrl.roles.report import UpdateReport
from htsrl.roles.role import Notify
from htsrl.schedules.replay import Feeding


class Learner:
    """Update u turns a batch and version u into version u+1."""

    def __init__(
        self,
        experiment: Experiment,
        shared: Shared,
        parameters: ParameterRing,
        slots: LearnerSlots,
        gradient: Gradient,
        completion: Completion | None,
        notify_executors: Notify,
        report: Callable[[UpdateReport], None],
        at_barrier: Callable[[int], None],
        verify_storages: bool = False,
    ) -> None:
        self._experiment = experiment
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._feed = feed_of(shared)
        self._parameters = parameters
        self._slots = slots
        self._notify_executors = notify_executors
        self._report = report
        self._at_barrier = at_barrier
        self._verify_storages = verify_storages
        self.completion = completion
        if completion and shared.exchange.published_version == shared.exchange.restored_version:
            completion.add_activations()
        self._drafts = Drafts(parameters, experiment.algorithm, gradient)
        self.update = version = shared.exchange.published_version
        self._num_updates = min(experiment.num_intervals, self._feed.most_updates)
        self.finished = version == self._num_updates
        self._episodes = EpisodeMeter(*slots.episodes(version))
        self._env_errors = slots.env_errors(version)
        self._digest = DigestChain(slots.chain(version)) if version else DigestChain.begin(self._version_arrays(0))

    def advance(self) -> bool:
        if self.finished or not self._feed.is_ready(self.update):
            return False
        self._feed.settle(self.update)
        fields = self._feed.fields(self.update)
        self._feed.check_versions(self.update, fields)
        if self.completion:
            self.completion.complete(self.update)  # the fields are views, and see it
        spec = self._storages.spec
        hashed = {name: array for name, array in fields.items() if name not in spec.activation_names}
        batch_hash, witness = hash_batch(hashed, spec.num_envs), self._witness()
        self._episodes.add(fields["episode_returns"], fields["episode_lengths"])
        self._env_errors += int(fields["failures"].sum()) if "failures" in fields else 0
        self._at_barrier(self.update)
        metrics = self._learn_or_explain(fields) | lag_metrics(self.update, fields)
        assert self._witness() == witness, (
            f"somebody wrote to {self._feed.source(self.update)} while the learner read it"
        )
        self._publish(metrics, batch_hash, self._feed.feeding(self.update, fields))
        return True

    def waits_for(self) -> str:
        return self._feed.waits_for(self.update)

    def learn(self, fields: Fields) -> dict[str, float]:
        batch = Batch.from_storage(fields, self._storages.spec.batch_names, self._parameters.slots.device)
        version = self._feed.behaviour_version(self.update)
        behaviour = None if version is None else self._parameters.module(version)
        assert behaviour is None or isinstance(behaviour, Policy)
        draft = self._drafts.begin(version=self.update + 1)
        return improve(self._experiment, self.update, draft, behaviour, batch)

    def _learn_or_explain(self, fields: Fields) -> dict[str, float]:
        try:
            return self.learn(fields)
        except TrainingDiverged as error:
            broken = [name for name, x in fields.items() if x.dtype.kind == "f" and not np.isfinite(x).all()]
            finite = f"holds values that are not finite in {', '.join(broken)}" if broken else "is finite"
            raise TrainingDiverged(
                f"in update {self.update}, {error}; the batch {finite}. The policy before it is kept. Lower "
                "learning_rate or max_gradient_norm, or look at the scale of the rewards"
            ) from error

    def _publish(self, metrics: dict[str, float], batch_hash: BatchHash, feeding: Feeding | None) -> None:
        version = self.update + 1
        reach("before a commit")
        self._parameters.commit(version)
        link = self._digest.extend(self.update, self._version_arrays(version), batch_hash)
        self._slots.write(version, link.chain, self._episodes.returns, self._episodes.lengths, self._env_errors)
        self._feed.release(self.update)
        steps = version * self._experiment.batch_steps
        metrics |= self._episodes.metrics()
        metrics["train/n_updates"] = float(version)
        if self._experiment.on_env_error == "truncate":
            metrics["rollout/env_errors"] = float(self._env_errors)
        self.update = version
        self.finished = version == self._num_updates or self._is_solved()
        # Before it is published: of a learner that is killed in between, the supervisor publishes what was reported;
        # the other way round a report could be missing.
        self._report(UpdateReport(version, steps, metrics, link, self.finished, feeding.to_json() if feeding else None))
        reach("before a publish")
        # From here on executors may write into the storage that was read.
        self._exchange.published_version = version
        reach("after a publish")
        self._notify_executors()

    def _is_solved(self) -> bool:
        goal = self._experiment.stop_at_return
        return goal is not None and self._episodes.has_reached(goal)

    def _version_arrays(self, version: int) -> list[NDArray[Any]]:
        """All that acting with a version depends on: its parameters, and its statistics if it has any."""
        slot, ring = slot_of(version), self._parameters
        arrays = [ring.slots[slot, 0].cpu().numpy(), ring.statistics[slot].cpu().numpy()]
        return [array for array in arrays if array.size]

    def _witness(self) -> BatchHash | None:
        """Of all fields of the batch, for those who do not trust the others."""
        if not self._verify_storages:
            return None
        return hash_batch(self._feed.fields(self.update), self._storages.spec.num_envs)
