"""An executor whose environments wait side by side, each on a thread of its own.

For environments whose steps wait, for a server, another process or a clock, and let other threads run meanwhile. A
process for each would serve them as well, until there are dozens: then interpreters push one another out of the caches,
and a step takes several times the CPU time that it takes here.

An environment's thread has a doorbell of its own, which actors and learner ring as they ring an executor's. Its waits
have no deadline, for the worker's own thread keeps that: it sees the end of the run and of the parent, and with it all
threads end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from htsrl.dataflow.signals import Doorbell
from htsrl.roles.executor import Bells, describe_stages
from htsrl.roles.replica import Replica, Stage
from htsrl.roles.role import Notify

MakeReplica = Callable[[int], Replica]
CLOSING_SECONDS = 0.4
"""For environments that are in the middle of a step when the run ends; then they end with the process."""


class Lane:
    """The thread of one environment, which makes it, steps it and closes it: some are bound to where they were made."""

    def __init__(self, env: int, doorbell: Doorbell, bells: Bells, fail: Callable[[BaseException], None]) -> None:
        self._env = env
        self._doorbell = doorbell
        self._bells = bells
        self._fail = fail
        self._is_made = threading.Event()
        self._is_closing = False
        self._replica: Replica | None = None

    def start(self, make_replica: MakeReplica) -> None:
        self._thread = threading.Thread(target=self._live, args=(make_replica,), name=f"env {self._env}", daemon=True)
        self._thread.start()

    def made(self) -> Replica | None:
        """Once it is there; None where it could not be made."""
        self._is_made.wait()
        return self._replica

    def close(self) -> None:
        self._is_closing = True
        self._doorbell.ring()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _live(self, make_replica: MakeReplica) -> None:
        try:
            self._replica = replica = make_replica(self._env)
            self._is_made.set()
            while not self._is_closing:
                self._go_on(replica)
                self._doorbell.wait()  # comes back at once if it was rung since the last time
            replica.close()
        except BaseException as error:
            self._fail(error)
        finally:
            self._is_made.set()

    def _go_on(self, replica: Replica) -> None:
        rollout = replica.rollout
        while replica.advance():
            self._bells.notify_actors([self._env])
            if replica.rollout != rollout:
                rollout = replica.rollout
                self._bells.notify_learner()


class ThreadedExecutor:
    """Its environments go as far as they can by themselves; the worker's thread only hears of what went wrong."""

    def __init__(
        self, doorbells: Mapping[int, Doorbell], make_replica: MakeReplica, bells: Bells, ring_worker: Notify
    ) -> None:
        """`doorbells` by environment; `ring_worker` wakes the thread that calls `advance`."""
        self._failures: list[BaseException] = []
        self._ring_worker = ring_worker
        self._lanes = [Lane(env, doorbell, bells, self._fail) for env, doorbell in doorbells.items()]
        for lane in self._lanes:
            lane.start(make_replica)
        self._replicas = [replica for lane in self._lanes if (replica := lane.made())]
        self.advance()

    def advance(self) -> bool:
        if self._failures:
            raise self._failures[0]
        return False

    @property
    def finished(self) -> bool:
        return all(replica.stage is Stage.NOTHING for replica in self._replicas)

    def waits_for(self) -> str:
        return ", ".join(describe_stages(self._replicas))

    def close(self) -> None:
        deadline = time.monotonic() + CLOSING_SECONDS
        for lane in self._lanes:
            lane.close()
        for lane in self._lanes:
            lane.join(max(deadline - time.monotonic(), 0.0))

    def _fail(self, error: BaseException) -> None:
        self._failures.append(error)
        self._ring_worker()
