"""How long a run stands still when one of its executors is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from htsrl.config import Config, Placement
from htsrl.config.presets import preset
from htsrl.runs.folder import RunFolder
from htsrl_bench.announcer import Announcer
from htsrl_bench.live_run import LiveRun, live_run
from htsrl_bench.process_tree import workers_named
from htsrl_bench.record import Table

ENV_ID = "ALE/Pong-v5"
PAUSE_SECONDS = 10.0
"""Between two kills, at least; the next one also waits for a spare process to have its preparations behind it."""


@dataclass(frozen=True)
class Standstill:
    """What one kill did to the run."""

    seconds: float
    """From the kill to the next barrier that needed the worker."""
    usual_seconds: float
    """Between two barriers, otherwise."""

    @property
    def lost_seconds(self) -> float:
        return max(0.0, self.seconds - self.usual_seconds)


def config() -> Config:
    return Config(preset(ENV_ID, "a2c"), Placement(num_executors=2, tensorboard=False, progress="off"))


def measure(kills: int) -> list[Standstill]:
    """Kill an executor, time and again, and look for when barriers are recorded."""
    announcer = Announcer(kills)
    with live_run(config()) as run:
        return [_kill_once(run, number, announcer) for number in range(kills)]


def _kill_once(run: LiveRun, number: int, announcer: Announcer) -> Standstill:
    announcer.begin(f"{ENV_ID}, kill {number + 1}")
    run.wait_until(lambda: _num_barriers(run.folder) > 0 and bool(workers_named("spare", run.pid)))
    before, start = _num_barriers(run.folder), time.monotonic()
    time.sleep(PAUSE_SECONDS)
    usual = (time.monotonic() - start) / max(1, _num_barriers(run.folder) - before)
    executors = workers_named("executor", run.pid)
    os.kill(executors[number % len(executors)], signal.SIGKILL)
    killed = time.monotonic()
    barriers = _num_barriers(run.folder)
    # Up to two rollouts are complete without the dead; the one after them is not.
    run.wait_until(lambda: _num_barriers(run.folder) >= barriers + 3)
    standstill = Standstill(time.monotonic() - killed - 2 * usual, usual)
    announcer.end(f"{standstill.seconds:.2f} s")
    return standstill


def _num_barriers(folder: RunFolder) -> int:
    return folder.digest_file.read_bytes().count(b"\n") if folder.digest_file.exists() else 0


def summary(measured: Sequence[Standstill]) -> dict[str, Any]:
    lost = float(np.median([standstill.lost_seconds for standstill in measured]))
    return {
        "median_standstill_seconds": float(np.median([standstill.seconds for standstill in measured])),
        "longest_standstill_seconds": max(standstill.seconds for standstill in measured),
        "throughput_lost_at_a_kill_a_minute": lost / 60.0,
    }


def repetitions(measured: Sequence[Standstill]) -> list[dict[str, Any]]:
    return [asdict(standstill) for standstill in measured]


def table(document: dict[str, Any], measured: Sequence[Standstill]) -> Table:
    row = [
        str(len(measured)),
        f"{document['median_standstill_seconds']:.2f} s",
        f"{document['longest_standstill_seconds']:.2f} s",
        f"{np.median([standstill.usual_seconds for standstill in measured]):.2f} s",
        f"{document['throughput_lost_at_a_kill_a_minute']:.1%}",
    ]
    headings = ["kills", "median standstill", "longest", "between barriers otherwise", "lost at a kill a minute"]
    return Table(
        headings,
        [row],
        [
            f"SIGKILL of an executor of {ENV_ID} (A2C preset, two executors with 8 environments each), and how long it "
            "takes until the next barrier that needs it: noticing, a process, its environments, their states, the "
            "rollout made again.",
        ],
    )
