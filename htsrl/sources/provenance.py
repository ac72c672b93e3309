"""Which rollouts an update learned from and which versions answered in them, and the file that keeps it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from htsrl.dataflow.exchange import Words
from htsrl.errors import RunFolderError
from htsrl.plain_files import parsed, read_plain

Changes = list[tuple[int, int]]
"""Rows, and the version from there on."""


@dataclass(frozen=True)
class RolloutProvenance:
    """A rollout of one environment, and which versions answered in it."""

    env: int
    rollout: int
    acting: Changes
    values: Changes
    """The rows whose value was asked for, and which version said it."""

    @classmethod
    def of(cls, env: int, rollout: int, versions_T: Words, value_versions_T: Words) -> RolloutProvenance:
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
    def from_document(cls, document: Any) -> RolloutProvenance:
        env, rollout, acting, values = document
        return cls(int(env), int(rollout), _changes(acting), _changes(values))


@dataclass(frozen=True)
class BatchProvenance:
    """What one update learned from."""

    update: int
    rollouts: Sequence[RolloutProvenance]

    def to_json(self) -> str:
        return json.dumps({"update": self.update, "picks": [list(asdict(taken).values()) for taken in self.rollouts]})

    @classmethod
    def from_document(cls, document: Any) -> BatchProvenance:
        return cls(int(document["update"]), [RolloutProvenance.from_document(taken) for taken in document["picks"]])


def schedule_file(run_dir: Path) -> Path:
    """Where an asynchronous run writes down what it saw."""
    return run_dir / "schedule.jsonl"


def read_provenances(path: Path) -> list[BatchProvenance]:
    """What a run wrote down of its schedule, oldest first; the last line may have been cut by a kill."""
    if not path.is_file():
        raise RunFolderError(
            f"{path.parent} holds no {path.name}; only runs with --schedule async write down what they saw, for the "
            "others repeat themselves from their seed"
        )
    try:
        *lines, _ = read_plain(path).split(b"\n")
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}") from error
    provenances = []
    for number, line in enumerate(lines, start=1):
        try:
            provenances.append(BatchProvenance.from_document(parsed(line)))
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise RunFolderError(f"{path} is damaged: line {number} is not what a run writes ({error})") from error
    if problem := _disorder(provenances):
        raise RunFolderError(f"{path} is damaged: {problem}")
    return provenances


def _disorder(provenances: Sequence[BatchProvenance]) -> str | None:
    """Why no run can have seen this."""
    if [provenance.update for provenance in provenances] != list(range(len(provenances))):
        return "its updates do not follow one another"
    next_rollouts: Counter[int] = Counter()
    for provenance in provenances:
        for taken in provenance.rollouts:
            what = f"rollout {taken.rollout} of environment {taken.env}"
            if not 0 <= taken.env < len(provenance.rollouts) or taken.rollout != next_rollouts[taken.env]:
                return f"it is not the turn of {what} in update {provenance.update}"
            if [row for row, _ in taken.acting[:1]] != [0] or any(v > provenance.update for _, v in taken.acting):
                return f"{what} cannot have been made by versions {taken.acting} before update {provenance.update}"
            next_rollouts[taken.env] += 1
    return None


def _changes(document: Any) -> Changes:
    return [(int(row), int(version)) for row, version in document]
