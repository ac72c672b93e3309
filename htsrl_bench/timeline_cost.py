"""What recording the timeline costs: CPU time of a step with it and without, both runs at the same moment.

Each run is one process, inline, so whatever else the machine does meanwhile holds up both alike. Its own part of a run
is `python -m htsrl_bench.timeline_cost`, told the work, the steps and the side.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from htsrl.config import Config, Placement
from htsrl.errors import ConfigError, HtsrlError
from htsrl.observers.observer import Observer
from htsrl_bench.announcer import Announcer
from htsrl_bench.record import Summary, Table
from htsrl_bench.works import WORKS, known

WITHOUT, WITH = "without", "with"
WARM_UP_SHARE = 0.1
"""Of a run's updates, which are not counted."""
GOAL = 0.01


@dataclass(frozen=True)
class TimelineBench:
    """The work, and how many environment steps each of its runs makes."""

    work: tuple[str, ...]
    steps_per_run: tuple[int, ...]
    repetitions: int

    def __post_init__(self) -> None:
        known(self.work)
        if self.repetitions < 1:
            raise ConfigError(f"repetitions={self.repetitions} must be at least 1")
        if len(self.steps_per_run) != len(self.work):
            raise ConfigError(f"steps_per_run={self.steps_per_run} must have a number for each of {self.work}")


@dataclass(frozen=True)
class Pair:
    """CPU microseconds of one environment step, all told."""

    work: str
    without: float
    with_timeline: float

    @property
    def ratio(self) -> float:
        return self.with_timeline / self.without


def config_of(work: str, steps: int, side: str, run_dir: Path | None = None) -> Config:
    experiment = replace(WORKS[work], total_steps=steps)
    quiet = Placement("inline", run_dir=run_dir, tensorboard=False, progress="off", check_env=False)
    return Config(experiment, replace(quiet, timeline=side == WITH))


def measure(bench: TimelineBench) -> list[Pair]:
    announcer, pairs = Announcer(len(bench.work) * bench.repetitions), []
    for repetition in range(bench.repetitions):
        for work, steps in zip(bench.work, bench.steps_per_run, strict=True):
            announcer.begin(work)
            sides = (WITHOUT, WITH) if repetition % 2 else (WITH, WITHOUT)  # who is started first
            pairs.append(_pair(work, {side: _started(work, steps, side) for side in sides}))
            announcer.end(f"{pairs[-1].ratio - 1:+.1%}")
    return pairs


def _started(work: str, steps: int, side: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", __name__, work, str(steps), side]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def _pair(work: str, runs: Mapping[str, subprocess.Popen[bytes]]) -> Pair:
    found = {}
    for side, process in runs.items():
        output, _ = process.communicate()
        if process.returncode:
            raise HtsrlError(f"the run {side} a timeline ended with {process.returncode}")
        found[side] = json.loads(output.splitlines()[-1])
    if found[WITH]["digest"] != found[WITHOUT]["digest"]:
        raise HtsrlError(f"the timeline has changed the digest of {work}")
    return Pair(work, found[WITHOUT]["microseconds"], found[WITH]["microseconds"])


class CpuClock(Observer):
    """CPU seconds of this process at every update."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_update(self, event: Any) -> None:
        self.seconds.append(time.process_time())


def run_side(work: str, steps: int, side: str) -> dict[str, Any]:
    from htsrl import train

    clock = CpuClock()
    with TemporaryDirectory(prefix="htsrl-bench-") as folder:
        result = train(config_of(work, steps, side, Path(folder) / "run"), observers=[clock])
    seconds = clock.seconds[int(WARM_UP_SHARE * len(clock.seconds)) :]
    steps_each = result.steps / result.updates
    microseconds = (seconds[-1] - seconds[0]) / ((len(seconds) - 1) * steps_each) * 1e6
    return {"microseconds": microseconds, "digest": result.digest}


def summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    return {
        work: {
            "without": asdict(Summary.of([pair.without for pair in pairs if pair.work == work])),
            "with": asdict(Summary.of([pair.with_timeline for pair in pairs if pair.work == work])),
            "ratio": asdict(Summary.of([pair.ratio for pair in pairs if pair.work == work])),
        }
        for work in dict.fromkeys(pair.work for pair in pairs)
    }


def table(bench: TimelineBench, found: Mapping[str, Any]) -> Table:
    rows = [
        [
            work,
            _plain(of["without"]),
            _plain(of["with"]),
            "{median:.3f} ({lowest:.3f} to {highest:.3f})".format(**of["ratio"]),
        ]
        for work, of in found.items()
    ]
    steps = ", ".join(f"{steps:,} ({work})" for work, steps in zip(bench.work, bench.steps_per_run, strict=True))
    return Table(
        ["work", "without", "with", "with / without"],
        rows,
        [
            f"CPU microseconds of an environment step, inline, all roles together. Steps of a run: {steps}. Median "
            f"(lowest to highest) of {bench.repetitions} pairs; the two runs of a pair run side by side and have the "
            f"same digest; the ratio is that of each pair. The goal is below {1 + GOAL:.2f}."
        ],
    )


def _plain(of: Mapping[str, float]) -> str:
    return "{median:.1f} ({lowest:.1f} to {highest:.1f})".format(**of)


if __name__ == "__main__":
    print(json.dumps(run_side(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
