"""A dataset: episodes of one pair of spaces, as arrays with the steps of all of them one after another.

Of an episode with T steps there are T actions, rewards and ends, and T + 1 observations, so that what truly followed
each step is there without a copy. Actions are rows in the environment's terms: choices counted from 0, then the
continuous dimensions, flattened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.datasets.manifest import DATA_FILE, MANIFEST_FILE, MANIFEST_LIMIT_BYTES, Manifest
from htsrl.datasets.mapped_arrays import map_arrays
from htsrl.datasets.rules import check_arrays
from htsrl.errors import DatasetError, RunFolderError
from htsrl.plain_files import read_plain
from htsrl.spaces import Interface

Array = NDArray[Any]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """What was recorded, and what is said of it."""

    manifest: Manifest
    arrays: Mapping[str, Array]
    shown: str
    """Where it comes from, for messages."""

    @property
    def interface(self) -> Interface:
        return self.manifest.interface

    @property
    def num_steps(self) -> int:
        return len(self.arrays["rewards"])

    @property
    def num_episodes(self) -> int:
        return len(self.manifest.episode_lengths)

    @property
    def has_dt(self) -> bool:
        return "dt" in self.arrays

    @cached_property
    def episode_ends(self) -> Indices:
        """Of every episode, how many steps lie before its end."""
        return np.cumsum(np.array(self.manifest.episode_lengths, np.int64))

    def episode_of(self, steps: Indices) -> Indices:
        """The number of the episode that each step is in."""
        return np.searchsorted(self.episode_ends, steps, side="right")

    def observations_at(self, steps: Indices, after: bool = False) -> dict[str, Array]:
        """What was seen before, or `after`, the steps of these numbers."""
        rows = steps + self.episode_of(steps) + after
        return {name: self.arrays[name][rows] for name in self.interface.observations}

    def returns(self) -> NDArray[np.float64]:
        """The sum of each episode's rewards."""
        starts = self.episode_ends - np.array(self.manifest.episode_lengths)
        return np.add.reduceat(self.arrays["rewards"].astype(np.float64), starts)


def read_dataset(folder: Path) -> Dataset:
    """The dataset in a folder, its file mapped into memory; DatasetError for anything that is not whole and sound."""
    try:
        manifest = Manifest.from_bytes(read_plain(folder / MANIFEST_FILE, MANIFEST_LIMIT_BYTES))
    except FileNotFoundError as error:
        raise DatasetError(
            f"{folder} is not a dataset: it holds no {MANIFEST_FILE}; `htsrl collect` writes one"
        ) from error
    except OSError as error:
        raise DatasetError(f"{folder / MANIFEST_FILE} cannot be read: {error.strerror}") from error
    except (ValueError, RunFolderError) as error:
        raise DatasetError(f"{folder / MANIFEST_FILE} {error}") from error
    path = folder / DATA_FILE
    try:
        arrays = map_arrays(path, manifest.data_bytes, manifest.data_sha256)
        check_arrays(manifest, arrays)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DatasetError(f"{path} {error}") from error
    return Dataset(manifest, arrays, str(folder))
