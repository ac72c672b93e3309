"""Every role in a process of its own, over shared memory, watched by this one."""

from __future__ import annotations

from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.supervisor import Listeners, Supervisor


def run_processes(blueprint: Blueprint, block: SharedArrays, listeners: Listeners) -> None:
    """Train to the end in worker processes, reporting after every update; leaves no process behind."""
    supervisor = Supervisor(blueprint, block, listeners)
    try:
        supervisor.start()
        supervisor.watch()
    finally:
        supervisor.stop()
