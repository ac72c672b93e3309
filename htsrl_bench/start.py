"""From `htsrl train` to the first step of an environment and to the first update."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium

from htsrl.config import Config, Experiment, Placement
from htsrl.config.presets import preset
from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.live_run import live_run
from htsrl_bench.process_tree import cpu_seconds, tree_of
from htsrl_bench.record import Summary, Table

STAMPED = "htsrl_bench.start:stamped_env"
WORKS = {
    "cartpole-ppo": Experiment("CartPole-v1", num_envs=16),
    "halfcheetah-ppo": preset("HalfCheetah-v5", "ppo"),
    "pong-a2c": preset("ALE/Pong-v5", "a2c"),
}
UNSTAMPED = ("pong-a2c",)
"""Families of environments are made by htsrl alone: no wrapper of ours gets between."""


class Stamping(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Leaves a file with the time of its process's first step."""

    def __init__(self, env: gymnasium.Env[Any, Any], folder: str) -> None:
        super().__init__(env)
        self._file: Path | None = Path(folder) / str(os.getpid())

    def step(self, action: Any) -> Any:
        if self._file is not None and not self._file.exists():
            self._file.write_text(f"{time.monotonic()}")
        self._file = None
        return super().step(action)


def stamped_env(env_id: str, folder: str) -> gymnasium.Env[Any, Any]:
    return Stamping(gymnasium.make(env_id), folder)


@dataclass(frozen=True)
class Start:
    """Of one run, in seconds from its command."""

    work: str
    first_step: float | None
    """Of the run's own environments: those that are looked at before do not count."""
    first_update: float
    cpu: float
    """Of all processes until then, however busy the machine."""


def measure(works: Sequence[str], repetitions: int) -> list[Start]:
    """The works take turns."""
    for work in works:
        if work not in WORKS:
            raise ConfigError(f"work {work!r} is not known; choose among {', '.join(WORKS)}")
    announcer, found = Announcer(repetitions * len(works)), []
    for _ in range(repetitions):
        for work in works:
            announcer.begin(work)
            found.append(_measure_once(work))
            announcer.end(f"{found[-1].first_update:.1f} s until the first update")
    return found


def _measure_once(work: str) -> Start:
    placement = Placement(log_every_steps=1, tensorboard=False, progress="off")
    with TemporaryDirectory(prefix="htsrl-bench-") as folder:
        begun = time.monotonic()
        with live_run(Config(_stamped(work, folder), placement)) as run:
            run.wait_until(lambda: bool(run.updates()))
            updated, cpu = time.monotonic() - begun, cpu_seconds(tree_of(run.pid))
            stamps = [file for file in Path(folder).iterdir() if file.name != str(run.pid)]
            steps = [float(file.read_text()) - begun for file in stamps]
    return Start(work, min(steps, default=None), updated, cpu)


def _stamped(work: str, folder: str) -> Experiment:
    experiment = WORKS[work]
    if work in UNSTAMPED:
        return experiment
    return replace(experiment, env=STAMPED, env_args={"env_id": experiment.env, "folder": folder})


def summary(found: Sequence[Start]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for work in dict.fromkeys(start.work for start in found):
        own = [start for start in found if start.work == work]
        steps = [start.first_step for start in own if start.first_step is not None]
        document[work] = {
            "first_step": asdict(Summary.of(steps)) if steps else None,
            "first_update": asdict(Summary.of([start.first_update for start in own])),
            "cpu": asdict(Summary.of([start.cpu for start in own])),
        }
    return document


def table(document: dict[str, Any], repetitions: int) -> Table:
    rows = [
        [work, *("" if of[key] is None else _seconds(of[key]) for key in ("first_step", "first_update", "cpu"))]
        for work, of in document.items()
    ]
    return Table(
        ["work", "first step, s", "first update, s", "CPU until then, s"],
        rows,
        [
            f"From the command to the first step of the run's own environments and until the first update is written, "
            f"median (lowest to highest) of {repetitions}; CPU time is that of all processes. The first update takes a "
            "whole rollout. No process is kept from another run.",
        ],
    )


def _seconds(of: dict[str, float]) -> str:
    return f"{of['median']:.1f} ({of['lowest']:.1f} to {of['highest']:.1f})"
