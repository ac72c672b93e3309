"""Datasets in the folder of a bench: what is there already is taken only where the bench would make the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from htsrl.datasets.dataset import Dataset
from htsrl.datasets.open import open_dataset
from htsrl.datasets.write import write_dataset
from htsrl.errors import ConfigError


@dataclass(frozen=True)
class KeptDatasets:
    """Of episodes that a run's policy has played, or a random one."""

    work: Path
    episodes: int
    """Of each policy."""

    def folder(self, name: str) -> Path:
        return self.work / f"data-{name}"

    def open(self, name: str) -> Dataset:
        return open_dataset(str(self.folder(name)))

    def made(self, name: str, digest: str, make: Callable[[], Dataset]) -> Dataset:
        """What is there or is made now; ConfigError where it has other episodes, or those of another run than that of
        `digest`."""
        if not self.folder(name).exists():
            write_dataset(make(), self.folder(name))
        dataset = self.open(name)
        for origin in dataset.manifest.origins:
            if origin.get("episodes") != self.episodes:
                problem = f"holds {origin.get('episodes')} episodes of a policy where {self.episodes} are asked for"
            elif origin.get("digest", digest) != digest:
                problem = f"holds episodes of the run {origin['digest']}, not of {digest}"
            else:
                continue
            raise ConfigError(f"{self.folder(name)} {problem}; choose another --work, or remove it")
        return dataset
