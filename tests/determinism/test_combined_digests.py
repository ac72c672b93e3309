"""Law 2 for memory, masks, spaces of parts and teams, all at once: one digest over placements, timing and resumes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from combinations import COMBINATIONS, SIMULATORS, Schedule, combination, oracle
from helpers import Outcome, assert_same_run, run

from htsrl import Config, Placement, resume, train

NUM_UPDATES = 8
NUM_SIMULATOR_UPDATES = 4
LAYOUTS = [
    {"num_executors": 1, "num_actors": 1},
    {"num_executors": 2, "num_actors": 0, "verify_storages": True},
    {"num_executors": 4, "num_actors": 2, "jitter_seconds": 2e-4},
]
PROCESSES: list[tuple[str, Schedule, dict[str, Any]]] = [
    ("lstm_ppo", "sync", {"num_executors": 2, "num_actors": 0}),
    ("gru_a2c", "hts", {"num_executors": 4, "num_actors": 2, "jitter_seconds": 2e-3}),
    ("dict_mask_lstm", "lockstep", {"num_executors": 2, "num_actors": 2, "jitter_seconds": 1e-3}),
    ("hybrid_gru", "hts", {"num_executors": 1, "num_actors": 1, "verify_storages": True}),
    ("team_mask_lstm", "hts", {"num_executors": 2, "num_actors": 1, "jitter_seconds": 2e-3, "verify_storages": True}),
]


def by_name(placement: dict[str, Any]) -> str:
    extras = "".join(f"-{name}" for name in ("jitter_seconds", "verify_storages") if name in placement)
    return f"E{placement['num_executors']}-A{placement['num_actors']}{extras}"


def oracle_of(name: str, num_updates: int, schedule: Schedule) -> Outcome:
    """A barrier at every step changes nothing but the pace."""
    return oracle(name, num_updates, "sync" if schedule == "lockstep" else schedule)


@pytest.mark.parametrize("worker_layout", LAYOUTS, ids=by_name)
@pytest.mark.parametrize("schedule", ["hts", pytest.param("sync", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_number_of_executors_and_actors_does_not_change_the_digest(
    name: str, schedule: Schedule, worker_layout: dict[str, Any]
) -> None:
    outcome = run(combination(name, NUM_UPDATES, schedule), **worker_layout)
    assert_same_run(outcome, oracle(name, NUM_UPDATES, schedule))


@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_barrier_at_every_step_does_not_change_the_digest_of_sync(name: str) -> None:
    lockstep = run(combination(name, NUM_UPDATES, "lockstep"), num_executors=2, num_actors=2, verify_storages=True)
    assert_same_run(lockstep, oracle_of(name, NUM_UPDATES, "lockstep"))


@pytest.mark.parametrize(
    ("name", "schedule", "worker_layout"), [pytest.param(*p, id=f"{p[0]}-{p[1]}-{by_name(p[2])}") for p in PROCESSES]
)
def test_processes_do_not_change_the_digest(name: str, schedule: Schedule, worker_layout: dict[str, Any]) -> None:
    outcome = run(combination(name, NUM_UPDATES, schedule), backend="processes", **worker_layout)
    assert_same_run(outcome, oracle_of(name, NUM_UPDATES, schedule))


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """The folder of a run that was never stopped, with a checkpoint of every barrier."""

    @cache
    def folder_of(name: str, num_updates: int) -> Path:
        run_dir = tmp_path_factory.mktemp(name) / "run"
        placement = quiet(run_dir, checkpoint_every_updates=1, keep_checkpoints=num_updates + 1)
        train(Config(combination(name, num_updates), placement))
        return run_dir

    return folder_of


def quiet(run_dir: Path | None = None, **settings: Any) -> Placement:
    inline: dict[str, Any] = {"backend": "inline", "num_executors": 2, "num_actors": 1}
    return Placement(run_dir=run_dir, tensorboard=False, progress="off", **(inline | settings))


def assert_resumes_from(barrier: int, run_dir: Path, folder: Path, **settings: Any) -> None:
    copy = folder / "run"
    others = [path.name for path in (run_dir / "checkpoints").iterdir() if path.name != f"{barrier:09d}"]
    shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns("policy.safetensors", "result.json", *others))
    resume(copy, placement=quiet(**settings))
    assert_same_run(Outcome.read(copy), Outcome.read(run_dir))


@pytest.mark.parametrize("barrier", [4, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, NUM_UPDATES - 1))])
@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_run_resumed_from_a_barrier_ends_with_the_same_bits(
    tmp_path: Path, whole_run: Callable[[str, int], Path], name: str, barrier: int
) -> None:
    whole = whole_run(name, NUM_UPDATES)
    assert_same_run(Outcome.read(whole), oracle(name, NUM_UPDATES))
    assert_resumes_from(barrier, whole, tmp_path, verify_storages=True)


@pytest.mark.slow
@pytest.mark.parametrize("barrier", [2, 3, 5, 6])
@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_run_resumed_in_processes_from_any_barrier_ends_with_the_same_bits(
    tmp_path: Path, whole_run: Callable[[str, int], Path], name: str, barrier: int
) -> None:
    assert_resumes_from(barrier, whole_run(name, NUM_UPDATES), tmp_path, backend="processes")


@pytest.mark.parametrize("name", SIMULATORS)
def test_three_agents_of_a_simulator_have_one_digest_over_placements_and_resumes(
    tmp_path: Path, whole_run: Callable[[str, int], Path], name: str
) -> None:
    pytest.importorskip(SIMULATORS[name][0])
    experiment, expected = combination(name, NUM_SIMULATOR_UPDATES), oracle(name, NUM_SIMULATOR_UPDATES)
    assert_same_run(run(experiment, num_executors=4, num_actors=2, verify_storages=True), expected)
    in_processes = run(experiment, backend="processes", num_executors=2, num_actors=1, jitter_seconds=1e-3)
    assert_same_run(in_processes, expected)
    assert_resumes_from(2, whole_run(name, NUM_SIMULATOR_UPDATES), tmp_path)
