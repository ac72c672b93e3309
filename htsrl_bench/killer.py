"""A process that kills others: `python -m htsrl_bench.killer SEED KILLS SECONDS`, with the pids of its prey on stdin.

It knows of a run no more than the pid of its main process. At random moments, spread over so many seconds of hunting,
it sends SIGKILL to a random child of that process, and every now and then to the process itself; then it waits for the
pid of the next. For every kill it prints a line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

MAIN_SHARE = 0.05
"""Of the kills, those of main processes; one at least."""
LOOK_SECONDS = 0.01


@dataclass(frozen=True)
class Kill:
    """Whom the killer hit, and when."""

    pid: int
    is_main: bool
    seconds: float
    """Since the killer began."""


@dataclass(frozen=True)
class Intention:
    """So long after the last kill, somebody is to die."""

    pause_seconds: float
    is_main: bool


def plan(draw: random.Random, kills: int, seconds: float) -> list[Intention]:
    """Moments drawn from all of the time alike, the pauses between them, and who is meant."""
    moments = sorted(draw.uniform(0.0, seconds) for _ in range(kills))
    mains = {*draw.sample(range(kills), max(1, round(kills * MAIN_SHARE)))}
    pauses = [later - earlier for earlier, later in zip([0.0, *moments], moments, strict=False)]
    return [Intention(pause, number in mains) for number, pause in enumerate(pauses)]


def hunt(main_pid: int, intentions: list[Intention], draw: random.Random, start: float) -> None:
    """Carry out intentions, from the first on, for as long as the main process lives."""
    while intentions:
        intention = intentions[0]
        next_time = time.monotonic() + intention.pause_seconds
        while time.monotonic() < next_time or not children_of(main_pid):  # until it has some, it is only starting
            if not is_alive(main_pid):
                return
            time.sleep(LOOK_SECONDS)
        victim = main_pid if intention.is_main else _random_child(main_pid, draw)
        if victim is None or not _kill(victim):
            continue  # it ended by itself just now
        intentions.pop(0)
        print(json.dumps(asdict(Kill(victim, intention.is_main, time.monotonic() - start))), flush=True)
        if intention.is_main:
            return


def children_of(pid: int) -> list[int]:
    """The living children of a process, in the order of their pids."""
    pids = sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [child for child in pids if _parent_of(child) == pid]


def is_alive(pid: int) -> bool:
    return _parent_of(pid) is not None


def _parent_of(pid: int) -> int | None:
    """None for a process that is gone, or dead and not yet fetched."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent = stat.rpartition(")")[2].split()[:2]  # before it, the name, which may hold anything
    return None if state in "ZX" else int(parent)


def _random_child(main_pid: int, draw: random.Random) -> int | None:
    children = children_of(main_pid)
    return draw.choice(children) if children else None


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def main(arguments: Sequence[str]) -> None:
    seed, kills, seconds = int(arguments[0]), int(arguments[1]), float(arguments[2])
    draw, start = random.Random(seed), time.monotonic()
    intentions = plan(draw, kills, seconds)
    for line in sys.stdin:
        hunt(int(line), intentions, draw, start)


if __name__ == "__main__":
    main(sys.argv[1:])
