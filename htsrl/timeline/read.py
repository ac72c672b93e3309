"""Reads `timeline.json` of any folder, also of a stranger's: every field is checked, and nothing is believed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from htsrl.errors import RunFolderError
from htsrl.plain_files import read_document
from htsrl.timeline.document import FILE_NAME, FORMAT
from htsrl.timeline.kinds import KINDS, Kind

ROLES = ("executor", "actor", "learner", "gradient worker", "environment", "inline")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Span:
    """What a worker did, in seconds since the run's start."""

    kind: Kind
    start: float
    seconds: float
    subject: int | None


@dataclass(frozen=True)
class Worker:
    """A process, or a thread that steps an environment."""

    name: str
    role: str
    starts: int
    started: float
    as_of: float
    cpu_seconds: float
    spans: Sequence[Span]
    totals: Mapping[Kind, float]

    @property
    def seconds(self) -> float:
        return max(self.as_of - self.started, 0.0)


@dataclass(frozen=True)
class Environment:
    """One environment, over the whole run."""

    env: int
    worker: str
    steps: int
    seconds: float
    max_seconds: float
    reset_seconds: float
    times_slowest: int

    @property
    def total_seconds(self) -> float:
        """Inside of its steps and resets."""
        return self.seconds + self.reset_seconds

    @property
    def mean_seconds(self) -> float:
        """A step and its share of the resets."""
        return self.total_seconds / max(self.steps, 1)


@dataclass(frozen=True)
class Event:
    """Something that happened to a worker."""

    what: str
    time: float
    worker: str


@dataclass(frozen=True)
class Timeline:
    """What `timeline.json` tells."""

    written_at: float
    cores: int
    workers: Sequence[Worker]
    environments: Sequence[Environment]
    events: Sequence[Event]


def read_timeline(run_dir: Path) -> Timeline:
    """RunFolderError where there is none, or none that htsrl can have written."""
    path = run_dir / FILE_NAME
    if run_dir.is_dir() and not path.exists():
        raise RunFolderError(
            f"{path} does not exist: the run was trained with --no-timeline, or has only just begun; "
            "`htsrl train` and `htsrl resume` write it every few seconds"
        )
    try:
        return _timeline(read_document(path))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}") from error


def _timeline(document: Any) -> Timeline:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"it is not a timeline of format {FORMAT}; read it with the htsrl that wrote it")
    return Timeline(
        written_at=_number(document, "written_at"),
        cores=_whole(document, "cores"),
        workers=_each(document, "workers", _worker),
        environments=_each(document, "environments", _environment),
        events=_each(document, "events", _event),
    )


def _worker(given: Any) -> Worker:
    totals = _typed(given, "totals", dict)
    return Worker(
        name=_typed(given, "name", str),
        role=_one_of(given, "role", ROLES),
        starts=_whole(given, "starts"),
        started=_number(given, "started"),
        as_of=_number(given, "as_of"),
        cpu_seconds=_number(given, "cpu_seconds"),
        spans=_each(given, "spans", _span),
        totals={KINDS[_one_of({"kind": kind}, "kind", KINDS)]: _number(totals, kind) for kind in totals},
    )


def _span(given: Any) -> Span:
    if not isinstance(given, list) or len(given) != 4:
        raise ValueError(f"{_short(given)} is not a span; it is [kind, start, duration, subject]")
    fields = dict(zip(("kind", "start", "duration", "subject"), given, strict=True))
    subject = None if fields["subject"] is None else _whole(fields, "subject")
    kind = KINDS[_one_of(fields, "kind", KINDS)]
    return Span(kind, _number(fields, "start"), _number(fields, "duration"), subject)


def _environment(given: Any) -> Environment:
    return Environment(
        env=_whole(given, "env"),
        worker=_typed(given, "worker", str),
        steps=_whole(given, "steps"),
        seconds=_number(given, "seconds"),
        max_seconds=_number(given, "max_seconds"),
        reset_seconds=_number(given, "reset_seconds"),
        times_slowest=_whole(given, "times_slowest"),
    )


def _event(given: Any) -> Event:
    if not isinstance(given, list) or len(given) != 3:
        raise ValueError(f"{_short(given)} is not an event; it is [what, time, worker]")
    fields = dict(zip(("what", "time", "worker"), given, strict=True))
    return Event(_typed(fields, "what", str), _number(fields, "time"), _typed(fields, "worker", str))


def _each(given: Any, name: str, read: Callable[[Any], Item]) -> list[Item]:
    return [read(item) for item in _typed(given, name, list)]


def _typed(given: Any, name: str, kind: type[Item]) -> Item:
    value = given.get(name) if isinstance(given, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name}={_short(value)} is not a {kind.__name__}")
    return value


def _number(given: Any, name: str) -> float:
    value = given.get(name) if isinstance(given, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
        raise ValueError(f"{name}={_short(value)} is not a number of seconds")
    return float(value)


def _whole(given: Any, name: str) -> int:
    value = _typed(given, name, int)
    if not 0 <= value < 2**63:
        raise ValueError(f"{name}={_short(value)} is not a whole number from 0 on")
    return value


def _one_of(given: Any, name: str, choices: Sequence[str] | Mapping[str, Any]) -> str:
    value = _typed(given, name, str)
    if value not in choices:
        raise ValueError(f"{name}={_short(value)} is none of {', '.join(choices)}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
