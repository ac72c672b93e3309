"""A process that measures parts: `python -m htsrl_bench.part_process`, told on stdin what to build and when to begin.

Several of them measure the same part at the same time, so that each core is as busy as in a run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING

from htsrl.errors import HtsrlError
from htsrl.numerics import KEPT_MEMORY, ONE_THREAD, use_one_thread

if TYPE_CHECKING:
    from htsrl_bench.parts import Call, Part

WARM_UP_CALLS = 3


@dataclass(frozen=True)
class Measured:
    """One part in all processes at once."""

    part: Part
    milliseconds: float
    """Of one core, for one step: the mean over the processes."""
    by_process: tuple[float, ...]


class PartProcesses:
    """As many processes as there are cores, each with one thread."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def measure(self, part: Part, seconds: float) -> Measured:
        """Everybody builds it, then all begin together and continue for so long. CPU time is read, not the clock."""
        self._tell_all(json.dumps({**asdict(part), "seconds": seconds}))
        self._hear_all()
        self._tell_all("go")
        each = tuple(float(answer) for answer in self._hear_all())
        return Measured(part, sum(each) / len(each), each)

    def _tell_all(self, line: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            print(line, file=process.stdin, flush=True)

    def _hear_all(self) -> list[str]:
        answers = []
        for process in self._processes:
            assert process.stdout is not None
            answers.append(process.stdout.readline())
            if not answers[-1]:
                raise HtsrlError(f"a process that measures parts ended with code {process.wait()}; its error is above")
        return answers


@contextmanager
def part_processes(num_processes: int) -> Iterator[PartProcesses]:
    with ExitStack() as ending:
        yield PartProcesses([ending.enter_context(_start()) for _ in range(num_processes)])


@contextmanager
def _start() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "htsrl_bench.part_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_THREAD, **KEPT_MEMORY, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@cache
def _built(part: Part) -> Call:
    call = part.build()
    for _ in range(WARM_UP_CALLS):
        call()
    return call


def milliseconds_per_step(call: Call, batch: int, seconds: float) -> float:
    """CPU time of this process, over as many calls as begin within so many seconds."""
    calls, end, begin = 0, time.monotonic() + seconds, time.process_time()
    while not calls or time.monotonic() < end:
        call()
        calls += 1
    return (time.process_time() - begin) * 1000 / (calls * batch)


def main() -> None:
    from htsrl_bench.parts import Part

    use_one_thread()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a simulator prints is not an answer
    for line in sys.stdin:
        asked = json.loads(line)
        seconds = asked.pop("seconds")
        part = Part(**asked)
        call = _built(part)
        print("ready", file=answers, flush=True)
        sys.stdin.readline()
        print(milliseconds_per_step(call, part.batch, seconds), file=answers, flush=True)


if __name__ == "__main__":
    main()
