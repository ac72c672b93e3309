"""Which dataset a run learns from: looked at before anything starts, and from then on known by its hash."""

from __future__ import annotations

from dataclasses import replace

from htsrl.config import Config
from htsrl.config.data_source import DataSource
from htsrl.datasets.open import open_dataset


def with_dataset(config: Config) -> Config:
    """The configuration, which says to the bit what is learned from; DatasetError where that cannot be had."""
    if config.experiment.source is None:
        return config
    named = DataSource.parse(config.experiment.source).absolute()
    pinned = replace(named, identity=open_dataset(str(named)).manifest.identity)
    return replace(config, experiment=replace(config.experiment, source=str(pinned)))
