"""An asynchronous run again: which version answered which request, and which rollouts fed which update.

A version answers for the last time before the update after it begins. That can always be kept to: in the run that was
recorded, whatever version v answered had been asked for while v was the newest, so making these answers never takes a
version after v. It also keeps actors from being overtaken: version v has its slot of the parameter ring for longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from htsrl.dataflow.exchange import Exchange, Request, Tickets, Words
from htsrl.dataflow.queue import RolloutQueue, queue_arrays
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.storage import Storages
from htsrl.errors import NotReproduced
from htsrl.sources.provenance import BatchProvenance, RolloutProvenance
from htsrl.sources.queue import QueueSource
from htsrl.sources.recorded import RecordedChoice


class RecordedSchedule:
    """Every request is answered by the version that answered it before."""

    max_lag = None
    step_barrier = False
    mixes_versions = True
    repeats = True

    def __init__(
        self, provenances: Sequence[BatchProvenance], num_envs: int, num_steps: int, num_storages: int
    ) -> None:
        """`num_storages` is the length of the queue."""
        self.num_storages = num_storages
        self._provenances = provenances
        rollouts: list[list[RolloutProvenance]] = [[] for _ in range(num_envs)]
        for taken in (taken for provenance in provenances for taken in provenance.rollouts):
            rollouts[taken.env].append(taken)
        tickets = Tickets(rows_per_rollout=num_steps + 1)
        self._tickets = tickets
        self._answers = [Answers.of(of_env, tickets) for of_env in rollouts]
        self._num_rollouts = [len(of_env) for of_env in rollouts]

    def answering_version(self, request: Request, published_version: int) -> int:
        version = self._answers[request.env].version_for(request.ticket)
        if version is None:
            _, rows = self._tickets.rollout_and_row(np.array([request.ticket]))
            raise NotReproduced(
                f"environment {request.env} does not reproduce: in row {rows[0]} of its rollout {request.rollout} it "
                "asks for something that it did not ask for in the run that is replayed. `htsrl check-env` tells what "
                "differs",
                env=request.env,
            )
        return version

    def may_begin(self, rollout: int, published_version: int) -> bool:
        return True

    def num_rollouts(self, env: int, num_updates: int) -> int:
        return self._num_rollouts[env]

    def arrays(self, num_envs: int) -> list[ArraySpec]:
        return queue_arrays(num_envs, self.num_storages)

    def source(self, block: SharedArrays, storages: Storages, exchange: Exchange) -> QueueSource:
        choice = RecordedChoice(self._provenances, exchange, self._have_answered)
        return QueueSource(storages, RolloutQueue(block, exchange), choice)

    def _have_answered(self, update: int, answers: Words) -> bool:
        """Whether all versions before the newest have made their last answers."""
        return all(
            answer >= recorded.last_ticket_of(update - 1)
            for answer, recorded in zip(answers.tolist(), self._answers, strict=True)
        )


@dataclass(frozen=True)
class Answers:
    """Which versions answered an environment, as spans of tickets with one version each; later ones never have older
    versions."""

    first_tickets: Words
    last_tickets: Words
    versions: Words

    @classmethod
    def of(cls, rollouts: Sequence[RolloutProvenance], tickets: Tickets) -> Answers:
        spans = np.array([span for taken in rollouts for span in _spans(taken, tickets)], np.int64).reshape(-1, 3)
        return cls(*spans.T)

    def version_for(self, ticket: int) -> int | None:
        """None where it was not asked for."""
        place = int(np.searchsorted(self.first_tickets, ticket, side="right")) - 1
        if place < 0 or ticket > self.last_tickets[place]:
            return None
        is_known = not Tickets.is_for_value(ticket) or self.first_tickets[place] == ticket
        return int(self.versions[place]) if is_known else None

    def last_ticket_of(self, version: int) -> int:
        """The last that this version or an older one answered, 0 where there is none."""
        count = int(np.searchsorted(self.versions, version, side="right"))
        return int(self.last_tickets[count - 1]) if count else 0


def _spans(taken: RolloutProvenance, tickets: Tickets) -> Iterator[tuple[int, int, int]]:
    """First and last ticket, and version; a value is a span of its own, an action's span continues until the next."""
    changes = [
        *((tickets.to_act(taken.rollout, row), row, version) for row, version in taken.acting),
        *((tickets.for_value(taken.rollout, row), row, version) for row, version in taken.values),
    ]
    changes.sort()
    following_rows = [*(row for _, row, _ in changes[1:]), tickets.rows_per_rollout - 1]
    for (first, _, version), following_row in zip(changes, following_rows, strict=True):
        yield first, max(first, tickets.to_act(taken.rollout, following_row - 1)), version
