"""A worker that dies is started again and nothing is lost; one that dies of the same thing again ends the run."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import threading
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from fault_envs import DIED_AT, Fault, Faulty
from live_run import LiveRun, patience, survivors

from htsrl import A2C, Config, EnvironmentFailure, Experiment, Placement, RunResult, resume, train
from htsrl.seeding import reset_seed

STORAGE = r"storage [01] \(update \d+\)"


WORKERS = ("executor 0", "actor 0", "learner")  # in the order in which they are started
SEPARATE = ("--num-envs", "2", "--num-executors", "1", "--num-actors", "1")
FAULT_STEP = 12  # of environment 0, in its second rollout
TOTAL_STEPS = 400
LONG_ENOUGH: dict[str, Any] = {"num_envs": 2, "total_steps": 1600}
ON_THREADS: dict[str, Any] = {"executor_threads": True, "num_actors": 1}
BESIDE_OTHERS: dict[str, Any] = {"num_envs": 3, "step_seconds": 0.002}
"""Environments that are in the middle of their steps when one of them goes wrong."""
JITTER = 0.005
"""With these delays such a run takes seconds, so that nobody comes too late to harm it."""


def obituary(victim: str, pid: int) -> str:
    learner = "it" if victim == "learner" else "the learner"
    return rf"{victim} \(pid {pid}\) was killed by SIGKILL while {learner} (read|waited for) {STORAGE}"


def test_without_restarts_a_killed_executor_ends_the_command_at_once_with_its_name_and_exit_code_1(
    tmp_path: Path,
) -> None:
    run = LiveRun(tmp_path, "Faulty-v0", "--import", "fault_envs", "--no-restart-workers", *SEPARATE)
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
    assert seconds < patience(4.0)


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
        workers = sorted(psutil.Process().children(), key=lambda process: (process.create_time(), process.pid))
        self.pid = workers[WORKERS.index(self._victim)].pid
        os.kill(self.pid, self.signal)


@pytest.mark.parametrize(
    ("victim", "on_threads"), [*((victim, False) for victim in WORKERS), ("executor 0", True), ("actor 0", True)]
)
def test_a_killed_worker_is_named_and_started_again_and_the_bits_are_the_same(
    tmp_path: Path, victim: str, on_threads: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    assassin = Assassin(tmp_path / "run", victim)
    assassin.start()
    slow: dict[str, Any] = {"jitter_seconds": JITTER, "executor_threads": on_threads}
    result = train_with(tmp_path, "none", **LONG_ENOUGH, num_actors=1, **slow)
    said = capfd.readouterr().err
    assert re.fullmatch(rf"{obituary(victim, assassin.pid)}; {victim} is started again\n", said), said
    assert result.restarts == 1
    assert result.digest == long_enough_undisturbed()
    assert psutil.Process().children() == []


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


@pytest.mark.parametrize("fault", ["raise", "sys.exit", "segfault", "hang"])
def test_an_environment_that_fails_once_is_brought_back_and_the_bits_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.chdir(tmp_path)
    result = train_with(tmp_path, fault, once="it_happened", deadline_seconds=3.0 if fault == "hang" else 20.0)
    assert Path("it_happened").exists()
    assert result.restarts == 1
    assert result.digest == undisturbed(tmp_path)


@pytest.mark.parametrize("fault", ["raise", "sys.exit", "segfault", "hang"])
def test_one_that_fails_once_on_a_thread_beside_others_is_brought_back_and_the_bits_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.chdir(tmp_path)
    deadline_seconds = patience(3.0) if fault == "hang" else 20.0
    settings: dict[str, Any] = {**BESIDE_OTHERS, **ON_THREADS, "deadline_seconds": deadline_seconds}
    result = train_with(tmp_path, fault, once="it_happened", **settings)
    assert Path("it_happened").exists()
    assert result.restarts == 1
    assert result.digest == undisturbed(tmp_path, **BESIDE_OTHERS)


@pytest.mark.parametrize("schedule", ["hts", "async"])
def test_one_that_hangs_again_on_a_thread_ends_the_run_with_its_stack_and_what_led_there(
    tmp_path: Path, schedule: Any
) -> None:
    """Even where the others do not wait for it."""
    settings: dict[str, Any] = {**BESIDE_OTHERS, **ON_THREADS, "total_steps": 1_000_000, "schedule": schedule}
    with pytest.raises(EnvironmentFailure) as failure:
        train_with(tmp_path, "hang", deadline_seconds=2.0, **settings)
    assert re.match(r"environment 0 of executor 0 \(pid \d+\) got nowhere for deadline_seconds=2", str(failure.value))
    assert re.search(r'fault_envs.py", line \d+ in _go_wrong', str(failure.value))
    assert_leads_to_the_fault(tmp_path / "run" / "failed_environment_0.json")
    assert psutil.Process().children() == []


def test_one_that_crashes_again_on_a_thread_is_told_from_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is in the same step each time, and they are not."""
    with pytest.raises(EnvironmentFailure, match=r"^in environment 0, executor 0 \(pid \d+\) was killed by SIGSEGV"):
        train_with(tmp_path, "segfault", num_envs=8, step_seconds=0.002, **ON_THREADS)
    assert capfd.readouterr().err.count("is started again") <= 6
    assert_leads_to_the_fault(tmp_path / "run" / "failed_environment_0.json")
    assert psutil.Process().children() == []


def test_an_environment_that_hangs_again_ends_the_run_with_its_stack_and_what_led_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(EnvironmentFailure) as failure:
        train_with(tmp_path, "hang", deadline_seconds=2.0)
    assert re.match(
        r"environment 0 of executor 0 with actor 0 \(pid \d+\) got nowhere for deadline_seconds=2; it was in\n",
        str(failure.value),
    )
    assert re.search(r'fault_envs.py", line \d+ in _go_wrong', str(failure.value))
    assert_leads_to_the_fault(tmp_path / "run" / "failed_environment_0.json")
    said = capfd.readouterr().err
    assert said.count("is started again") == 1
    assert re.search(r'fault_envs.py", line \d+ in _go_wrong', said), "where it hung the first time"
    assert psutil.Process().children() == []


@pytest.mark.parametrize(
    ("fault", "placement"), [("raise", {}), ("not finite", {}), ("shape", {}), ("raise", ON_THREADS)]
)
def test_an_environment_that_fails_again_ends_the_run_with_what_led_there_and_a_state_to_go_on_from(
    tmp_path: Path, fault: Fault, placement: dict[str, Any]
) -> None:
    did = "raised ValueError" if fault == "raise" else "broke a rule"
    with pytest.raises(EnvironmentFailure, match=rf"^environment 0 {did} in step\([01]\) at its step 12"):
        train_with(tmp_path, fault, **placement)
    assert_leads_to_the_fault(tmp_path / "run" / "failed_environment_0.json")
    mended = partial(Faulty, "none", fault_seed=reset_seed(1, 0, 0), fault_step=FAULT_STEP)
    assert resume(tmp_path / "run", env=mended).digest == undisturbed(tmp_path)


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


def processes_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != psutil.Process().pid and process.cwd() == str(folder):
                found.append(process)
        except psutil.Error:  # gone meanwhile
            continue
    return found


def test_an_environment_that_ends_its_process_again_is_found_out_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even though a child of the environment has all of the worker's files open; it does not live on."""
    monkeypatch.chdir(tmp_path)
    who = r"in environment 0, executor 0 with actor 0 \(pid \d+\)"
    with pytest.raises(EnvironmentFailure, match=rf"^{who} exited with code 3 while .*{STORAGE}$"):
        train_with(tmp_path, "fork and exit")
    assert_leads_to_the_fault(tmp_path / "run" / "failed_environment_0.json")
    seconds = time.time() - float(Path(DIED_AT).read_text())
    assert survivors(processes_in(tmp_path), seconds=1.0) == []
    assert seconds < patience(2.0)


def test_an_environment_that_opens_more_and_more_files_gets_a_new_process_and_the_bits_are_the_same(
    tmp_path: Path,
) -> None:
    result = train_with(tmp_path, "open files", episode_steps=50)
    assert result.restarts >= 1
    assert result.digest == undisturbed(tmp_path, episode_steps=50)


def test_an_environment_that_takes_more_and_more_memory_gets_a_new_process_and_the_bits_are_the_same(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {"episode_steps": 10, "total_steps": 64}
    result = train_with(tmp_path, "leak", num_actors=1, **settings)
    assert result.restarts == 1
    assert "environment 0 raised MemoryError in step" in capfd.readouterr().err
    assert result.digest == undisturbed(tmp_path, **settings)


def test_an_environment_that_is_killed_for_want_of_memory_in_one_step_again_and_again_ends_the_run_with_what_led_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    who = r"in environment 0, executor 0 with actor 0 \(pid \d+\)"
    with pytest.raises(
        EnvironmentFailure, match=rf"^{who} was killed by SIGKILL while .*, 3 times in the same step\. "
    ):
        train_with(tmp_path, "hog")
    said = capfd.readouterr().err
    assert said.count("is started again") == 2
    assert f"seed {reset_seed(seed=1, env=0, episode=0)} and its actions" in said
    assert f"`htsrl resume {tmp_path / 'run'}` goes on after update " in said
    assert_leads_to_the_fault(tmp_path / "run" / "failed_environment_0.json")
    mended = partial(Faulty, "none", fault_seed=reset_seed(1, 0, 0), fault_step=FAULT_STEP)
    assert resume(tmp_path / "run", env=mended).digest == undisturbed(tmp_path)


@pytest.mark.parametrize(("victim", "on_threads"), [("actor 0", False), ("executor 0", True)])
def test_a_worker_that_is_stopped_is_replaced_after_the_deadline_and_the_bits_are_the_same(
    tmp_path: Path, victim: str, on_threads: bool
) -> None:
    class Stopper(Assassin):
        signal = signal.SIGSTOP

    stopper = Stopper(tmp_path / "run", victim)
    stopper.start()
    result = train_with(
        tmp_path,
        "none",
        **LONG_ENOUGH,
        deadline_seconds=patience(3.0),
        num_actors=1,
        executor_threads=on_threads,
        jitter_seconds=JITTER,
    )
    assert result.restarts == 1
    assert result.digest == long_enough_undisturbed()
    assert psutil.Process().children() == []


def test_an_environment_that_takes_long_to_be_brought_back_is_not_taken_to_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its single steps are quick enough; there are many of them to be played again."""
    monkeypatch.chdir(tmp_path)
    slow: dict[str, Any] = {"step_seconds": 0.05, "total_steps": 160, "fault_step": 150}
    result = train_with(tmp_path, "raise", once="it_happened", deadline_seconds=4.0, **slow)
    assert result.restarts == 1
    assert result.digest == undisturbed(tmp_path, total_steps=160)
