"""Writing a dataset: under a temporary name until all of it is on disk, so that a folder is whole or not there."""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.array_file import to_pieces
from htsrl.datasets.dataset import Dataset
from htsrl.datasets.manifest import DATA_FILE, MANIFEST_FILE, Manifest
from htsrl.datasets.rules import check_arrays
from htsrl.errors import DatasetError
from htsrl.processes.kill_points import kill_point
from htsrl.processes.liveness import is_another_process
from htsrl.spaces import Interface

PART_BYTES = 4 << 20


@dataclass(frozen=True)
class Recorded:
    """Episodes in memory, before they are a dataset."""

    interface: Interface
    episode_lengths: Sequence[int]
    arrays: Mapping[str, NDArray[Any]]
    env: Mapping[str, Any]
    origins: Sequence[Mapping[str, Any]]

    def as_dataset(self, shown: str) -> Dataset:
        """With the identity that it has in any folder; DatasetError where it breaks a rule."""
        pieces = to_pieces(self.arrays)
        sha256 = hashlib.sha256()
        for piece in pieces:
            sha256.update(piece)
        plain = Interface(
            self.interface.observation_space, self.interface.action_space, self.interface.masks_in_info, squashes=False
        )
        num_bytes = sum(map(len, pieces))
        lengths = tuple(map(int, self.episode_lengths))
        manifest = Manifest(plain, lengths, self.env, self.origins, num_bytes, sha256.hexdigest())
        try:
            check_arrays(manifest, self.arrays)
        except ValueError as error:
            raise DatasetError(f"{shown} {error}") from error
        return Dataset(manifest, self.arrays, shown)


def check_can_be_made(folder: Path) -> None:
    """Before hours are spent on what it is to hold."""
    if os.path.lexists(folder):
        raise DatasetError(f"{folder} exists already; choose another folder for the dataset, or remove it")
    if not folder.absolute().parent.is_dir():
        raise DatasetError(f"{folder.absolute().parent}, where the dataset is to be, is not there; make it first")


def write_dataset(dataset: Dataset, folder: Path) -> None:
    """Make the folder; a kill or a full disk leaves none, and the same dataset has the same bytes everywhere."""
    check_can_be_made(folder)
    folder = folder.absolute()
    temporary = folder.with_name(f".tmp-{folder.name}-{os.getpid()}")
    for left in _left_behind(folder):
        shutil.rmtree(left, ignore_errors=True)
    try:
        temporary.mkdir()
        _write(temporary / DATA_FILE, to_pieces(dataset.arrays))
        _write(temporary / MANIFEST_FILE, [memoryview(dataset.manifest.to_bytes())])
        _sync(temporary)
        kill_point("dataset written")
        os.rename(temporary, folder)
        _sync(folder.parent)
    except OSError as error:
        raise DatasetError(
            f"cannot write the dataset {folder}: {error.strerror}; make room there or choose another folder"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def merged(datasets: Sequence[Dataset]) -> Dataset:
    """All episodes, one dataset after another; DatasetError where their spaces or fields differ."""
    first = datasets[0]
    for other in datasets[1:]:
        ours, theirs = first.interface, other.interface
        same_spaces = (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
        if not same_spaces or first.arrays.keys() != other.arrays.keys():
            raise DatasetError(
                f"{other.shown} has other spaces or fields than {first.shown} ({theirs.observation_space}, "
                f"{theirs.action_space}, {sorted(other.arrays)}); only datasets that are alike can be put together"
            )
    same_env = all(other.manifest.env == first.manifest.env for other in datasets)
    recorded = Recorded(
        first.interface,
        [length for of in datasets for length in of.manifest.episode_lengths],
        {name: np.concatenate([of.arrays[name] for of in datasets]) for name in first.arrays},
        first.manifest.env if same_env else {"id": first.manifest.env.get("id"), "args": {}},
        [origin for of in datasets for origin in of.manifest.origins],
    )
    return recorded.as_dataset(" and ".join(of.shown for of in datasets))


def _left_behind(folder: Path) -> Iterator[Path]:
    """What killed writers of this dataset have left."""
    for path in folder.parent.glob(f".tmp-{glob.escape(folder.name)}-*"):
        pid = path.name.rpartition("-")[2]
        if pid.isdigit() and not is_another_process(int(pid)):
            yield path


def _write(path: Path, pieces: Sequence[memoryview]) -> None:
    with open(path, "xb", buffering=0) as file:
        for piece in pieces:
            rest = piece
            while rest:
                rest = rest[file.write(rest[:PART_BYTES]) :]
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
