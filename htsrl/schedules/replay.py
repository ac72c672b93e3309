"""An asynchronous run again: which version answered which request, and which rollouts fed which update.

A version answers for the last time before the update after it begins. That can always be kept to: in the run that was
recorded, whatever version v answered had been asked for while v was the newest, so making these answers never takes a
version after v. It also keeps actors from being overtaken: version v has its slot of the parameter ring for longer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from htsrl.dataflow.exchange import Tickets, Words
from htsrl.errors import NotReproduced, RunFolderError

Changes = list[tuple[int, int]]
"""Rows, and the version from there on."""


@dataclass(frozen=True)
class Pick:
    """A rollout of one environment, and which versions answered in it."""

    env: int
    rollout: int
    acting: Changes
    values: Changes
    """The rows whose value was asked for, and which version said it."""

    @classmethod
    def of(cls, env: int, rollout: int, versions_T: Words, value_versions_T: Words) -> Pick:
        """From what the actors wrote beside their answers; -1 where no value was asked for."""
        first_rows = np.flatnonzero(np.diff(versions_T, prepend=-1))
        asked_rows = np.flatnonzero(value_versions_T >= 0)
        return cls(
            env,
            rollout,
            [(row, int(versions_T[row])) for row in first_rows.tolist()],
            [(row + 1, int(value_versions_T[row])) for row in asked_rows.tolist()],
        )

    @classmethod
    def from_document(cls, document: Any) -> Pick:
        env, rollout, acting, values = document
        return cls(int(env), int(rollout), _changes(acting), _changes(values))


@dataclass(frozen=True)
class Feeding:
    """What one update learned from."""

    update: int
    picks: Sequence[Pick]

    def to_json(self) -> str:
        return json.dumps({"update": self.update, "picks": [list(asdict(pick).values()) for pick in self.picks]})

    @classmethod
    def from_document(cls, document: Any) -> Feeding:
        return cls(int(document["update"]), [Pick.from_document(pick) for pick in document["picks"]])


class Replay:
    """Every request is answered by the version that answered it before."""

    def __init__(self, feedings: Sequence[Feeding], num_envs: int, num_steps: int) -> None:
        self.feedings = feedings
        picks: list[list[Pick]] = [[] for _ in range(num_envs)]
        for pick in (pick for feeding in feedings for pick in feeding.picks):
            picks[pick.env].append(pick)
        self._tickets = Tickets(rows_per_rollout=num_steps + 1)
        self._answers = [Answers.of(picks_of_env, self._tickets) for picks_of_env in picks]
        self.num_rollouts = [len(picks_of_env) for picks_of_env in picks]

    def answering_version(self, env: int, ticket: int, published_version: int) -> int:
        version = self._answers[env].version_for(ticket)
        if version is None:
            rollouts, rows = self._tickets.rollout_and_row(np.array([ticket]))
            raise NotReproduced(
                f"environment {env} does not reproduce: in row {rows[0]} of its rollout {rollouts[0]} it asks for "
                "something that it did not ask for in the run that is replayed. `htsrl check-env` tells what differs",
                env=env,
            )
        return version

    def may_begin(self, update: int, answers: Words) -> bool:
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
    def of(cls, picks: Sequence[Pick], tickets: Tickets) -> Answers:
        spans = np.array([span for pick in picks for span in _spans(pick, tickets)], np.int64).reshape(-1, 3)
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


def _spans(pick: Pick, tickets: Tickets) -> Iterator[tuple[int, int, int]]:
    """First and last ticket, and version; a value is a span of its own, an action's span goes on until the next."""
    changes = [
        *((tickets.to_act(pick.rollout, row), row, version) for row, version in pick.acting),
        *((tickets.for_value(pick.rollout, row), row, version) for row, version in pick.values),
    ]
    changes.sort()
    following_rows = [*(row for _, row, _ in changes[1:]), tickets.rows_per_rollout - 1]
    for (first, _, version), following_row in zip(changes, following_rows, strict=True):
        yield first, max(first, tickets.to_act(pick.rollout, following_row - 1)), version


def schedule_file(run_dir: Path) -> Path:
    """Where an asynchronous run writes down what it saw."""
    return run_dir / "schedule.jsonl"


def read_feedings(path: Path) -> list[Feeding]:
    """What a run wrote down of its schedule, oldest first; the last line may have been cut by a kill."""
    if not path.is_file():
        raise RunFolderError(
            f"{path.parent} holds no {path.name}; only runs with --schedule async write down what they saw, for the "
            "others repeat themselves from their seed"
        )
    *lines, _ = path.read_text(errors="replace").split("\n")
    feedings = []
    for number, line in enumerate(lines, start=1):
        try:
            feedings.append(Feeding.from_document(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise RunFolderError(f"{path} is damaged: line {number} is not what a run writes ({error})") from error
    if problem := _disorder(feedings):
        raise RunFolderError(f"{path} is damaged: {problem}")
    return feedings


def _disorder(feedings: Sequence[Feeding]) -> str | None:
    """Why no run can have seen this."""
    if [feeding.update for feeding in feedings] != list(range(len(feedings))):
        return "its updates do not follow one another"
    next_rollouts: Counter[int] = Counter()
    for feeding in feedings:
        for pick in feeding.picks:
            what = f"rollout {pick.rollout} of environment {pick.env}"
            if not 0 <= pick.env < len(feeding.picks) or pick.rollout != next_rollouts[pick.env]:
                return f"it is not the turn of {what} in update {feeding.update}"
            if [row for row, _ in pick.acting[:1]] != [0] or any(v > feeding.update for _, v in pick.acting):
                return f"{what} cannot have been made by versions {pick.acting} before update {feeding.update}"
            next_rollouts[pick.env] += 1
    return None


def _changes(document: Any) -> Changes:
    return [(int(row), int(version)) for row, version in document]
