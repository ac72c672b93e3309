"""A worker that dies is started again and nothing is lost; one that dies of the same thing again ends the run."""

from __future__ import annotations

import re
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from fault_envs import DIED_AT, Fault, Faulty
from faulty_run import (
    FAULT_STEP,
    JITTER,
    LONG_ENOUGH,
    ON_THREADS,
    WORKERS,
    Assassin,
    assert_leads_to_the_fault,
    long_enough_undisturbed,
    train_with,
    undisturbed,
)
from helpers import workers_left
from live_run import AT_ONCE_SECONDS, LiveRun, patience, survivors

from htsrl import EnvironmentFailure, resume
from htsrl.seeding import reset_seed

STORAGE = r"storage [01] \(update \d+\)"
SEPARATE = ("--num-envs", "2", "--num-executors", "1", "--num-actors", "1")


def death_report(victim: str, pid: int) -> str:
    learner = "it" if victim == "learner" else "the learner"
    return rf"{victim} \(pid {pid}\) was killed by SIGKILL while {learner} (read|waited for) {STORAGE}"


def test_without_restarts_a_killed_executor_ends_the_command_at_once_with_its_name_and_exit_code_1(
    tmp_path: Path,
) -> None:
    run = LiveRun(tmp_path, "Faulty-v0", "--import", "fault_envs", "--no-restart-workers", *SEPARATE)
    try:
        run.wait_until_it_learns()
        killed = run.worker("executor 0")
        killed.send_signal(signal.SIGKILL)
        run.wait_for_end()
        left_behind = survivors(run.workers, seconds=0.0)
    finally:
        run.clean_up()
    assert run.exit_code == 1
    assert re.fullmatch(rf"error: {death_report('executor 0', killed.pid)}\n", run.stderr), run.stderr
    assert left_behind == []


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
    assert re.fullmatch(rf"{death_report(victim, assassin.pid)}; {victim} is started again\n", said), said
    assert result.restarts == 1
    assert result.digest == long_enough_undisturbed()
    assert workers_left() == []


@pytest.mark.parametrize("fault", ["raise", "sys.exit", "segfault", "hang"])
def test_an_environment_that_fails_once_is_brought_back_and_the_bits_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.chdir(tmp_path)
    result = train_with(
        tmp_path, fault, once="it_happened", deadline_seconds=patience(3.0 if fault == "hang" else 20.0)
    )
    assert Path("it_happened").exists()
    assert result.restarts == 1
    assert result.digest == undisturbed(tmp_path)


def test_an_environment_that_hangs_again_ends_the_run_with_its_stack_and_what_led_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seconds = patience(2.0)
    with pytest.raises(EnvironmentFailure) as failure:
        train_with(tmp_path, "hang", deadline_seconds=seconds)
    assert re.match(
        r"environment 0 of executor 0 with actor 0 \(pid \d+\) got nowhere for "
        rf"deadline_seconds={re.escape(f'{seconds:g}')}; it was in\n",
        str(failure.value),
    )
    assert re.search(r'fault_envs.py", line \d+ in _go_wrong', str(failure.value))
    assert_leads_to_the_fault(tmp_path / "run" / "failed_environment_0.json")
    said = capfd.readouterr().err
    assert said.count("is started again") == 1
    assert re.search(r'fault_envs.py", line \d+ in _go_wrong', said), "where it hung the first time"
    assert workers_left() == []


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
    assert survivors(processes_in(tmp_path)) == []
    assert seconds < AT_ONCE_SECONDS


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
    assert f"`htsrl resume {tmp_path / 'run'}` continues after update " in said
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
        deadline_seconds=patience(6.0),
        num_actors=1,
        executor_threads=on_threads,
        jitter_seconds=JITTER,
    )
    assert result.restarts == 1
    assert result.digest == long_enough_undisturbed()
    assert workers_left() == []


def test_an_environment_that_takes_long_to_be_brought_back_is_not_taken_to_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its single steps are quick enough; there are many of them to be played again."""
    monkeypatch.chdir(tmp_path)
    slow: dict[str, Any] = {"step_seconds": 0.05, "total_steps": 160, "fault_step": 150}
    result = train_with(tmp_path, "raise", once="it_happened", deadline_seconds=patience(4.0), **slow)
    assert result.restarts == 1
    assert result.digest == undisturbed(tmp_path, total_steps=160)
