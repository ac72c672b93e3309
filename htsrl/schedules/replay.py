"""An asynchronous run again: which version answered which request, and which rollouts fed which update.

Every version keeps its slot of the parameter ring until three updates later. In the run that was recorded each answer
was made while its version still had its slot (the actor looks, and answers again where it had not), so whoever makes
the same answers before the same updates never waits in vain: the recorded order is one that can be kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.exchange import Tickets
from htsrl.dataflow.versions import NUM_SLOTS
from htsrl.errors import RunFolderError
from htsrl.schedules.schedule import Asked, Words

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


@dataclass(frozen=True)
class Feeding:
    """What one update learned from."""

    update: int
    picks: Sequence[Pick]

    def to_json(self) -> str:
        return json.dumps({"update": self.update, "picks": [list(asdict(pick).values()) for pick in self.picks]})

    @classmethod
    def from_document(cls, document: Any) -> Feeding:
        return cls(int(document["update"]), [Pick(*pick) for pick in document["picks"]])


class Replay:
    """Every request is answered by the version that answered it before."""

    def __init__(self, feedings: Sequence[Feeding], num_envs: int, num_steps: int) -> None:
        self.feedings = feedings
        self._tickets: list[Words] = []
        self._versions: list[Words] = []
        answers = _answers_by_env(feedings, num_envs, num_steps)
        for answered in answers:
            table = np.array(sorted(answered), np.int64).reshape(-1, 2)
            self._tickets.append(table[:, 0])
            self._versions.append(table[:, 1])
        self.num_rollouts = [sum(pick.env == env for of in feedings for pick in of.picks) for env in range(num_envs)]

    def acting_versions(self, asked: Asked, published_version: int) -> Words:
        return np.array([self._version(env, t) for env, t in zip(asked.envs, asked.tickets, strict=True)], np.int64)

    def may_overwrite(self, update: int, answers: Words) -> bool:
        """Whether the oldest version in the ring has made all its answers, for the update takes its slot."""
        oldest = update + 1 - NUM_SLOTS
        return all(answers[env] >= last for env, last in self._last_tickets(oldest))

    def _version(self, env: int, ticket: int) -> int:
        place = int(np.searchsorted(self._tickets[env], ticket))
        return int(self._versions[env][place])

    def _last_tickets(self, version: int) -> Iterable[tuple[int, int]]:
        """The environments for which `version` or an older one ever answered, and the last time that it did."""
        for env, versions in enumerate(self._versions):
            count = int(np.searchsorted(versions, version, side="right"))
            if count:
                yield env, int(self._tickets[env][count - 1])


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
    *lines, _ = path.read_text().split("\n")
    try:
        feedings = [Feeding.from_document(json.loads(line)) for line in lines]
    except (ValueError, TypeError, KeyError) as error:
        raise RunFolderError(f"{path} is damaged: {error}") from error
    if [feeding.update for feeding in feedings] != list(range(len(feedings))):
        raise RunFolderError(f"{path} is damaged: its updates do not follow one another")
    return feedings


def _answers_by_env(feedings: Sequence[Feeding], num_envs: int, num_steps: int) -> list[list[tuple[int, int]]]:
    """By environment: tickets, and the versions that answered them."""
    tickets = Tickets(rows_per_rollout=num_steps + 1)
    answers: list[list[tuple[int, int]]] = [[] for _ in range(num_envs)]
    for pick in (pick for feeding in feedings for pick in feeding.picks):
        acting: NDArray[Any] = np.empty(num_steps, np.int64)
        for row, version in pick.acting:
            acting[row:] = version
        answers[pick.env] += [
            (tickets.to_act(pick.rollout, row), version) for row, version in enumerate(acting.tolist())
        ]
        answers[pick.env] += [(tickets.for_value(pick.rollout, row), version) for row, version in pick.values]
    return answers
