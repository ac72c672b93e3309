"""Nothing lost over machines: whatever of a run on islands is killed, and whenever, no bit changes."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from cut_networks import WITH_TOKEN, CutNetworks, can_make_networks
from helpers import assert_same_run
from island_runs import islands, killed_run, outcome_in, workers_of
from live_run import LiveRun, patience, survivors
from raylets import OTHER_NUMERICS, RayCluster
from small_run import oracle, resume_inline, small_experiment, small_flags

from htsrl.processes.kill_points import KILL_AT, KILL_ONCE

pytest.importorskip("ray", reason="islands live on Ray: pip install 'htsrl[ray]'")
NUM_UPDATES = 40
SOME_UPDATES, MANY_UPDATES = 400, 1000
"""Of a run that continues until Ray has noticed that a node is gone."""
SLOWLY = ("--jitter-seconds", "0.005", "--checkpoint-every-updates", "5")
"""So that a run lasts long enough to be killed in."""
ON_ISLANDS = ("--placement", "ray", "--nodes", "2", "--num-executors", "1", "--num-actors", "0")
START_SECONDS = 120.0
CUT_SECONDS, STOPPED_SECONDS = 30.0, 5.0


def first_island() -> list[psutil.Process]:
    return islands()[:1]


def whole_island() -> list[psutil.Process]:
    return [process for island in islands()[-1:] for process in [*island.children(recursive=True), island]]


def a_worker() -> list[psutil.Process]:
    return [worker for island in islands()[-1:] for worker in workers_of(island)[:1]]


def test_killed_islands_and_workers_change_no_bit(tmp_path: Path) -> None:
    plans = [first_island, *[a_worker] * 4, whole_island, *[a_worker] * 4]
    settings: dict[str, Any] = {"nodes": 2, "jitter_seconds": 0.005, "log_every_steps": 1}
    outcome = killed_run(small_experiment(NUM_UPDATES), tmp_path, plans, updates_between=3, **settings)
    assert_same_run(outcome, oracle(NUM_UPDATES))


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_nobody_behind_and_is_resumed(tmp_path: Path) -> None:
    run = LiveRun(tmp_path, *small_flags(NUM_UPDATES), *ON_ISLANDS, *SLOWLY)
    try:
        run.wait_until(lambda: run.num_metrics() >= 12, patience(START_SECONDS))
        everybody = run.main.children(recursive=True)
        assert [process for process in everybody if process.name().startswith("ray::Island")]
        run.main.send_signal(signal.SIGKILL)
        run.wait_for_end()
        assert survivors(everybody, patience(30.0)) == []
    finally:
        run.clean_up()
    again = LiveRun.resumed(tmp_path, *ON_ISLANDS)
    try:
        again.wait_for_end(patience(START_SECONDS))
        assert again.exit_code == 0, again.stderr
    finally:
        again.clean_up()
    assert_same_run(outcome_in(run.run_dir), oracle(NUM_UPDATES))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "times"),
    [
        ("before a rollout of an island counts", 13),
        ("after a rollout of an island counts", 27),
        ("before a version counts on an island", 9),
    ],
)
def test_a_kill_at_each_step_of_the_crossing_changes_no_bit(tmp_path: Path, point: str, times: int) -> None:
    """Of the driver, which is resumed, or of the island that comes there first."""
    once = {KILL_AT: f"{point}:{times}", KILL_ONCE: str(tmp_path / "killed")}
    run = LiveRun(tmp_path, *small_flags(NUM_UPDATES), *ON_ISLANDS, *SLOWLY, variables=once)
    try:
        run.wait_for_end(patience(START_SECONDS))
        assert (tmp_path / "killed" / point).exists()
        of_driver = run.exit_code == -signal.SIGKILL
        assert of_driver == ("rollout" in point), run.stderr
        assert of_driver or "begun again" in run.stderr
    finally:
        run.clean_up()
    if of_driver:
        resume_inline(run.run_dir)
    assert_same_run(outcome_in(run.run_dir), oracle(NUM_UPDATES))


@pytest.mark.slow
def test_ctrl_c_ends_islands_and_ray_in_order(tmp_path: Path) -> None:
    run = LiveRun(tmp_path, *small_flags(NUM_UPDATES), *ON_ISLANDS, *SLOWLY)
    try:
        run.wait_until(lambda: run.num_metrics() >= 12, patience(START_SECONDS))
        everybody = run.main.children(recursive=True)
        run.press_ctrl_c()
        run.wait_for_end(patience(30.0))
        assert run.exit_code == 130, run.stderr
        assert survivors(everybody, patience(30.0)) == []
    finally:
        run.clean_up()
    resume_inline(run.run_dir)
    assert_same_run(outcome_in(run.run_dir), oracle(NUM_UPDATES))


@pytest.mark.slow
def test_a_node_that_is_killed_is_replaced_by_another_and_one_that_joins_is_used(tmp_path: Path) -> None:
    with RayCluster(2) as cluster:
        joined = ("--placement", "ray", "--ray-address", cluster.address, "--num-executors", "1", "--num-actors", "0")
        run = LiveRun(tmp_path, *small_flags(MANY_UPDATES), *joined, *SLOWLY, "--deadline-seconds", "60")
        try:
            run.wait_until(lambda: run.num_metrics() >= 8, patience(START_SECONDS))
            cluster.kill_node()
            run.wait_until(lambda: "begun again" in run.stderr, patience(START_SECONDS))
            cluster.add_node()
            cluster.kill_node()
            run.wait_until(lambda: run.stderr.count("begun again") >= 2, patience(START_SECONDS))
            run.wait_for_end(patience(START_SECONDS))
            assert run.exit_code == 0, run.stderr
        finally:
            run.clean_up()
    assert_same_run(outcome_in(run.run_dir), oracle(MANY_UPDATES))


@pytest.mark.slow
def test_a_node_that_joins_and_computes_other_bits_has_no_island(tmp_path: Path) -> None:
    with RayCluster(1) as cluster:
        joined = ("--placement", "ray", "--ray-address", cluster.address, "--num-executors", "1", "--num-actors", "0")
        run = LiveRun(tmp_path, *small_flags(SOME_UPDATES), *joined, *SLOWLY, "--deadline-seconds", "120")
        try:
            run.wait_until(lambda: run.num_metrics() >= 8, patience(START_SECONDS))
            cluster.add_node(**OTHER_NUMERICS)
            cluster.kill_node()
            run.wait_until(lambda: "has no island of this run" in run.stderr, patience(START_SECONDS))
            assert "mkl_mode: " in run.stderr
            cluster.add_node()
            run.wait_for_end(patience(START_SECONDS))
            assert run.exit_code == 0, run.stderr
        finally:
            run.clean_up()
    assert not (run.run_dir / "numerics_changes.json").exists()
    assert_same_run(outcome_in(run.run_dir), oracle(SOME_UPDATES))


@pytest.mark.slow
def test_a_network_that_is_cut_for_30_seconds_changes_no_bit(tmp_path: Path) -> None:
    """Whether what was under way arrives after all, or the island is begun on the other node."""
    if not can_make_networks():
        pytest.skip("needs the superuser, and a system that lets it make network namespaces")
    with CutNetworks(2, tmp_path) as networks:
        joined = ("--ray-address", networks.address, *ON_ISLANDS, "--deadline-seconds", "60")
        run = LiveRun(tmp_path, *small_flags(MANY_UPDATES), *joined, *SLOWLY, variables=WITH_TOKEN)
        try:
            run.wait_until(lambda: run.num_metrics() >= 8, patience(START_SECONDS))
            networks.cut(0)
            before = run.num_metrics()
            time.sleep(CUT_SECONDS)
            networks.mend(0)
            run.wait_until(lambda: run.num_metrics() >= before + 50, patience(START_SECONDS))
            run.wait_for_end(patience(START_SECONDS))
            assert run.exit_code == 0, run.stderr
        finally:
            run.clean_up()
    assert_same_run(outcome_in(run.run_dir), oracle(MANY_UPDATES))


@pytest.mark.slow
def test_a_node_that_is_merely_slow_is_waited_for(tmp_path: Path) -> None:
    run = LiveRun(tmp_path, *small_flags(SOME_UPDATES), *ON_ISLANDS, *SLOWLY)
    try:
        run.wait_until(lambda: run.num_metrics() >= 8, patience(START_SECONDS))
        below = run.main.children(recursive=True)
        (island,) = [process for process in below if process.name().startswith("ray::Island")][:1]
        processes = [island, *island.children(recursive=True)]
        for process in processes:
            process.suspend()
        before = run.num_metrics()
        time.sleep(STOPPED_SECONDS)
        assert run.num_metrics() <= before + 2  # those whose rollouts it had sent
        for process in processes:
            process.resume()
        run.wait_for_end(patience(START_SECONDS))
        assert run.exit_code == 0, run.stderr
        assert "begun again" not in run.stderr
    finally:
        run.clean_up()
    assert_same_run(outcome_in(run.run_dir), oracle(SOME_UPDATES))


@pytest.mark.slow
def test_many_kills_of_islands_and_workers_change_no_bit(tmp_path: Path) -> None:
    seed = int(os.environ.get("HTSRL_CHAOS_SEED", time.time_ns() % 1_000_000))
    print(f"HTSRL_CHAOS_SEED={seed}")
    draw, num_updates = random.Random(seed), 400
    plans = [draw.choice((first_island, a_worker, whole_island)) for _ in range(50)]
    settings: dict[str, Any] = {"nodes": 3, "jitter_seconds": 0.005, "log_every_steps": 1}
    outcome = killed_run(small_experiment(num_updates), tmp_path, plans, updates_between=7, **settings)
    assert_same_run(outcome, oracle(num_updates))
