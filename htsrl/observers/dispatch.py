"""Tells observers what happens, on a thread of their own: a slow one holds nobody up until it is far behind."""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from htsrl.errors import ObserverFailed, StopRequested
from htsrl.metrics.evaluation import Evaluation
from htsrl.metrics.report import UpdateReport
from htsrl.metrics.result import RunResult
from htsrl.observers.observer import (
    CheckpointEvent,
    EpisodeEvent,
    ObservedRun,
    Observer,
    Parameters,
    UpdateEvent,
)

MAX_EVENTS = 4096
"""An observer that is further behind than this holds up the run, so that memory stays bounded and nothing is lost."""


class Watching:
    """Who watches a run, from its start to its evaluation; an observer that raises hears of nothing more."""

    def __init__(self, observers: Sequence[Observer] = (), strict: bool = False) -> None:
        """`strict`: whether an exception of theirs ends the run."""
        self.strict = strict
        self._listening = list(observers)

    @property
    def is_watched(self) -> bool:
        return bool(self._listening)

    @contextmanager
    def joined_by(self, observer: Observer) -> Iterator[None]:
        """For as long as the block takes."""
        self._listening.append(observer)
        try:
            yield
        finally:
            if observer in self._listening:
                self._listening.remove(observer)

    def tell(self, hook: str, event: Any) -> list[str]:
        """Call a hook of all who listen; returns a sentence for each who failed, after its traceback was shown."""
        failures = []
        for observer in list(self._listening):
            try:
                getattr(observer, hook, _nothing)(event)
            except Exception as error:
                self._listening.remove(observer)
                traceback.print_exception(error, file=sys.stderr)
                failures.append(f"observer {type(observer).__name__} raised {type(error).__name__} in {hook}: {error}")
        return failures

    def tell_evaluation(self, evaluation: Evaluation, say: Callable[[str], None]) -> None:
        """When the run is over, on the caller's own thread."""
        for failure in self.tell("on_evaluation", evaluation):
            if self.strict:
                raise ObserverFailed(f"{failure}; the run itself is complete")
            say(f"warning: {failure}")


ReadParameters = Callable[[int], Parameters | None]
Event = tuple[str, Any]


class Dispatch:
    """Passes events on in order. An exception ends its observer alone or, where they are strict, the run."""

    def __init__(self, watching: Watching, say: Callable[[str], None], read_parameters: ReadParameters) -> None:
        self._watching = watching
        self._is_watched = watching.is_watched
        self._say = say
        self._read_parameters = read_parameters
        self._events: queue.Queue[Event | None] = queue.Queue(MAX_EVENTS)
        self._stop_reason: str | None = None  # written by the thread of the observers, read by that of the run
        self._failure: ObserverFailed | None = None  # the same
        self._has_stopped = False
        self._thread = threading.Thread(target=self._deliver, name="htsrl-observers", daemon=True)
        if self._is_watched:
            self._thread.start()

    def start(self, run: ObservedRun) -> None:
        self._put("on_start", run)

    def update(self, report: UpdateReport) -> None:
        """Pass on an update; raises what an observer wants to end the run with, once."""
        if not self._is_watched:
            return
        for env, episode_return, length, info in report.episodes:
            self._put("on_episode", EpisodeEvent(env, report.version, report.steps, episode_return, length, info))
        version = report.version
        self._put(
            "on_update",
            UpdateEvent(version, report.steps, report.metrics, lambda: self._read_parameters(version)),
        )
        self._end_if_asked()

    def checkpoint(self, version: int, path: Path) -> None:
        self._put("on_checkpoint", CheckpointEvent(version, path))

    def evaluation(self, evaluation: Evaluation) -> None:
        self._put("on_evaluation", evaluation)

    def close(self, result: RunResult) -> None:
        """Tell them how the run ended, and wait until they have heard everything."""
        if not self._is_watched:
            return
        self._put("on_end", result)
        self._events.put(None)
        self._thread.join()

    def _put(self, hook: str, event: Any) -> None:
        if self._is_watched:
            self._events.put((hook, event))

    def request_stop(self, reason: str) -> None:
        """Called by an observer, on any thread."""
        self._stop_reason = self._stop_reason or reason or "an observer asked for it"

    def _end_if_asked(self) -> None:
        if self._has_stopped:
            return  # reports that were still under way are passed on while the workers end
        if self._failure is not None:
            self._has_stopped = True
            raise self._failure
        if self._stop_reason is not None:
            self._has_stopped = True
            raise StopRequested(self._stop_reason)

    def _deliver(self) -> None:
        while (event := self._events.get()) is not None:
            for failure in self._watching.tell(*event):
                if self._watching.strict:
                    self._failure = self._failure or ObserverFailed(
                        f"{failure}; the run ends, for observers are strict"
                    )
                else:
                    self._say(f"warning: {failure}; it hears of nothing more, and training continues without it")


def _nothing(argument: Any) -> None:
    """For observers that do not derive from the protocol, and leave a hook out."""
