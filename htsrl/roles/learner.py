"""The learner: reads a full storage, improves the parameters, publishes the next version."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Drafts
from htsrl.algorithms.update import improve
from htsrl.config import Experiment
from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.shared import Shared
from htsrl.digest import BatchHash, DigestChain, hash_batch
from htsrl.errors import TrainingDiverged
from htsrl.metrics.episodes import EpisodeMeter
from htsrl.policies.policy import Policy
from htsrl.roles.report import UpdateReport
from htsrl.roles.role import Notify
from htsrl.schedules.schedule import lag, storage_of


class Learner:
    """Update u turns rollout u and version u into version u+1."""

    def __init__(
        self,
        experiment: Experiment,
        shared: Shared,
        parameters: ParameterRing,
        notify_executors: Notify,
        report: Callable[[UpdateReport], None],
        verify_storages: bool = False,
    ) -> None:
        self._experiment = experiment
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._schedule = shared.schedule
        self._parameters = parameters
        self._notify_executors = notify_executors
        self._report = report
        self._verify_storages = verify_storages
        self._drafts = Drafts(parameters, experiment.algorithm)
        self._episodes = EpisodeMeter()
        self._digest = DigestChain(self._version_arrays(version=0))
        self.update = 0
        self.finished = False

    def advance(self) -> bool:
        if self.finished or not self._exchange.rollout_is_complete(self.update):
            return False
        storage = storage_of(self.update)
        self._assert_made_by(self._schedule.acting_version(self.update), storage)
        fields = self._storages.batch(storage)
        batch_hash = hash_batch(fields, self._storages.spec.num_envs)
        self._episodes.add(fields["episode_returns"], fields["episode_lengths"])
        metrics = self.learn(storage)
        self._check_gradient(metrics)
        self._verify(storage, batch_hash)
        self._publish(metrics, batch_hash)
        return True

    def waits_for(self) -> str:
        late = [env for env, done in enumerate(self._exchange.completed_rollouts) if done <= self.update]
        return f"storage {storage_of(self.update)} (rollout {self.update}) from environments {late}"

    def learn(self, storage: int) -> dict[str, float]:
        batch = Batch.from_storage(
            self._storages.batch(storage), self._storages.spec.observation_names, self._parameters.slots.device
        )
        behaviour = self._parameters.module(self._schedule.acting_version(self.update))
        assert isinstance(behaviour, Policy)
        draft = self._drafts.begin(version=self.update + 1)
        return improve(self._experiment, self.update, draft, behaviour, batch)

    def _check_gradient(self, metrics: dict[str, float]) -> None:
        """Stop before a gradient that is not finite is published."""
        if math.isfinite(metrics.get("train/gradient_norm", 0.0)):
            return
        fields = self._storages.batch(storage_of(self.update))
        broken = [name for name, x in fields.items() if x.dtype.kind == "f" and not np.isfinite(x).all()]
        cause = (
            f"the batch holds values that are not finite in {', '.join(broken)}" if broken else "the batch is finite"
        )
        raise TrainingDiverged(
            f"the gradient of update {self.update} is not finite; {cause}. The policy before it is kept. Lower "
            "learning_rate or max_gradient_norm, or look at the scale of the rewards"
        )

    def _publish(self, metrics: dict[str, float], batch_hash: BatchHash) -> None:
        version = self.update + 1
        self._parameters.commit(version)
        link = self._digest.extend(self.update, self._version_arrays(version), batch_hash)
        steps = version * self._experiment.batch_steps
        metrics |= self._episodes.metrics() | {"hts/lag": float(lag(self._schedule, self.update))}
        metrics["train/n_updates"] = float(version)
        self.update = version
        self.finished = version == self._experiment.num_intervals or self._is_solved()
        # From here on executors may write into the storage that was read.
        self._exchange.published_version = version
        self._notify_executors()
        self._report(UpdateReport(version, steps, metrics, link, self.finished))

    def _is_solved(self) -> bool:
        goal = self._experiment.stop_at_return
        return goal is not None and self._episodes.window_is_full and self._episodes.mean_return >= goal

    def _version_arrays(self, version: int) -> list[NDArray[Any]]:
        """All that acting with a version depends on: its parameters, and its statistics if it has any."""
        slot, ring = self._parameters.slot_of(version), self._parameters
        arrays = [ring.slots[slot, 0].cpu().numpy(), ring.statistics[slot].cpu().numpy()]
        return [array for array in arrays if array.size]

    def _assert_made_by(self, version: int, storage: int) -> None:
        made_by = self._storages["versions"][storage]
        assert (made_by == version).all(), f"update {self.update} expected data of version {version}, got {made_by}"

    def _verify(self, storage: int, before: BatchHash) -> None:
        if self._verify_storages:
            after = hash_batch(self._storages.batch(storage), self._storages.spec.num_envs)
            assert after == before, f"somebody wrote to storage {storage} while update {self.update} read it"
            self._storages.poison(storage)
