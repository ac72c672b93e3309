"""Trials as they are proposed and as they end, and the journal that keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from htsrl.errors import RunFolderError
from htsrl.metrics.line_file import LineFile, Warn, warn_on_stderr
from htsrl.plain_files import parsed, read_plain

State = Literal["complete", "pruned", "failed"]
STATES = ("complete", "pruned", "failed")


@dataclass(frozen=True)
class RunOutcome:
    """One run of a trial."""

    seed: int
    value: float | None
    digest: str
    """After the last update that counts for the value."""


@dataclass(frozen=True)
class Trial:
    """How a trial ended; a function of the specification and the trials that it may know."""

    number: int
    settings: Mapping[str, Any]
    state: State
    value: float | None
    """Mean over seeds of the objective; of a pruned trial, at the step where it was given up."""
    at_steps: Mapping[int, float] = field(default_factory=dict)
    """The metric's mean over seeds at the steps where pruning looks."""
    runs: Sequence[RunOutcome] = ()
    reason: str = ""

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_document(cls, document: Any) -> Trial:
        """ValueError, TypeError or KeyError where it is none."""
        if document["state"] not in STATES or not isinstance(document["settings"], dict):
            raise ValueError(f"{document!r} is no trial")
        at_steps = {int(step): float(value) for step, value in document["at_steps"].items()}
        runs = tuple(RunOutcome(**run) for run in document["runs"])
        value = document["value"]
        known = {"at_steps": at_steps, "runs": runs, "value": None if value is None else float(value)}
        return cls(**{**document, **known, "number": int(document["number"])})


class Journal:
    """A line for each trial that ended, whole on the disk before anything follows from it.

    A kill at any instant loses at most the newest line, and that is made again from the trial's run folders.
    """

    def __init__(self, path: Path, warn: Warn = warn_on_stderr) -> None:
        self._file = LineFile(path, warn)

    def add(self, trial: Trial) -> None:
        self._file.write(json.dumps(trial.document()))
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> dict[int, Trial]:
    """The trials by number; the last line may have been cut by a kill, any other damage is an error."""
    if not path.exists():
        return {}
    try:
        *lines, _unfinished = read_plain(path).split(b"\n")
        trials = [Trial.from_document(parsed(line)) for line in lines]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunFolderError(
            f"{path} cannot be read: {error!r}; remove the damaged line, its trial is read from its runs again"
        ) from error
    return {trial.number: trial for trial in trials}
