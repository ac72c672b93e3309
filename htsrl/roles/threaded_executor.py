"""An executor whose environments wait side by side, each on a thread of its own.

For environments whose steps wait, for a server, another process or a clock, and let other threads run meanwhile. A
process for each would serve them as well, until there are dozens: then interpreters push one another out of the caches,
and a step takes several times the CPU time that it takes here.

An environment's thread has a doorbell of its own, which actors and learner ring as they ring an executor's. Its waits
have no deadline, for the worker's own thread keeps that: it sees the end of the run and of the parent, and with it all
threads end.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import Any

from htsrl.dataflow.signals import ThreadBell
from htsrl.roles.env_runner import EnvRunner, Stage
from htsrl.roles.executor import Bells, describe_stages
from htsrl.roles.role import Notify

MakeReplica = Callable[[int], EnvRunner]
CLOSING_SECONDS = 0.4
"""For environments that are in the middle of a step when the run ends; then they end with the process."""


class EnvThread:
    """The thread of one environment, which makes it, steps it and closes it: some are bound to where they were made."""

    def __init__(
        self,
        env: int,
        doorbell: ThreadBell,
        bells: Bells,
        tell: Callable[[BaseException | None], None],
        jitter_seconds: float,
        running: AbstractContextManager[Any],
    ) -> None:
        """`tell` hears when the environment is made, and of whatever goes wrong; `running` is held while it runs."""
        self._env = env
        self._doorbell = doorbell
        self._bells = bells
        self._tell = tell
        self._jitter_seconds = jitter_seconds
        self._running = running
        self._is_closing = False
        self.env_runner: EnvRunner | None = None
        """Once it is made."""

    def live(self, make_env_runner: MakeReplica) -> None:
        """What the thread does."""
        try:
            self.env_runner = env_runner = make_env_runner(self._env)
            self._tell(None)
            while not self._is_closing:
                self._go_on(env_runner)
                self._doorbell.wait()  # comes back at once if it was rung since the last time
            env_runner.close()
        except BaseException as error:
            self._tell(error)

    def close(self) -> None:
        self._is_closing = True
        self._doorbell.ring()

    def _go_on(self, env_runner: EnvRunner) -> None:
        rollout = env_runner.rollout
        if self._jitter_seconds:
            time.sleep(random.uniform(0, self._jitter_seconds))
        while self._advance(env_runner):
            self._bells.notify_actors([self._env])
            if env_runner.rollout != rollout:
                rollout = env_runner.rollout
                self._bells.notify_learner()

    def _advance(self, env_runner: EnvRunner) -> bool:
        with self._running:
            return env_runner.advance()


class ThreadedExecutor:
    """Its environments go as far as they can by themselves; the worker's thread only hears of what went wrong."""

    def __init__(
        self,
        doorbells: Mapping[int, ThreadBell],
        make_env_runner: MakeReplica,
        bells: Bells,
        ring_worker: Notify,
        jitter_seconds: float = 0.0,
        max_running: int | None = None,
    ) -> None:
        """`doorbells` by environment; `ring_worker` wakes the thread that calls `advance`; `max_running` of its
        environments are in the middle of a call at once."""
        running: AbstractContextManager[Any] = (
            nullcontext() if max_running is None else threading.BoundedSemaphore(max_running)
        )
        self._news: SimpleQueue[BaseException | None] = SimpleQueue()
        self._ring_worker = ring_worker
        self._env_threads = [
            EnvThread(env, bell, bells, self._tell, jitter_seconds, running) for env, bell in doorbells.items()
        ]
        self._threads = [
            threading.Thread(target=env_thread.live, args=(make_env_runner,), name=f"environment {env}", daemon=True)
            for env, env_thread in zip(doorbells, self._env_threads, strict=True)
        ]
        for thread in self._threads:
            thread.start()
        for _ in self._env_threads:
            self._raise(self._news.get())

    def advance(self) -> bool:
        while not self._news.empty():
            self._raise(self._news.get())
        return False

    @property
    def finished(self) -> bool:
        return all(env_runner.stage is Stage.NOTHING for env_runner in self._env_runners)

    def waits_for(self) -> str:
        return ", ".join(describe_stages(self._env_runners))

    def close(self) -> None:
        deadline = time.monotonic() + CLOSING_SECONDS
        for env_thread in self._env_threads:
            env_thread.close()
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))

    @property
    def is_closed(self) -> bool:
        """Whether no environment is in the middle of something."""
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def _env_runners(self) -> list[EnvRunner]:
        return [thread.env_runner for thread in self._env_threads if thread.env_runner]

    def _tell(self, news: BaseException | None) -> None:
        self._news.put(news)
        self._ring_worker()

    @staticmethod
    def _raise(news: BaseException | None) -> None:
        if news is not None:
            raise news
