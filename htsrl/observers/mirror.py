"""Checkpoints at any address that fsspec knows, beside those in the run's folder: an observer copies them.

`htsrl train ... --observer htsrl.observers.mirror:Mirror` copies to the address in HTSRL_MIRROR;
`python -m htsrl.observers.mirror ADDRESS/NAME RUN_DIR` makes a folder of it that `htsrl resume` continues from.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from htsrl.checkpoint.files import NAME, checkpoints_in, newest_first
from htsrl.checkpoint.manifest import MANIFEST_FILE
from htsrl.errors import ConfigError, HtsrlError, RunFolderError
from htsrl.observers.observer import CheckpointEvent, ObservedRun, Observer

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

ADDRESS_VARIABLE = "HTSRL_MIRROR"
CHECKPOINTS = "checkpoints"
NEVER_COPIED = (".", "events.out.tfevents")
"""Files in the making, and TensorBoard's, which can be made again."""


class Mirror(Observer):
    """After every checkpoint, the run's files and then the checkpoint, whose manifest comes last."""

    def __init__(self, address: str | None = None) -> None:
        """`address` is a folder for runs, such as `s3://bucket/runs`; None: that in HTSRL_MIRROR."""
        given = address or os.environ.get(ADDRESS_VARIABLE)
        if not given:
            raise ConfigError(f"a mirror needs an address, such as {ADDRESS_VARIABLE}=s3://bucket/runs")
        self._files, self._root = _opened(given)

    def on_start(self, run: ObservedRun) -> None:
        self._run_dir = run.run_dir
        self._place = f"{self._root}/{run.run_dir.name}"

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        try:
            self._copy(event.path)
        except OSError as error:  # the run has its own, and the next checkpoint may find the network again
            print(f"warning: checkpoint {event.version} was not copied to {self._place}: {error}", file=sys.stderr)

    def on_end(self, result: Any) -> None:
        for version, newest in newest_first(checkpoints_in(self._run_dir))[:1]:
            self.on_checkpoint(CheckpointEvent(version, newest))

    def _copy(self, checkpoint: Path) -> None:
        # The files first: they then hold all that led to the checkpoint, and a resume leaves out what came after.
        for path in sorted(self._run_dir.iterdir()):
            if path.is_file() and not path.name.startswith(NEVER_COPIED):
                self._put(path, f"{self._place}/{path.name}")
        final = f"{self._place}/{CHECKPOINTS}/{checkpoint.name}"
        for path in sorted(checkpoint.iterdir(), key=lambda path: (path.name == MANIFEST_FILE, path.name)):
            self._put(path, f"{final}/{path.name}")
        here = {path.name for _, path in newest_first(checkpoint.parent)}
        for name in _names(self._files, f"{self._place}/{CHECKPOINTS}"):
            if name not in here:
                self._files.rm(f"{self._place}/{CHECKPOINTS}/{name}", recursive=True)

    def _put(self, path: Path, to: str) -> None:
        self._files.makedirs(to.rpartition("/")[0], exist_ok=True)
        self._files.put_file(str(path), to)


def fetch(address: str, run_dir: Path) -> Path:
    """The run at an address as a new folder, whole or not at all. What is damaged on the way is found when the run is
    resumed."""
    files, place = _opened(address)
    if run_dir.exists():
        raise ConfigError(f"{run_dir} exists already; name a new folder")
    if "config.json" not in _names(files, place):
        raise RunFolderError(f"{address} is not the copy of a run: it holds no config.json")
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    begun = Path(mkdtemp(prefix=f".{run_dir.name}.", dir=run_dir.parent))
    try:
        _fetch_files(files, place, begun)
        for name in _names(files, f"{place}/{CHECKPOINTS}"):
            if NAME.fullmatch(name):
                folder = checkpoints_in(begun) / name
                folder.mkdir(parents=True, mode=0o700)
                _fetch_files(files, f"{place}/{CHECKPOINTS}/{name}", folder)
        return begun.rename(run_dir)
    except BaseException:
        shutil.rmtree(begun, ignore_errors=True)
        raise


def _fetch_files(files: AbstractFileSystem, place: str, folder: Path) -> None:
    for name in _names(files, place):
        if files.isfile(f"{place}/{name}"):
            (folder / name).write_bytes(files.cat_file(f"{place}/{name}"))


def _names(files: AbstractFileSystem, place: str) -> list[str]:
    """What lies there, by its last name alone: no address leads out of a folder."""
    if not files.isdir(place):
        return []
    names = (PurePosixPath(path).name for path in files.ls(place, detail=False))
    return sorted(name for name in names if name not in ("", ".", ".."))


def _opened(address: str) -> tuple[AbstractFileSystem, str]:
    try:
        from fsspec.core import url_to_fs

        files, root = url_to_fs(address, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"the address {address} cannot be opened: {error}") from error
    return files, root.rstrip("/")


def main(arguments: Sequence[str]) -> str | None:
    """Of the command; returns what went wrong."""
    if len(arguments) != 2:
        return "usage: python -m htsrl.observers.mirror ADDRESS/NAME RUN_DIR"
    try:
        print(fetch(arguments[0], Path(arguments[1])))
    except (HtsrlError, OSError) as error:
        return f"error: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
