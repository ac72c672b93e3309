"""A worker that dies or falls silent ends the run at once, with its name, and nobody is left behind."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from fault_envs import DIED_AT, Fault, Faulty
from live_run import LiveRun, patience, survivors

from htsrl import A2C, Config, Experiment, PeerDied, Placement, WaitTimeout, train
from htsrl.seeding import reset_seed

STORAGE = r"storage [01] \(update \d+\)"


WORKERS = ("executor 0", "actor 0", "learner")  # in the order in which they are started
SEPARATE = ("--num-envs", "2", "--num-executors", "1", "--num-actors", "1")


def obituary(victim: str, pid: int) -> str:
    learner = "it" if victim == "learner" else "the learner"
    return rf"{victim} \(pid {pid}\) was killed by SIGKILL while {learner} (read|waited for) {STORAGE}"


def test_a_killed_executor_ends_the_command_at_once_with_its_name_and_exit_code_1(tmp_path: Path) -> None:
    run = LiveRun(tmp_path, "Faulty-v0", "--import", "fault_envs", *SEPARATE)
    try:
        run.wait_until_it_learns()
        killed = run.workers[WORKERS.index("executor 0")]
        killed.send_signal(signal.SIGKILL)
        seconds = run.wait_for_end()
        left_behind = survivors(run.workers, seconds=0.0)
    finally:
        run.clean_up()
    assert run.exit_code == 1
    assert re.fullmatch(rf"error: {obituary('executor 0', killed.pid)}\n", run.stderr), run.stderr
    assert left_behind == []
    assert seconds < patience(2.0)


class Assassin(threading.Thread):
    """Kills one worker of a run of this process as soon as it has learned something."""

    def __init__(self, run_dir: Path, victim: str) -> None:
        super().__init__(daemon=True)
        self._metrics_file = run_dir / "metrics.jsonl"
        self._victim = victim
        self.pid = -1
        self.killed_at = 0.0

    def run(self) -> None:
        while not (self._metrics_file.exists() and self._metrics_file.read_text()):
            time.sleep(0.02)
        workers = sorted(psutil.Process().children(), key=lambda process: (process.create_time(), process.pid))
        self.pid = workers[WORKERS.index(self._victim)].pid
        self.killed_at = time.time()
        os.kill(self.pid, signal.SIGKILL)


@pytest.mark.parametrize("victim", ["actor 0", "learner"])
def test_a_killed_worker_is_named_at_once_and_the_others_end(tmp_path: Path, victim: str) -> None:
    assassin = Assassin(tmp_path / "run", victim)
    assassin.start()
    with pytest.raises(PeerDied) as death:
        train_with(tmp_path, "none", num_envs=2, num_actors=1)
    seconds = time.time() - assassin.killed_at
    assert re.fullmatch(obituary(victim, assassin.pid), str(death.value)), str(death.value)
    assert psutil.Process().children() == []
    assert seconds < patience(2.0)


def train_with(
    tmp_path: Path, fault: Fault, num_envs: int = 1, deadline_seconds: float = 20.0, **placement: Any
) -> None:
    """Train here, with one environment that goes wrong at its step 12, in the second rollout."""
    seed = reset_seed(seed=1, env=0, episode=0)
    experiment = Experiment(
        env=partial(Faulty, fault, fault_seed=seed, fault_step=12),
        algorithm=A2C(),
        num_envs=num_envs,
        sync_interval=8,
        total_steps=20_000,
    )
    quietly: dict[str, Any] = {
        "run_dir": tmp_path / "run",
        "tensorboard": False,
        "progress": "off",
        "log_every_steps": 1,
    }
    train(Config(experiment, Placement(num_executors=1, deadline_seconds=deadline_seconds, **quietly, **placement)))


def processes_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != psutil.Process().pid and process.cwd() == str(folder):
                found.append(process)
        except psutil.Error:  # gone meanwhile
            continue
    return found


def test_an_environment_that_ends_its_process_is_found_out_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even though a child of the environment lives on, with all of the worker's files open."""
    monkeypatch.chdir(tmp_path)
    try:
        with pytest.raises(
            PeerDied, match=rf"^executor 0 with actor 0 \(pid \d+\) exited with code 3 while .*{STORAGE}$"
        ):
            train_with(tmp_path, "fork and exit")
        seconds = time.time() - float(Path(DIED_AT).read_text())
        assert psutil.Process().children() == []
    finally:
        for process in processes_in(tmp_path):
            process.kill()
    assert seconds < patience(2.0)


def test_a_wait_beyond_the_deadline_says_who_waited_for_what(tmp_path: Path) -> None:
    expected = (
        r"^learner \(pid \d+\) waited deadline_seconds=2 for storage [01] \(rollout [01]\) from environments \[0\]$"
    )
    with pytest.raises(WaitTimeout, match=expected):
        train_with(tmp_path, "hang", deadline_seconds=2.0)
    assert psutil.Process().children() == []
