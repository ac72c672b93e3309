"""What an evaluation found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from htsrl.dataflow.trajectory import SUCCESS


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of the episodes played, in the order of their seeds."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    version: int = 0
    """How many updates the policy that played had learned from."""
    source: Path = Path()
    """The file or the checkpoint that it was read from."""
    infos: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Numbers of the last step's `info` by key, an entry for each episode: `is_success` and those of `log_info`; not a
    number where an episode did not tell. Keys that no episode told are left out."""

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std_return(self) -> float:
        return float(np.std(self.returns))

    @property
    def info_means(self) -> dict[str, float]:
        """By key, over the episodes that told."""
        return {key: float(np.nanmean(numbers)) for key, numbers in self.infos.items()}

    @property
    def success_rate(self) -> float | None:
        """The mean of `is_success`; None where no episode told."""
        return self.info_means.get(SUCCESS)
