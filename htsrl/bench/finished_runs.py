"""Runs of a benchmark that takes hours, kept one by one: what was interrupted goes on after the last that finished."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from htsrl.bench.learned import Learned
from htsrl.bench.record import write_whole
from htsrl.errors import ConfigError


@dataclass(frozen=True)
class FinishedRuns:
    """A file for each run in a folder; without a folder nothing is kept."""

    folder: Path | None

    def find(self, task: str, way: str, seed: int, command: str) -> Learned | None:
        """The run if it is there, made by the same command."""
        path = self._path(task, way, seed)
        if path is None or not path.exists():
            return None
        try:
            document = json.loads(path.read_text())
            found = Learned(**{**document, "curve": tuple(tuple(point) for point in document["curve"])})
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"{path} does not hold a run of this benchmark ({error}); remove it") from error
        if found.command != command:
            raise ConfigError(f"{path} holds a run of `{found.command}`, not of `{command}`; choose another folder")
        return found

    def put(self, task: str, run: Learned) -> None:
        path = self._path(task, run.way, run.seed)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(asdict(run)))

    def _path(self, task: str, way: str, seed: int) -> Path | None:
        return None if self.folder is None else self.folder / f"{task}-{way}-seed-{seed}.json"
