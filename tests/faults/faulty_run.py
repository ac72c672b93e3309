"""A small run with an environment that goes wrong, and somebody who kills its workers."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from fault_envs import Fault, Faulty

from htsrl import A2C, Config, Experiment, Placement, RunResult, train
from htsrl.seeding import reset_seed
from htsrl_bench.process_tree import workers_named

WORKERS = ("executor 0", "actor 0", "learner")
FAULT_STEP = 12  # of environment 0, in its second rollout
TOTAL_STEPS = 400
LONG_ENOUGH: dict[str, Any] = {"num_envs": 2, "total_steps": 1600}
ON_THREADS: dict[str, Any] = {"executor_threads": True, "num_actors": 1}
JITTER = 0.005
"""With these delays such a run takes seconds, so that nobody comes too late to harm it."""


class Assassin(threading.Thread):
    """Kills one worker of a run of this process as soon as it has learned something."""

    signal = signal.SIGKILL

    def __init__(self, run_dir: Path, victim: str) -> None:
        super().__init__(daemon=True)
        self._metrics_file = run_dir / "metrics.jsonl"
        self._victim = victim
        self.pid = -1

    def run(self) -> None:
        while not (self._metrics_file.exists() and self._metrics_file.read_text()):
            time.sleep(0.005)
        (self.pid,) = workers_named(self._victim, os.getpid())
        os.kill(self.pid, self.signal)


def train_with(
    tmp_path: Path,
    fault: Fault,
    num_envs: int = 1,
    total_steps: int = TOTAL_STEPS,
    deadline_seconds: float = 20.0,
    once: str | None = None,
    episode_steps: int = 1000,
    fault_step: int = FAULT_STEP,
    step_seconds: float = 0.0,
    schedule: Any = "hts",
    **placement: Any,
) -> RunResult:
    """Train here, with one environment that goes wrong at its step 12, in the second rollout."""
    seed = reset_seed(seed=1, env=0, episode=0)
    experiment = Experiment(
        env=partial(
            Faulty,
            fault,
            fault_seed=seed,
            fault_step=fault_step,
            episode_steps=episode_steps,
            step_seconds=step_seconds,
            once=once,
        ),
        algorithm=A2C(),
        num_envs=num_envs,
        schedule=schedule,
        sync_interval=8,
        total_steps=total_steps,
    )
    quietly: dict[str, Any] = {
        "run_dir": tmp_path / "run",
        "tensorboard": False,
        "progress": "off",
        "log_every_steps": 1,
        "num_executors": 1,
    }
    return train(Config(experiment, replace(Placement(**quietly), deadline_seconds=deadline_seconds, **placement)))


def undisturbed(tmp_path: Path, **settings: Any) -> str:
    inline: dict[str, Any] = {"backend": "inline", "run_dir": tmp_path / "undisturbed"}
    return train_with(tmp_path, "none", **settings, **inline).digest


@cache
def long_enough_undisturbed() -> str:
    with tempfile.TemporaryDirectory() as folder:
        return undisturbed(Path(folder), **LONG_ENOUGH)


def assert_leads_to_the_fault(path: Path) -> None:
    reproducer = json.loads(path.read_text())
    assert (reproducer["index"], reproducer["episode"], reproducer["state"]) == (0, 0, None)
    assert reproducer["reset_seed"] == reset_seed(seed=1, env=0, episode=0)
    env = Faulty("raise", fault_seed=reproducer["reset_seed"], fault_step=FAULT_STEP)
    env.reset(seed=reproducer["reset_seed"])
    *harmless, last = reproducer["actions"]
    for action in harmless:
        env.step(action)
    with pytest.raises(ValueError, match="the robot fell over"):
        env.step(last)
