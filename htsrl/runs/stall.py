"""Why no update has come for a while: who is waited for, and how long an environment has been inside of one call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from htsrl.dataflow.exchange import COMING_BACK
from htsrl.roles.shared import Shared
from htsrl.runs.private_file import json_bytes, write_private

QUIET_SECONDS = 5.0
"""Without an update for so long, and for twice as long as updates usually take, a run says what it waits for."""
LONG_CALL_SECONDS = 2.0
"""An environment that is inside of one call for less is just being stepped."""
LOOK_SECONDS = 1.0
FILE_NAME = "stall.json"
MAX_LETTERS = 160
"""Of what may name many environments."""


class Stall(NamedTuple):
    """What holds a run up right now."""

    seconds: float
    """Since the last update."""
    reason: str
    env: int | None = None
    """The environment that is waited for, and what it is inside of, for how long."""
    call: str | None = None
    call_seconds: float = 0.0

    @property
    def text(self) -> str:
        return f"no update for {self.seconds:.0f} s: {self.reason}"


class StallWatch:
    """Reads the words that executors, actors and learner write anyway; a look costs a comparison of clocks."""

    def __init__(self, shared: Shared, names: Sequence[str]) -> None:
        """`names` are those of the workers that step each environment."""
        now = time.monotonic()
        self._shared = shared
        self._names = names
        self._due_at = 0.0
        self._last_update = self._beaten_at = now
        self._usual_seconds = 0.0
        self._inside = shared.exchange.inside.copy()
        self._inside_since = np.full(len(self._inside), now)
        self._beats = b""

    def note_update(self) -> None:
        now = time.monotonic()
        took = now - self._last_update
        self._usual_seconds = took if not self._usual_seconds else 0.8 * self._usual_seconds + 0.2 * took
        self._last_update = now

    def look(self) -> Stall | None:
        """None unless it is about time to say something."""
        now = time.monotonic()
        if now < self._due_at:
            return None
        self._due_at = now + LOOK_SECONDS
        exchange = self._shared.exchange
        inside, beats = exchange.inside.copy(), exchange.beats.tobytes()
        self._inside_since[inside != self._inside] = now
        self._inside = inside
        if beats != self._beats:
            self._beats, self._beaten_at = beats, now
        seconds = now - self._last_update
        if seconds < max(QUIET_SECONDS, 2 * self._usual_seconds):
            return None
        return self._stall(seconds, now)

    def _stall(self, seconds: float, now: float) -> Stall | None:
        exchange, update = self._shared.exchange, self._shared.exchange.published_version
        if self._shared.source.is_ready(update):
            silent = now - self._beaten_at
            since = f", without a sign for {silent:.0f} s" if silent >= LONG_CALL_SECONDS else ""
            return Stall(seconds, f"the learner is at work on update {update}{since}")
        # From a queue the learner takes whatever comes first, so any environment may be the one.
        is_late = exchange.completed_rollouts <= update
        late = np.flatnonzero(is_late | self._shared.schedule.mixes_versions)
        if (env := self._inside_longest(late, now)) is not None:
            call, call_seconds = self._call(env), now - float(self._inside_since[env])
            name, worker = f"environment {env}", self._names[env]
            who = name if worker == name else f"{name} of {worker}"
            return Stall(seconds, f"{who} is inside its {call} for {call_seconds:.0f} s", env, call, call_seconds)
        if not exchange.requests.any() and update == 0:
            return None  # still starting, which is said elsewhere
        return Stall(seconds, self._rollouts_under_way(late, update))

    def _inside_longest(self, late: Any, now: float) -> int | None:
        """The environment that is inside of one call for longest, and for long."""
        inside = [int(env) for env in late if self._inside[env] % 2]
        env = min(inside, key=self._inside_since.__getitem__, default=None)
        return None if env is None or now - self._inside_since[env] < LONG_CALL_SECONDS else env

    def _rollouts_under_way(self, late: Any, update: int) -> str:
        exchange = self._shared.exchange
        requests = exchange.requests[late]
        if self._shared.schedule.mixes_versions or not (requests > 0).any():
            return f"the learner waits for {self._shared.source.waits_for(update)}"[:MAX_LETTERS]
        if (requests > 0).all() and (requests != exchange.answers[late]).all():
            return f"{_envs(late)} wait for their actor"
        rollouts, rows = exchange.tickets.rollout_and_row(requests)
        made = np.where(rollouts == update, rows, 0).sum() + (len(exchange.requests) - len(late)) * self._num_steps
        share = made / (len(exchange.requests) * self._num_steps)
        return f"the rollouts of update {update} are being made, {share:.0%} of their steps so far"

    @property
    def _num_steps(self) -> int:
        return self._shared.storages.spec.num_steps

    def _call(self, env: int) -> str:
        """As far as an executor's words tell; a state is saved after a step or a reset, and counts as that."""
        exchange = self._shared.exchange
        ticket, row = int(exchange.requests[env]), int(exchange.episodes[env][1])
        if row == COMING_BACK:
            return "way back to where its rollout began"
        _, rows = exchange.tickets.rollout_and_row(exchange.requests[env : env + 1])
        # An episode's row is written before the reset that it begins with, and the request of that row after it.
        is_stepped = ticket > 0 and int(rows[0]) >= row and not exchange.tickets.is_for_value(ticket)
        return "step" if is_stepped else "reset"


def _envs(envs: Any) -> str:
    listed = ", ".join(map(str, envs[:5].tolist()))
    return f"environments {listed}" + (f" and {len(envs) - 5} more" if len(envs) > 5 else "")


class StallFile:
    """`stall.json` in the run's folder while the run is held up, for those who look at it from outside.

    Not synced: after a crash of the machine nobody asks what the run waited for just before.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._is_there = True  # perhaps, of a run that was killed

    def write(self, stall: Stall) -> None:
        """A file that cannot be written now may be later, and training does without."""
        self._is_there = True
        with suppress(OSError):
            write_private(self._path, json_bytes({"written_at": time.time(), **stall._asdict()}), synced=False)

    def remove(self) -> None:
        if self._is_there:
            self._is_there = False
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
