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
    steps: int | None = None
    """Environment steps that training had made for this version; known of evaluations beside training."""

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std_return(self) -> float:
        return float(np.std(self.returns))

    @property
    def mean_length(self) -> float:
        return float(np.mean(self.lengths))

    @property
    def info_means(self) -> dict[str, float]:
        """By key, over the episodes that told."""
        return {key: float(np.nanmean(numbers)) for key, numbers in self.infos.items()}

    @property
    def success_rate(self) -> float | None:
        """The mean of `is_success`; None where no episode told."""
        return self.info_means.get(SUCCESS)

    def metrics(self) -> dict[str, float]:
        """As `evaluations.jsonl` and the sinks have them."""
        infos = {
            "eval/success_rate" if key == SUCCESS else f"eval/info/{key}": mean for key, mean in self.info_means.items()
        }
        return {
            "eval/mean_reward": self.mean_return,
            "eval/std_reward": self.std_return,
            "eval/mean_ep_length": self.mean_length,
            **infos,
        }
