"""What it takes to wake another process: `python -m htsrl_bench.hand_over ITS_BELL OUR_BELL LIFELINE` rings back."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from htsrl.dataflow.signals import Doorbell, Waiter
from htsrl.errors import HtsrlError

ROUND_TRIPS = 2000
WARM_UP_TRIPS = 100
DEADLINE_SECONDS = 60.0


@dataclass(frozen=True)
class HandOver:
    """From the ring to the other process awake."""

    microseconds: float
    """By the clock: half of a round trip."""
    cpu_microseconds: float
    """Of one core: one ring and one awakening."""


def measure_hand_over(round_trips: int = ROUND_TRIPS) -> HandOver:
    there, back = Doorbell.create(), Doorbell.create()
    lifeline, our_end = os.pipe()  # nobody writes to it: it breaks when this process dies
    try:
        with _echo(there, back, lifeline) as waiter:
            for _ in range(WARM_UP_TRIPS):
                _round_trip(there, waiter)
            begin, cpu_begin = time.perf_counter(), time.process_time()
            for _ in range(round_trips):
                _round_trip(there, waiter)
            seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    finally:
        for fd in (our_end, lifeline):
            os.close(fd)
        there.close()
        back.close()
    return HandOver(seconds / round_trips / 2 * 1e6, cpu_seconds / round_trips * 1e6)


@contextmanager
def _echo(there: Doorbell, back: Doorbell, lifeline: int) -> Iterator[Waiter]:
    fds = (there.fd, back.fd, lifeline)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "htsrl_bench.hand_over", *map(str, fds)],
        pass_fds=fds,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        yield Waiter(back, lifeline)
    finally:
        process.kill()
        process.wait()


def _round_trip(there: Doorbell, waiter: Waiter) -> None:
    there.ring()
    if not waiter.wait(DEADLINE_SECONDS):
        raise HtsrlError(f"the process that was rung did not ring back within {DEADLINE_SECONDS:g} s")
    waiter.clear()


def main() -> None:
    own, other, lifeline = map(int, sys.argv[1:])
    bell, answer = Doorbell(own), Doorbell(other)
    waiter = Waiter(bell, lifeline)
    while waiter.wait(DEADLINE_SECONDS):
        waiter.clear()
        answer.ring()


if __name__ == "__main__":
    main()
