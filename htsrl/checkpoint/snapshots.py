"""Frozen versions of the policy, each in a file of its own, for those who evaluate them while training continues."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from htsrl.checkpoint.policy_file import policy_bytes
from htsrl.config import Config

if TYPE_CHECKING:
    from torch import nn


def is_due(version: int, batch_steps: int, every_steps: int) -> bool:
    """Whether this is the first version at or after a multiple of so many environment steps; version 0 never is."""
    return version > 0 and version * batch_steps // every_steps > (version - 1) * batch_steps // every_steps


def snapshots_in(run_dir: Path) -> Path:
    return run_dir / "snapshots"


def snapshot_file(run_dir: Path, version: int) -> Path:
    return snapshots_in(run_dir) / f"version-{version}.safetensors"


def video_snapshots_in(run_dir: Path) -> Path:
    """Of those that are filmed, which others may be than those that are evaluated."""
    return run_dir / "videos" / "snapshots"


def video_snapshot_file(run_dir: Path, version: int) -> Path:
    return video_snapshots_in(run_dir) / f"version-{version}.safetensors"


def snapshots_left(run_dir: Path) -> set[int]:
    """The versions that there are snapshots of; unfinished ones are removed."""
    folder = snapshots_in(run_dir)
    versions = set()
    for path in folder.iterdir() if folder.is_dir() else ():
        number = path.name.removeprefix("version-").removesuffix(".safetensors")
        if number.isascii() and number.isdigit() and path == snapshot_file(run_dir, int(number)):
            versions.add(int(number))
        elif path.suffix == ".tmp":
            path.unlink(missing_ok=True)
    return versions


def write_snapshot(path: Path, policy: nn.Module, version: int) -> None:
    """Whole under its name or not there; not forced to the disk, for after a power cut nobody asks for it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(policy_bytes(policy, version))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def in_order(*listeners: Callable[[int], None]) -> Callable[[int], None]:
    """One listener at barriers that tells several."""

    def tell_all(version: int) -> None:
        for listener in listeners:
            listener(version)

    return tell_all


class SnapshotWriter:
    """The learner's: which versions are written depends on the steps made and on nothing else."""

    def __init__(self, config: Config, module_of: Callable[[int], nn.Module]) -> None:
        assert config.placement.run_dir is not None
        self._run_dir = config.placement.run_dir.absolute()
        self._batch_steps = config.experiment.batch_steps
        wanted = ((config.placement.eval_every, snapshot_file), (config.placement.video_every, video_snapshot_file))
        self._wanted = [(every_steps, file) for every_steps, file in wanted if every_steps is not None]
        self._module_of = module_of

    def at_barrier(self, version: int) -> None:
        """Called before update `version` begins, while nobody may change what it reads."""
        for every_steps, file in self._wanted:
            if not is_due(version, self._batch_steps, every_steps):
                continue
            try:
                write_snapshot(file(self._run_dir, version), self._module_of(version), version)
            except OSError:
                pass  # a full disk; whoever waits for the file finds it missing, and says so
