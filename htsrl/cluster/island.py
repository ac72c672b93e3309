"""An island: executors and actors of a run in worker processes of their own, over shared memory, on another machine.

It lives in the process of a Ray actor, whose methods the learner's side calls: `begin` once, `publish` whenever there
are versions, and `collect` all the time, each answered when there is something to tell. All of them take and give
parcels. The supervisor of the workers has a thread of its own; what it and the methods share is one lock and one
condition.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Collection
from typing import Any

import cloudpickle

from htsrl.cluster.crossing import Crossing, one_by_one, several
from htsrl.cluster.parcel import pack, unpack
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.signals import Doorbell
from htsrl.errors import EnvironmentFailure, HtsrlError
from htsrl.placements.assignment import worker_layout
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.supervisor import Listeners, Supervisor

PULSE_SECONDS = 1.0
"""An answer is given at least this often, as a sign of life."""


class Island:
    """One of a run's islands. Nothing happens before it was told to `begin`."""

    def begin(self, blueprint: bytes, island: int, data: bytes) -> int:
        """Set the workers to work, from where the parcel says that environments stand; returns this process."""
        self._blueprint: Blueprint = cloudpickle.loads(blueprint)
        self._block = SharedArrays(self._blueprint.block_specs(), sparse=True)
        shared = self._blueprint.shared(self._block)
        self._exchange = shared.exchange
        self._crossing = Crossing(self._blueprint, self._block, shared, island)
        document, arrays = unpack(data)
        for rollout in one_by_one(arrays, document["rollouts"]):
            self._crossing.put_whole(rollout)
        self._crossing.put_seconds(arrays)
        self._crossing.put_versions(range(*document["versions"]), arrays)
        self._known = self._exchange.completed_rollouts[list(self._crossing.envs)].copy()
        self._stir = threading.Condition()
        self._news: list[dict[str, Any]] = []  # restarts, and how it ended
        self._versions_came = False
        self._run_is_over = False
        self._asked_at = time.monotonic()
        self._doorbell = Doorbell.create()
        self._thread = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
        self._thread.start()
        return os.getpid()

    def publish(self, data: bytes) -> None:
        """Versions that may act from now on."""
        document, arrays = unpack(data)
        self._crossing.put_versions(range(*document["versions"]), arrays)
        with self._stir:
            self._versions_came = True
        self._doorbell.ring()

    def collect(self) -> bytes:
        """What was not told before, once there is anything, or a sign of life."""
        with self._stir:
            self._asked_at = time.monotonic()
            self._stir.wait_for(self._has_news, PULSE_SECONDS)
            self._asked_at = time.monotonic()
            news, self._news = self._news, []
        rollouts = self._crossing.new_rollouts(self._known)
        arrays = {**several(rollouts), **self._crossing.watched()}
        for failed in {what["env"] for what in news if what.get("env") is not None}:
            arrays |= self._crossing.under_way(failed)
        return pack({"news": news, "rollouts": len(rollouts)}, arrays)

    def end(self) -> None:
        """The run is over: end the workers, in order as far as they let themselves."""
        self._run_is_over = True
        self._doorbell.ring()
        self._thread.join()

    def _has_news(self) -> bool:
        return bool(self._news) or bool((self._completed() > self._known).any())

    def _completed(self) -> Any:
        return self._exchange.completed_rollouts[list(self._crossing.envs)]

    def _tell(self, kind: str, **what: Any) -> None:
        with self._stir:
            self._news.append({"kind": kind, **what})
            self._stir.notify_all()

    # As the supervisor's `Elsewhere`: the learner, and all that is on other islands

    @property
    def doorbell(self) -> Doorbell:
        return self._doorbell

    @property
    def workers(self) -> Collection[int]:
        return [n for n in range(len(worker_layout(self._blueprint))) if n not in self._crossing.workers]

    def advance(self) -> bool:
        """Rung by executors, whose rollout counts, or by `publish`."""
        with self._stir:
            if (self._completed() > self._known).any():
                self._stir.notify_all()
            came, self._versions_came = self._versions_came, False
        return came

    @property
    def run_is_over(self) -> bool:
        """Also where nobody has asked for anything for longer than anything may take."""
        silence = time.monotonic() - self._asked_at - PULSE_SECONDS
        return self._run_is_over or silence > self._blueprint.config.placement.deadline_seconds

    def _supervise(self) -> None:
        def on_restart(line: str) -> None:
            self._tell("restart", line=line)

        unasked = Listeners(on_report=lambda report: None, on_checkpoint=lambda written: None, on_restart=on_restart)
        try:
            supervisor = Supervisor(self._blueprint, self._block, unasked, self)
            try:
                supervisor.start()
                supervisor.watch()
            finally:
                supervisor.stop()
        except HtsrlError as error:
            env = error.env if isinstance(error, EnvironmentFailure) else None
            self._tell("failure", error=type(error).__name__, message=str(error), env=env)
        except Exception as error:
            self._tell("failure", error=type(error).__name__, message=traceback.format_exc(), env=None)
        if not self._run_is_over and not self._news:  # nobody asks any more
            os.kill(os.getpid(), signal.SIGKILL)
