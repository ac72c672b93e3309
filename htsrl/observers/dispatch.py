"""Tells observers what happens, on a thread of their own, and what becomes of those that fail or hang."""

from __future__ import annotations

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
from htsrl.observers.delivery import Delivery, Event
from htsrl.observers.observer import (
    CheckpointEvent,
    EpisodeEvent,
    ObservedRun,
    Observer,
    Parameters,
    UpdateEvent,
)
from htsrl.stderr import warn_on_stderr


class Watching:
    """Who watches a run, from its start to its evaluation; an observer that raises hears of nothing more."""

    def __init__(self, observers: Sequence[Observer] = (), strict: bool = False) -> None:
        """`strict`: whether an exception of theirs ends the run."""
        self.strict = strict
        self.in_hook = ""
        """Who is called at the moment, as `Notes.on_update`; the last who was, where nobody is."""
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
            self.in_hook = f"{type(observer).__name__}.{hook}"
            try:
                getattr(observer, hook, _nothing)(event)
            except BaseException as error:  # on the observers' thread nobody would hear of it
                if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                    raise
                self._listening.remove(observer)
                warn_on_stderr("".join(traceback.format_exception(error)).rstrip())
                failures.append(f"observer {type(observer).__name__} raised {type(error).__name__} in {hook}: {error}")
        return failures

    def tell_evaluation(self, evaluation: Evaluation, say: Callable[[str], None]) -> None:
        """When the run is over, on the caller's own thread."""
        for failure in self.tell("on_evaluation", evaluation):
            if self.strict:
                raise ObserverFailed(f"{failure}; the run itself is complete")
            say(f"warning: {failure}")


ReadParameters = Callable[[int], Parameters | None]


class Dispatch:
    """Passes events on in order. An exception ends its observer alone or, where they are strict, the run."""

    def __init__(
        self,
        watching: Watching,
        say: Callable[[str], None],
        read_parameters: ReadParameters,
        deadline_seconds: float,
        takes_turns: bool,
    ) -> None:
        """`takes_turns`: whether training shares this process, and stands still while observers are called."""
        self._watching = watching
        self._is_watched = watching.is_watched
        self._say = say
        self._read_parameters = read_parameters
        self._deadline_seconds = deadline_seconds
        self._held: list[Event] | None = [] if takes_turns else None  # until it is the observers' turn
        self._delivery = Delivery(self._tell, deadline_seconds)
        self._stop_reason: str | None = None  # written by the thread of the observers, read by that of the run
        self._failure: ObserverFailed | None = None  # the same
        self._has_raised = False

    def start(self, run: ObservedRun) -> None:
        self._put("on_start", run)
        self.take_turn()

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

    def take_turn(self) -> None:
        """Where observers take turns: tell them what was held back, wait until they have heard it, and end the run
        if they ask for it."""
        if self._held:
            self._tell_held()
            self._end_if_asked()

    def close(self, result: RunResult) -> None:
        """Tell them how the run ended, and wait until they have heard everything, or hang."""
        if not self._is_watched:
            return
        self._put("on_end", result)
        self._tell_held()
        self._wait()
        self._delivery.close()
        if unheard := self._delivery.unheard:
            self._fail(f"observers have not heard of {unheard} events, for {self._watching.in_hook} did not return")
        if self._failure is not None:
            self._say(f"warning: {self._failure}")

    def raise_failure(self) -> None:
        """What strict observers failed with after the last update, once the run's files are whole."""
        if self._failure is not None and not self._has_raised:
            raise self._failure

    def request_stop(self, reason: str) -> None:
        """Called by an observer, on any thread."""
        self._stop_reason = self._stop_reason or reason or "an observer asked for it"

    def _put(self, hook: str, event: Any) -> None:
        if not self._is_watched:
            return
        if self._held is not None:
            self._held.append((hook, event))
        else:
            self._pass_on((hook, event))

    def _tell_held(self) -> None:
        if self._held:
            for event in self._held:
                self._pass_on(event)
            self._held.clear()
            self._wait()

    def _pass_on(self, event: Event) -> None:
        if self._delivery.put(event):
            self._say_that_it_hangs("events that it is too far behind for are dropped")

    def _wait(self) -> None:
        if self._delivery.wait():
            self._say_that_it_hangs("nobody waits for it any more")

    def _say_that_it_hangs(self, consequence: str) -> None:
        self._say(
            f"warning: observer {self._watching.in_hook} has not returned for {self._deadline_seconds:g} s "
            f"(deadline_seconds); {consequence}"
        )

    def _end_if_asked(self) -> None:
        if self._has_raised:
            return  # reports that were still under way are passed on while the workers end
        if self._failure is not None:
            self._has_raised = True
            raise self._failure
        if self._stop_reason is not None:
            self._has_raised = True
            raise StopRequested(self._stop_reason)

    def _tell(self, event: Event) -> None:
        """On the thread of the observers."""
        for failure in self._watching.tell(*event):
            if not self._watching.strict:
                failure += "; it hears of nothing more, and training continues without it"
            self._fail(failure)

    def _fail(self, failure: str) -> None:
        if self._watching.strict:
            self._failure = self._failure or ObserverFailed(f"{failure}; observers are strict")
        else:
            self._say(f"warning: {failure}")


def _nothing(argument: Any) -> None:
    """For observers that do not derive from the protocol, and leave a hook out."""
