"""Signs of progress: how the supervisor tells a worker, or an environment, that gets on from one that hangs."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from htsrl.dataflow.exchange import Exchange
from htsrl.dataflow.signals import Doorbell, ThreadBell
from htsrl.placements.blueprint import Envs

STARTING_SECONDS = 120.0
"""For imports and the making of environments, beside the deadline."""


@dataclass(frozen=True)
class Watched:
    """A worker, as its signs are read."""

    envs: Envs
    """Those that it steps or acts for."""
    stepped: Envs
    bells: Sequence[Doorbell | ThreadBell]
    """Its own, and those of its threads."""


class Signs:
    """One sign for each worker, and behind them one for each environment that steps on a thread."""

    def __init__(
        self,
        exchange: Exchange,
        workers: Sequence[Watched | None],
        num_threads: int,
        may_go_on: Callable[[int], bool],
    ) -> None:
        """None stands for workers on other machines, which show no signs here; `may_go_on` tells of an environment
        on a thread whether it has something to do."""
        self._exchange = exchange
        self._workers = workers
        self._num_threads = num_threads
        self._may_go_on = may_go_on
        self._bells = [_poll_of(worker.bells if worker else ()) for worker in workers]
        self._naps_before = [0] * len(workers)  # when the worker was set to work
        self._start_deadlines = [0.0] * len(workers)

    def __len__(self) -> int:
        return len(self._workers) + self._num_threads

    def begin(self, number: int) -> None:
        """A worker is set to work."""
        self._naps_before[number] = int(self._exchange.naps[number])
        self._start_deadlines[number] = time.monotonic() + STARTING_SECONDS

    def read(self) -> list[Hashable]:
        """Each changes while its subject gets on, and is None while that rightly waits or still starts."""
        # On threads, one environment may hang while its worker naps and the others get on.
        threads = self._exchange.inside[: self._num_threads].tolist()
        return [
            *map(self._of_worker, range(len(self._workers))),
            *(inside if inside % 2 else None for inside in threads),
        ]

    def subject(self, place: int) -> tuple[int, int | None]:
        """Whose sign that is: the worker, and the environment if it is one that steps on a thread."""
        env = place - len(self._workers)
        if env < 0:
            return place, None
        return next(number for number, worker in enumerate(self._workers) if worker and env in worker.stepped), env

    def _of_worker(self, number: int) -> Hashable:
        exchange, worker = self._exchange, self._workers[number]
        if worker is None:
            return None
        nap, inside = int(exchange.naps[number]), exchange.inside[list(worker.stepped)]
        starts = nap == self._naps_before[number] and time.monotonic() < self._start_deadlines[number]
        waits = nap % 2 == 1 and not self._bells[number].poll(0) and not self._has_idle_threads(worker, inside)
        if waits or (starts and not (inside % 2).any()):
            return None
        words = exchange.requests[list(worker.envs)], exchange.answers[list(worker.envs)], inside
        return nap, int(exchange.beats[number]), exchange.published_version, *(array.tobytes() for array in words)

    def _has_idle_threads(self, worker: Watched, inside: npt.NDArray[np.int64]) -> bool:
        """Whether a thread could continue and none does: one that was stopped just after it cleared its bell leaves no
        other trace."""
        if not self._num_threads or (inside % 2).any():
            return False
        return any(self._may_go_on(env) for env in worker.stepped)


def _poll_of(bells: Sequence[Doorbell | ThreadBell]) -> select.poll:
    """Tells whether one of them was rung and nobody has cleared it since."""
    poll = select.poll()
    for bell in bells:
        poll.register(bell.fd, select.POLLIN)
    return poll
