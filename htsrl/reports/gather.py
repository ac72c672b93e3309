"""Reads the runs, groups and sweeps that a report is about, also of strangers: nothing that they name is imported."""

from __future__ import annotations

import glob
import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from htsrl.config import Config
from htsrl.config.algorithm_settings import NamedAlgorithm, algorithm_name
from htsrl.config.command_line import train_command
from htsrl.config.file import CALLABLE, to_json
from htsrl.digest import read_links
from htsrl.errors import ConfigError, HtsrlError, RunFolderError
from htsrl.metrics.returns import read_curve
from htsrl.plain_files import read_document
from htsrl.runs.folder import RunFolder
from htsrl.statistics.curve import Curve
from htsrl.timeline.read import read_timeline

MAX_DEPTH = 5
MAX_RUNS = 2000
NO_VARIANT = ("seed", "env", "env_args")


@dataclass(frozen=True)
class ReportedRun:
    """One run, as its folder has it."""

    path: Path
    task: str
    """The environment with its arguments."""
    algo: str
    schedule: str
    seed: int
    settings: Mapping[str, Any]
    """Of the experiment by flat name, without what tasks and seeds differ in."""
    curve: Curve
    steps: int
    updates: int
    digest: str
    command: str
    is_complete: bool
    steps_per_second: float | None
    seconds: float
    fingerprint: Mapping[str, Any]
    timeline: Mapping[str, float]
    """Seconds by kind, over all workers; empty where the run kept none."""


@dataclass(frozen=True)
class ReportedSweep:
    """One sweep, as its folder has it."""

    path: Path
    trials: Sequence[Mapping[str, Any]]
    best: Mapping[str, Any] | None
    command: str | None
    importance: Mapping[str, float]


@dataclass(frozen=True)
class Gathered:
    """All that a report is about."""

    runs: Sequence[ReportedRun]
    sweeps: Sequence[ReportedSweep]
    skipped: Sequence[str]
    """What could not be read, and why."""


def gather(patterns: Sequence[str], watch: Callable[[int], None] = lambda num_read: None) -> Gathered:
    """Folders of runs, groups and sweeps, folders that hold such, and globs of them; each run once. `watch` is told how
    many were read."""
    runs: dict[Path, ReportedRun] = {}
    sweeps: dict[Path, ReportedSweep] = {}
    skipped: list[str] = []
    for folder in _folders(patterns):
        for path in _units(folder):
            watch(len(runs) + len(sweeps))
            try:
                if (path / "sweep.json").is_file():
                    sweeps[path.absolute()] = _read_sweep(path)
                elif path.absolute() not in runs:
                    runs[path.absolute()] = read_run(path)
            except HtsrlError as error:
                skipped.append(f"{path}: {error}")
    if not runs and not sweeps:
        reasons = "".join(f"\n  {line}" for line in skipped)
        raise ConfigError(f"there is no run to report in {', '.join(patterns) or 'nothing'}{reasons}")
    return Gathered(list(runs.values()), list(sweeps.values()), skipped)


def read_run(path: Path) -> ReportedRun:
    """RunFolderError or ConfigError where it is none, or has no curve yet."""
    folder = RunFolder.existing(path)
    config = folder.load_config()
    curve = read_curve(folder.metrics_file)
    if not curve or not all(math.isfinite(x) for point in curve for x in point):
        raise RunFolderError("no episode has ended, so there is no learning curve yet")
    links = read_links(path)
    result = _result(folder)
    experiment = json.loads(to_json(config))["experiment"]
    return ReportedRun(
        path=path,
        task=" ".join([str(experiment["env"]), *(f"{k}={v}" for k, v in experiment["env_args"].items())]),
        algo=algorithm_name(config.experiment.algorithm),
        schedule=config.experiment.schedule,
        seed=config.experiment.seed,
        settings=dict(_flat({name: x for name, x in experiment.items() if name not in NO_VARIANT})),
        curve=curve,
        steps=len(links) * config.experiment.batch_steps,
        updates=len(links),
        digest=links[-1].chain,
        command=_command(path, config),
        is_complete=bool(result) and not result.get("interrupted", True),
        steps_per_second=_number(result.get("steps_per_second")),
        seconds=curve[-1][2],
        fingerprint=_fingerprint(folder),
        timeline=_timeline(path),
    )


def _folders(patterns: Sequence[str]) -> Iterator[Path]:
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            yield path
            continue
        found = sorted(Path(name) for name in glob.glob(pattern) if Path(name).is_dir())
        if not found:
            raise ConfigError(f"{pattern} is no folder, and no pattern of any; name folders of runs")
        yield from found


def _units(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Runs and sweeps in a folder; a sweep stands for its trials, with the runs of its best."""
    if (folder / "sweep.json").is_file():
        yield folder
        yield from _best_runs(folder)
    elif (folder / "config.json").is_file():
        yield folder
    elif depth < MAX_DEPTH:
        for inner in sorted(folder.iterdir()):
            if inner.is_dir() and not inner.is_symlink():
                yield from _units(inner, depth + 1)


def _best_runs(folder: Path) -> Iterator[Path]:
    try:
        best = _read_sweep(folder).best
    except HtsrlError:
        return
    if best is not None and isinstance(number := best.get("number"), int):
        trial = folder / f"trial-{number:03}"
        yield from sorted(path for path in trial.glob("seed-*") if (path / "config.json").is_file())


def _read_sweep(path: Path) -> ReportedSweep:
    try:
        result = read_document(path / "sweep_result.json")
        analysis = read_document(path / "analysis.json")
        trials = [{**trial, "settings": dict(trial["settings"])} for trial in result["trials"]]
        best = None if result["best"] is None else dict(result["best"])
        shares = {str(name): float(share) for name, share in dict(analysis["importance"]).items()}
        command = None if result["command"] is None else str(result["command"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunFolderError(f"the sweep has no result that can be read ({error}); did it end?") from error
    return ReportedSweep(path, trials, best, command, shares)


def _result(folder: RunFolder) -> Mapping[str, Any]:
    try:
        return folder.result() if folder.has_result() else {}
    except RunFolderError:
        return {}


def _fingerprint(folder: RunFolder) -> Mapping[str, Any]:
    try:
        return asdict(folder.fingerprint())
    except RunFolderError:
        return {}


def _timeline(run_dir: Path) -> dict[str, float]:
    """Totals by kind, over all workers; nothing where there is no timeline that htsrl can have written."""
    totals: dict[str, float] = {}
    try:
        workers = read_timeline(run_dir).workers
    except RunFolderError:
        return {}
    for worker in workers:
        for kind, seconds in worker.totals.items():
            totals[kind.label] = totals.get(kind.label, 0.0) + seconds
    return totals


def _command(path: Path, config: Config) -> str:
    experiment = config.experiment
    is_plain = isinstance(experiment.env, str) and not experiment.env.startswith(CALLABLE)
    if not is_plain or isinstance(experiment.algorithm, NamedAlgorithm):
        return shlex.join(["htsrl", "train", "--config", f"{path.name}/config.json"])
    return train_command(experiment)


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, "" if name in ("algorithm", "network") else f"{name}.")
        else:
            yield ("algo" if name == "name" else f"{prefix}{name}"), value


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None
