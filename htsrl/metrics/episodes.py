"""Returns and lengths of the episodes that ended lately."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

WINDOW = 100


class EpisodeMeter:
    """The last hundred episodes, in the order of (step, environment), which no timing can change."""

    def __init__(self, returns: Sequence[float] = (), lengths: Sequence[int] = ()) -> None:
        self.returns: deque[float] = deque(returns, maxlen=WINDOW)
        self.lengths: deque[int] = deque(lengths, maxlen=WINDOW)

    def add(self, returns_TB: NDArray[Any], lengths_TB: NDArray[Any]) -> None:
        """Take in an interval; an episode ended wherever its length is not zero."""
        ended = lengths_TB > 0
        self.returns.extend(returns_TB[ended].tolist())
        self.lengths.extend(lengths_TB[ended].tolist())

    def has_reached(self, goal: float) -> bool:
        """Whether a full window of episodes has this mean return."""
        return len(self.returns) == WINDOW and self.mean_return >= goal

    @property
    def mean_return(self) -> float:
        return sum(self.returns) / len(self.returns)

    def metrics(self) -> dict[str, float]:
        if not self.returns:
            return {}
        return {
            "rollout/ep_rew_mean": self.mean_return,
            "rollout/ep_len_mean": sum(self.lengths) / len(self.lengths),
        }
