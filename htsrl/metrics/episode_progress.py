"""How far an evaluation has come, on stderr: nothing of one that takes a moment, a line now and then of others."""

from __future__ import annotations

from types import TracebackType

from htsrl.metrics.line_progress import LineProgress
from htsrl.metrics.progress import Mode


class EpisodeProgress:
    """Told of episodes and steps."""

    def __init__(self, episodes: int, mode: Mode = "auto") -> None:
        self._episodes = episodes
        self._line = LineProgress(mode)

    def __enter__(self) -> EpisodeProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._line.__exit__(kind, error, at)

    def update(self, played: int, steps: int) -> None:
        self._line.show(f"evaluated {played}/{self._episodes} episodes  {steps:,} steps")
