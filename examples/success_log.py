"""An observer of one's own: a table of episodes, and an end once the goal is reached often enough.

    htsrl train MiniGrid-DoorKey-5x5-v0 --observer examples.success_log:SuccessLog

Episodes go to `episodes.csv` in the run's folder, each once, also after a kill and a resume. Where the environment
tells `is_success`, the run is asked to end as soon as 95 of the last 100 episodes were one; `htsrl resume` continues
from there.
"""

from __future__ import annotations

import csv
from collections import deque

from htsrl.extending import EpisodeEvent, ObservedRun, Observer, RunResult

COLUMNS = ("version", "steps", "env", "return", "length", "success")
WINDOW = 100
ENOUGH = 0.95


class SuccessLog(Observer):
    """Writes a line for each episode, and stops when successes hold."""

    def on_start(self, run: ObservedRun) -> None:
        self._run = run
        self._recent: deque[float] = deque(maxlen=WINDOW)
        path = run.run_dir / "episodes.csv"
        rows = list(csv.reader(path.read_text().splitlines())) if path.exists() else []
        # A run that was killed resumes from a checkpoint, and comes to what followed that once more.
        known = [row for row in rows[1:] if len(row) == len(COLUMNS) and int(row[0]) <= run.version]
        beside = path.with_suffix(".tmp")
        self._file = beside.open("w", newline="")
        self._table = csv.writer(self._file)
        self._table.writerows([COLUMNS, *known])
        self._file.flush()
        beside.replace(path)  # a kill leaves the old table or the new one

    def on_episode(self, event: EpisodeEvent) -> None:
        success = event.info.get("is_success")
        told = "" if success is None else int(success)
        self._table.writerow((event.version, event.steps, event.env, event.episode_return, event.length, told))
        if success is None:
            return
        self._recent.append(success)
        if len(self._recent) == WINDOW and sum(self._recent) >= ENOUGH * WINDOW:
            self._run.stop(f"{sum(self._recent):.0f} of the last {WINDOW} episodes were successes")

    def on_end(self, result: RunResult) -> None:
        self._file.close()
