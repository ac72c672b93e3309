"""Ctrl-C, SIGTERM and SIGKILL: the run ends at once, in order, and leaves results but no process behind."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil  # type: ignore[import-untyped]
import pytest
from helpers import workers_left
from live_run import AT_ONCE_SECONDS, SHARED_MEMORY_FOLDER, LiveRun, shared_memory, survivors
from safetensors import safe_open

from htsrl import A2C, Config, Experiment, Placement, train
from htsrl.digest import read_links
from htsrl.metrics.sinks import JsonLines
from htsrl.processes.interrupts import STOPPING
from htsrl.seeding import reset_seed

WORKERS = ("executor 0", "executor 1", "actor 0", "learner")
SEPARATE = ("--num-envs", "4", "--num-executors", "2", "--num-actors", "1")
FAST = ("CartPole-v1", "--sync-interval", "8", *SEPARATE)
FAULTY = ("Faulty-v0", "--import", "fault_envs")
# One executor is deep in a step that takes a minute; it cannot look around, and all others wait for it.
HANG = ("fault=hang", "fault_step=20", "once=hanging", f"fault_seed={reset_seed(seed=1, env=0, episode=0)}")
HANGING = (*FAULTY, "--sync-interval", "8", *SEPARATE, *(flag for arg in HANG for flag in ("--env-arg", arg)))
WATCHED_SECONDS = 3.0


@dataclass
class Ended:
    """A run that was told to end."""

    run: LiveRun
    left_behind: list[psutil.Process]
    mapped_files: set[str]
    """Named shared memory that any of its processes had mapped."""
    cpu_shares: dict[str, float]
    """Fraction of a core that each process used while all waited for one environment."""


def end(run: LiveRun, how: signal.Signals, cpu_shares: dict[str, float] | None = None) -> Ended:
    mapped_files = {path for process in [run.main, *run.workers] for path in named_shared_memory(process)}
    if how is signal.SIGINT:
        run.press_ctrl_c()
    else:
        run.main.send_signal(how)
    run.wait_for_end()
    # Whoever is left when the main process has ended is an orphan; only a killed one cannot fetch its workers first.
    left_behind = survivors(run.workers, AT_ONCE_SECONDS if how is signal.SIGKILL else 0.0)
    return Ended(run, left_behind, mapped_files, cpu_shares or {})


def start_to_hang(folder: Path) -> LiveRun:
    run = LiveRun(folder, *HANGING)
    run.wait_until_it_learns()
    run.wait_until((folder / "hanging").exists)
    return run


def named_shared_memory(process: psutil.Process) -> list[str]:
    return [region.path for region in process.memory_maps() if region.path.startswith(str(SHARED_MEMORY_FOLDER))]


def measure_cpu_shares(run: LiveRun) -> dict[str, float]:
    processes = {"main": run.main, **{name: run.worker(name) for name in WORKERS}}

    def cpu_seconds() -> dict[str, float]:
        return {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}

    before = cpu_seconds()
    time.sleep(WATCHED_SECONDS)
    return {name: (seconds - before[name]) / WATCHED_SECONDS for name, seconds in cpu_seconds().items()}


@pytest.fixture(scope="module")
def hanging_ctrl_c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    run = start_to_hang(tmp_path_factory.mktemp("hanging"))
    try:
        yield end(run, signal.SIGINT, measure_cpu_shares(run))
    finally:
        run.clean_up()


@pytest.fixture(scope="module")
def fast_ctrl_c(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    run = LiveRun(tmp_path_factory.mktemp("fast"), *FAST)
    try:
        run.wait_until_it_learns()
        yield end(run, signal.SIGINT)
    finally:
        run.clean_up()


@pytest.fixture(scope="module")
def terminated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ended]:
    # 0.3 s a step and two environments to an executor: a worker that is asked to stop may be busy for 0.6 s.
    flags = ("--env-arg", "step_seconds=0.3", "--sync-interval", "2", *SEPARATE)
    run = LiveRun(tmp_path_factory.mktemp("terminated"), *FAULTY, *flags)
    try:
        run.wait_until_it_learns(1)
        yield end(run, signal.SIGTERM)
    finally:
        run.clean_up()


@pytest.fixture(scope="module", params=["hanging_ctrl_c", "fast_ctrl_c", "terminated"])
def ended(request: pytest.FixtureRequest) -> Ended:
    found: Ended = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("name", ["main", *WORKERS])
def test_a_process_that_waits_uses_no_processor(hanging_ctrl_c: Ended, name: str) -> None:
    assert hanging_ctrl_c.cpu_shares[name] < 0.1  # who spins takes all of a core that others leave it


def test_ctrl_c_exits_with_130(hanging_ctrl_c: Ended, fast_ctrl_c: Ended) -> None:
    assert (hanging_ctrl_c.run.exit_code, fast_ctrl_c.run.exit_code) == (130, 130)


def test_sigterm_exits_with_143(terminated: Ended) -> None:
    assert terminated.run.exit_code == 143


def test_an_interrupted_run_leaves_no_process_behind(ended: Ended) -> None:
    assert len(ended.run.workers) == len(WORKERS)
    assert ended.left_behind == []


def test_an_interrupted_run_has_no_shared_memory_that_could_be_left_behind(ended: Ended) -> None:
    assert ended.mapped_files == set()


def test_an_interrupted_run_says_how_far_it_came_and_nothing_else(ended: Ended) -> None:
    updates = ended.run.result()["updates"]
    first = STOPPING.decode() if ended.run.exit_code == 130 else ""  # a person is answered, a job is not
    assert ended.run.stderr == f"{first}interrupted after update {updates}; `htsrl resume run` continues from there\n"
    assert ended.run.stdout == ""


def test_an_interrupted_run_leaves_its_policy_metrics_and_result(ended: Ended) -> None:
    names = {path.name for path in ended.run.run_dir.iterdir()}
    assert {"config.json", "policy.safetensors", "metrics.jsonl", "digest.jsonl", "result.json", "checkpoints"} <= names
    assert not [name for name in names if name.endswith(".tmp")]
    assert ended.run.result()["interrupted"] is True
    assert ended.run.num_metrics() >= 1


def test_policy_digest_and_result_of_an_interrupted_run_are_of_one_version(ended: Ended) -> None:
    assert_all_of_one_version(ended.run.run_dir)


def assert_all_of_one_version(run_dir: Path) -> None:
    result, links = json.loads((run_dir / "result.json").read_text()), read_links(run_dir)
    assert result["updates"] >= 1
    assert (len(links), links[-1].chain) == (result["updates"], result["digest"])
    with safe_open(run_dir / "policy.safetensors", "numpy") as policy:
        assert int(policy.metadata()["version"]) == result["updates"]


def test_an_interrupted_run_adds_nothing_to_the_shared_memory_of_the_system(tmp_path: Path) -> None:
    """Not even for a moment: memory without a name cannot outlive its processes."""
    before = shared_memory()
    run = LiveRun(tmp_path, *FAST)
    try:
        run.wait_until(lambda: len(run.find_workers()) == len(WORKERS))
        run.workers = run.find_workers()
        while_starting = shared_memory()
        early = end(run, signal.SIGINT)
    finally:
        run.clean_up()
    assert (while_starting - before, shared_memory() - before) == (set(), set())
    # Before the first updates there is less to write down, but it ends like any other.
    assert (early.run.exit_code, early.left_behind) == (130, [])
    said = r"interrupted after update \d+; `htsrl resume run` continues from there\n"
    assert re.fullmatch(f"{STOPPING.decode()}{said}", early.run.stderr)
    assert early.run.result()["interrupted"] is True


def test_when_the_main_process_is_killed_its_workers_are_soon_gone(tmp_path: Path) -> None:
    run = start_to_hang(tmp_path)
    try:
        killed = end(run, signal.SIGKILL)
        assert len(run.workers) == len(WORKERS)
        assert killed.left_behind == []
    finally:
        run.clean_up()


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_ctrl_c_in_the_middle_of_writing_things_down_loses_no_update_and_writes_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Literal["inline", "processes"]
) -> None:
    write, lines = JsonLines.write, []

    def interrupted_write(self: JsonLines, step: int, metrics: Mapping[str, float]) -> None:
        lines.append(step)
        if len(lines) == 2:
            time.sleep(0.5)  # meanwhile the learner continues, and its reports pile up
        if len(lines) == 3:
            signal.raise_signal(signal.SIGINT)
        write(self, step, metrics)

    monkeypatch.setattr(JsonLines, "write", interrupted_write)
    experiment = Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, sync_interval=8, total_steps=100_000)
    quiet = Placement(backend, 1, 0, run_dir=tmp_path / "run", tensorboard=False, progress="off", log_every_steps=1)
    with pytest.raises(KeyboardInterrupt):
        train(Config(experiment, quiet))
    assert_all_of_one_version(tmp_path / "run")
    assert workers_left() == []
