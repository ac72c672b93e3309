"""Runs of a benchmark that takes hours, kept one by one: what was interrupted continues where it was."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from htsrl.config import Config
from htsrl.config.file import to_json
from htsrl.errors import ConfigError
from htsrl.runs.folder import RunFolder
from htsrl_bench.learned import Learned
from htsrl_bench.record import write_whole

PROBE = ".probe"


@dataclass(frozen=True)
class FinishedRuns:
    """A file for each run in a folder, and the folder of the one under way; without a folder nothing is kept."""

    folder: Path | None

    def prepare(self) -> None:
        """ConfigError where nothing could be kept: better now than after the first run."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / PROBE, "")
            (self.folder / PROBE).unlink()
        except OSError as error:
            raise ConfigError(f"finished_runs={self.folder} takes no files ({error}); name another folder") from error

    @contextmanager
    def room_for(self, name: str) -> Iterator[Path]:
        """A folder for a run until it has finished: of one that is interrupted it stays."""
        if self.folder is None:
            with TemporaryDirectory(prefix="htsrl-bench-") as folder:
                yield Path(folder) / "run"
        else:
            yield self.folder / name

    def place_of(self, name: str) -> RunFolder | None:
        """Where a run that was interrupted would be."""
        return None if self.folder is None else RunFolder(self.folder / name)

    def find(self, name: str, config: Config) -> Learned | None:
        """The run of that name, if it is there; ConfigError where another configuration made it."""
        if self.folder is None or not (path := self.folder / f"{name}.json").exists():
            return None
        try:
            document = json.loads(path.read_text())
            found, made_with = Learned.from_document(document["run"]), document["made_with"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"{path} does not hold a run of this benchmark ({error}); remove it") from error
        if made_with != _conditions(config):
            raise ConfigError(f"{path} holds a run with other settings or another torch; choose another folder")
        return found

    def put(self, name: str, config: Config, run: Learned) -> None:
        """In place of its folder. On a full disk the benchmark continues, for its record still has the run."""
        if self.folder is None:
            return
        path = self.folder / f"{name}.json"
        try:
            write_whole(path, json.dumps({"made_with": _conditions(config), "run": asdict(run)}))
        except OSError as error:
            print(f"{path} could not be kept ({error}); the benchmark continues without", file=sys.stderr)
        else:
            shutil.rmtree(self.folder / name, ignore_errors=True)


def _conditions(config: Config) -> dict[str, Any]:
    """What must be the same for runs to be compared. Of the placement that is the backend: the rest, to which every
    version of htsrl adds, changes no result."""
    experiment, versions = json.loads(to_json(config))["experiment"], {x: version(x) for x in ("torch", "numpy")}
    return {"experiment": experiment, "backend": config.placement.backend, **versions}
