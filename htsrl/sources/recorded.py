"""What a recorded run learned from: its rollouts, in its order, and not before its versions have answered as then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from htsrl.dataflow.exchange import Exchange, Words
from htsrl.dataflow.queue import Rollout
from htsrl.sources.provenance import BatchProvenance


class RecordedChoice:
    """An update takes from the queue what it took in the run that was recorded."""

    def __init__(
        self,
        provenances: Sequence[BatchProvenance],
        exchange: Exchange,
        have_answered: Callable[[int, Words], bool],
    ) -> None:
        """`have_answered` is whether, going by the words of the actors, an update can begin as far as they go."""
        self._provenances = provenances
        self._exchange = exchange
        self._have_answered = have_answered
        self.max_updates = len(provenances)

    def choose(self, update: int) -> list[Rollout] | None:
        if update == self.max_updates:
            return None
        rollouts = [Rollout(taken.env, taken.rollout) for taken in self._provenances[update].rollouts]
        are_complete = all(self._exchange.completed_rollouts[rollout.env] > rollout.number for rollout in rollouts)
        return rollouts if are_complete and self._have_answered(update, self._exchange.answers) else None
