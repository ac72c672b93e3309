"""A dataset by the name that a user gives it: a folder, or `minari:` and what Minari knows it by."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from htsrl.config.data_source import MINARI, DataSource
from htsrl.datasets.dataset import Dataset, read_dataset
from htsrl.datasets.minari import read_minari
from htsrl.errors import DatasetError


def open_dataset(source: str) -> Dataset:
    """DatasetError where it is not there, not sound, or no longer the one that it was when its identity was noted."""
    named = DataSource.parse(source)
    return known_dataset(named.place, named.identity) if named.identity else _read(named.place)


@lru_cache(maxsize=4)
def known_dataset(place: str, identity: str) -> Dataset:
    """Read once in a process: what is mapped stays what it was, whatever becomes of the file's name."""
    dataset = _read(place)
    if identity != dataset.manifest.identity:
        raise DatasetError(
            f"the dataset {place} is not the one that the run began with: its identity is "
            f"{dataset.manifest.identity}, not {identity}; put back what was there"
        )
    return dataset


def _read(place: str) -> Dataset:
    return read_minari(place.removeprefix(MINARI)) if place.startswith(MINARI) else read_dataset(Path(place))
