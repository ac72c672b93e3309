"""The learner of another replica than the first: makes its drafts, and leaves the rest to replica 0."""

from __future__ import annotations

from dataclasses import dataclass

from htsrl.dataflow.replicas import ReplicaWords
from htsrl.numerics import OwnNumerics
from htsrl.roles.role import Notify
from htsrl.roles.shared import Shared
from htsrl.roles.updater import Updater
from htsrl.sources.source import Fields


@dataclass(frozen=True)
class ReplicaPlace:
    """Which replica it is, and which environments are its own."""

    replica: int
    envs: range


class ReplicaLearner:
    """In update u it turns its version u and its rollout u into its draft of version u+1."""

    def __init__(
        self, place: ReplicaPlace, shared: Shared, updater: Updater, words: ReplicaWords, notify_learner: Notify
    ) -> None:
        """`shared` is that of all replicas."""
        self._replica = place.replica
        self._envs = place.envs
        self._storages = shared.storages
        self._exchange = shared.exchange
        self._source = shared.source
        self._updater = updater
        self._words = words
        self._notify_learner = notify_learner
        self._numerics = OwnNumerics()
        self.finisher, self.gradient = updater.finisher, updater.gradient
        if self.finisher and self._exchange.published_version == self._exchange.restored_version:
            with self._numerics:
                self.finisher.add_activations()

    @property
    def update(self) -> int:
        return self._exchange.published_version

    def advance(self) -> bool:
        update = self.update
        completed = self._exchange.completed_rollouts[self._envs.start : self._envs.stop]
        if self._words.has_drafted(self._replica, update + 1) or completed.min() <= update:
            return False
        with self._numerics:
            self.make_draft(update)
        self._notify_learner()
        return True

    def make_draft(self, update: int) -> None:
        if self.finisher:
            self.finisher.complete(update)
            self.gradient.beat()
        self.learn(update, self._storages.batch_of_envs(self._envs, self._source.fields(update)))
        self._words.note_draft(self._replica, update + 1, self._updater.report)

    def learn(self, update: int, fields: Fields) -> None:
        self._updater.learn(update, fields)

    def waits_for(self) -> str:
        return f"version {self.update + 1}, or rollout {self.update} of environments {list(self._envs)}"
