"""Environments on threads of one executor: one that goes wrong is told from the others, and nothing is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fault_envs import Fault
from faulty_run import ON_THREADS, assert_leads_to_the_fault, train_with, undisturbed
from helpers import workers_left
from live_run import patience

from htsrl import EnvironmentFailure

BESIDE_OTHERS: dict[str, Any] = {"num_envs": 3, "step_seconds": 0.002}
"""Environments that are in the middle of their steps when one of them goes wrong."""


@pytest.mark.parametrize("fault", ["raise", "sys.exit", "segfault", "hang"])
def test_one_that_fails_once_on_a_thread_beside_others_is_brought_back_and_the_bits_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.chdir(tmp_path)
    deadline_seconds = patience(6.0) if fault == "hang" else 20.0
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
        train_with(tmp_path, "hang", deadline_seconds=patience(2.0), **settings)
    assert re.match(r"environment 0 of executor 0 \(pid \d+\) got nowhere for deadline_seconds=", str(failure.value))
    assert re.search(r'fault_envs.py", line \d+ in _go_wrong', str(failure.value))
    assert_leads_to_the_fault(tmp_path / "run" / "failed_environment_0.json")
    assert workers_left() == []


def test_one_that_crashes_again_on_a_thread_is_told_from_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is in the same step each time, and they are not."""
    with pytest.raises(EnvironmentFailure, match=r"^in environment 0, executor 0 \(pid \d+\) was killed by SIGSEGV"):
        train_with(tmp_path, "segfault", num_envs=8, step_seconds=0.002, **ON_THREADS)
    assert capfd.readouterr().err.count("is started again") <= 6
    assert_leads_to_the_fault(tmp_path / "run" / "failed_environment_0.json")
    assert workers_left() == []
