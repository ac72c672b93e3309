"""A process and its descendants as Linux tells them: what they do, their CPU time, their memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from htsrl.processes.process_name import LETTERS_OF_A_NAME, name_of_process
from htsrl_bench.killer import children_of

KIBIBYTE, MEGABYTE = 1024, 1e6


@dataclass(frozen=True)
class Memory:
    """Of one process, in MB."""

    name: str
    """What the process does; the kernel keeps fifteen letters of it."""
    pss: float
    """Its share of all that it maps: what others map too is counted in equal parts, so the sum over a tree is right."""
    private: float
    """What nobody else maps: what would be free without the process."""


def tree_of(pid: int) -> list[int]:
    """A process, its children, theirs, and so on."""
    return [pid, *(below for child in children_of(pid) for below in tree_of(child))]


def workers_named(role: str, main_pid: int) -> list[int]:
    """The workers of a run whose names begin like this.

    Nothing else tells who is who: pids begin anew at some number, and two workers may start within a tick of the clock.
    """
    assert len(role) < LETTERS_OF_A_NAME, f"the kernel has cut {role!r}"
    return [pid for pid in children_of(main_pid) if name_of_process(pid).startswith(role)]


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time so far, of all threads, and of children that have ended."""
    ticks = 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:  # it has just ended, and its parent has its time
            continue
        fields = stat.rpartition(")")[2].split()  # before it, the name, which may hold anything
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> Memory:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    kibibytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    private = kibibytes["Private_Clean"] + kibibytes["Private_Dirty"]
    return Memory(name_of_process(pid), _megabytes(kibibytes["Pss"]), _megabytes(private))


def num_descriptors(pid: int) -> int:
    """Files, pipes and sockets that it holds open; none of one that is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _megabytes(kibibytes: int) -> float:
    return kibibytes * KIBIBYTE / MEGABYTE
