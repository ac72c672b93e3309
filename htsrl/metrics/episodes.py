"""Returns and lengths of the episodes that ended lately."""

from __future__ import annotations

from collections import deque
from typing import Any

from numpy.typing import NDArray

WINDOW = 100


class EpisodeMeter:
    """The last hundred episodes, in the order of (step, environment), which no timing can change."""

    def __init__(self) -> None:
        self._returns: deque[float] = deque(maxlen=WINDOW)
        self._lengths: deque[int] = deque(maxlen=WINDOW)

    def add(self, returns_TB: NDArray[Any], lengths_TB: NDArray[Any]) -> None:
        """Take in an interval; an episode ended wherever its length is not zero."""
        ended = lengths_TB > 0
        self._returns.extend(returns_TB[ended].tolist())
        self._lengths.extend(lengths_TB[ended].tolist())

    @property
    def window_is_full(self) -> bool:
        return len(self._returns) == WINDOW

    @property
    def mean_return(self) -> float:
        return sum(self._returns) / len(self._returns)

    def metrics(self) -> dict[str, float]:
        if not self._returns:
            return {}
        return {
            "rollout/ep_rew_mean": self.mean_return,
            "rollout/ep_len_mean": sum(self._lengths) / len(self._lengths),
        }
