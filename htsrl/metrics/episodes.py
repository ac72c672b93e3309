"""The episodes that ended lately: returns, lengths, and numbers that their environments tell of them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.trajectory import SUCCESS, TrajectorySpec
from htsrl.metrics.report import EndedEpisode

WINDOW = 100

Row = tuple[float, ...]
"""Return, length, and the logged numbers, not a number where an environment did not tell."""


class EpisodeMeter:
    """The last hundred episodes, in the order of (step, environment), which no timing can change."""

    def __init__(self, info_keys: Sequence[str] = (), rows: Iterable[Row] = ()) -> None:
        self._info_keys = tuple(info_keys)
        self.rows: deque[Row] = deque(rows, maxlen=WINDOW)

    def add(self, episodes: Sequence[EndedEpisode]) -> None:
        for _, episode_return, length, info in episodes:
            self.rows.append((episode_return, length, *(info.get(key, math.nan) for key in self._info_keys)))

    def has_reached(self, goal: float) -> bool:
        """Whether a full window of episodes has this mean return."""
        return len(self.rows) == WINDOW and self.mean_return >= goal

    @property
    def mean_return(self) -> float:
        return sum(row[0] for row in self.rows) / len(self.rows)

    def metrics(self) -> dict[str, float]:
        if not self.rows:
            return {}
        metrics = {
            "rollout/ep_rew_mean": self.mean_return,
            "rollout/ep_len_mean": sum(row[1] for row in self.rows) / len(self.rows),
        }
        for column, key in enumerate(self._info_keys, start=2):
            told = [row[column] for row in self.rows if not math.isnan(row[column])]
            if told:
                metrics[info_metric(key)] = sum(told) / len(told)
        return metrics


def info_metric(key: str) -> str:
    """The metric of a number in an episode's `info`: its mean over the window, of successes so their rate."""
    return "rollout/success_rate" if key == SUCCESS else f"rollout/info/{key}"


def ended_episodes(
    fields: Mapping[str, NDArray[Any]], spec: TrajectorySpec, last: int | None = None
) -> list[EndedEpisode]:
    """Those of a batch, or only so many of the last; an episode ended wherever its length is not zero."""
    lengths_TB, returns_TB = fields["episode_lengths"], fields["episode_returns"]
    infos = {key: fields[name] for key, name in spec.info_names.items()}
    return [
        (
            spec.env_of(column),
            float(returns_TB[step, column]),
            int(lengths_TB[step, column]),
            {key: float(x[step, column]) for key, x in infos.items() if not np.isnan(x[step, column])},
        )
        for step, column in np.argwhere(lengths_TB > 0)[-last if last else None :].tolist()
    ]
