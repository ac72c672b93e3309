"""Whole runs watched from outside: their speed beside the limit, their CPU time, their memory; and what bits cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import run

from htsrl.config import Config, available_cores
from htsrl.config.schedule_names import BUILT_IN, OFFLINE
from htsrl.errors import ConfigError
from htsrl_bench import determinism, soak, throughput
from htsrl_bench.bars import draw_throughput
from htsrl_bench.determinism import DeterminismBench, Pair
from htsrl_bench.env_memory import env_megabytes
from htsrl_bench.limits import StepCosts
from htsrl_bench.process_tree import Memory, cpu_seconds, memory_of, tree_of
from htsrl_bench.soak import Look, Soaked
from htsrl_bench.tables.determinism import DeterminismTable
from htsrl_bench.tables.soak import SoakTable
from htsrl_bench.tables.throughput import ThroughputTable
from htsrl_bench.throughput import Measured, ThroughputBench, Watched
from htsrl_bench.ways import WAYS

BENCH = ThroughputBench(("cartpole-ppo",), ("hts", "sync"), 1.0, 1.0, repetitions=2)


def watched(speed: float) -> Watched:
    return Watched(
        speed, 0.9, (Memory("main", 300, 200), Memory("executor 0 with", 200, 150), Memory("learner", 1, 500))
    )


def measured(speeds: dict[str, tuple[float, ...]], rooflines: tuple[float, ...]) -> list[Measured]:
    return [
        Measured("cartpole-ppo", schedule, repetition, watched(speeds[schedule][repetition]), roofline, 30.0)
        for repetition, roofline in enumerate(rooflines)
        for schedule in speeds
    ]


# Throughput


def test_shares_and_ratios_are_taken_within_a_repetition() -> None:
    runs = measured({"hts": (900.0, 450.0), "sync": (600.0, 300.0)}, rooflines=(1000.0, 500.0))

    document = throughput.summary(BENCH, runs)["cartpole-ppo"]

    hts = document["schedules"]["hts"]
    assert hts["share_of_roofline"] == pytest.approx({"median": 0.9, "lowest": 0.9, "highest": 0.9})
    assert hts["ratio"]["median"] == pytest.approx(1.5)
    assert hts["megabytes"]["median"] == 501
    assert hts["worker_megabytes"]["median"] == 150 - 30
    assert "ratio" in document["schedules"]["sync"]
    row = throughput.table(BENCH, {"cartpole-ppo": document}).rows[0]
    assert row == [
        "cartpole-ppo", "hts", "675 (450 to 900)", "750", "90% (90% to 90%)", "1.50", "90%", "501", "120",
    ]  # fmt: skip


def test_without_a_baseline_there_is_no_ratio() -> None:
    bench = replace(BENCH, schedules=("hts",))

    document = throughput.summary(bench, measured({"hts": (900.0, 450.0)}, (1000.0, 500.0)))

    assert "ratio" not in document["cartpole-ppo"]["schedules"]["hts"]
    assert throughput.table(bench, document).rows[0][5] == ""


def test_the_limit_of_a_run_is_the_mean_of_those_before_and_after_it() -> None:
    around = [StepCosts(simulator=1.0, inference=1.0, learning=2.0), StepCosts(0.5, 0.5, 1.0)]

    run = throughput.beside(around, "cartpole-ppo", "hts", 0, watched(300.0), 30.0)

    assert run.roofline == available_cores() * (250 + 500) / 2
    assert run.share == pytest.approx(300 / 375 / available_cores())


def test_a_correction_that_the_algorithm_has_not_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(
        ConfigError, match="lag_correction=vtrace, and CartPole-v1 is learned by an algorithm that knows auto"
    ):
        replace(BENCH, schedules=("hts", "hts-vtrace"))


def test_every_way_can_be_drawn(tmp_path: Path) -> None:
    ways = tuple(name for name, way in WAYS.items() if way.lag_correction in ("auto", "none", "vtrace", "importance"))
    bench = ThroughputBench(("pong-a2c",), ways, 1.0, 1.0, repetitions=1)
    runs = [Measured("pong-a2c", name, 0, watched(300.0), 1000.0, 30.0) for name in ways]

    draw_throughput(throughput.summary(bench, runs), tmp_path / "all.png")

    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")


def test_the_parts_around_a_run_are_measured_then() -> None:
    costs = throughput.costs_of("cartpole-ppo", 0.05)
    assert min(costs.simulator, costs.inference, costs.learning) > 0


def test_all_schedules_that_htsrl_knows_are_compared() -> None:
    assert set(throughput.SCHEDULES) == set(BUILT_IN) - {OFFLINE}
    for schedule in throughput.SCHEDULES:
        assert throughput.watched_config("pong-a2c", schedule).experiment.schedule == schedule
    uncorrected = throughput.watched_config("pong-ppo", "hts-uncorrected").experiment
    assert (uncorrected.schedule, uncorrected.algorithm.lag_correction) == ("hts", "none")
    with pytest.raises(ConfigError, match="chaotic"):
        replace(BENCH, schedules=("hts", "chaotic"))


def test_the_cpu_time_and_memory_of_a_tree_are_those_of_all_its_processes() -> None:
    script = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', %r]); time.sleep(60)"
    busy = "import time\nblock = bytearray(50_000_000)\nprint('on', flush=True)\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", script % busy], stdout=subprocess.PIPE, process_group=0)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        tree = tree_of(process.pid)
        assert len(tree) == 2
        before = cpu_seconds(tree)
        deadline = time.monotonic() + 60
        while cpu_seconds(tree) < before + 0.05:
            assert time.monotonic() < deadline, "the child's time is not counted"
            time.sleep(0.05)
        assert cpu_seconds([process.pid]) < cpu_seconds(tree)
        assert memory_of(tree[1]).private > 50 > memory_of(tree[0]).private
        assert memory_of(tree[1]).pss >= memory_of(tree[1]).private
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_environments_are_charged_with_what_they_need() -> None:
    few, many = env_megabytes("cartpole-ppo", 1), env_megabytes("cartpole-ppo", 200)

    assert 0 <= few < many < 200


@pytest.mark.slow
def test_bench_throughput_watches_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "_spare_is_ready", lambda run: True)  # it comes after ten seconds
    monkeypatch.setattr(throughput, "SETTLING_SECONDS", 0.0)
    table = ThroughputTable(
        work=("cartpole-ppo",),
        schedules=("hts", "sync"),
        seconds_per_run=0.2,
        seconds_per_part=0.05,
        repetitions=1,
        output=tmp_path,
    )

    table.run()

    (path,) = tmp_path.glob("throughput-cartpole-ppo.json")
    document = json.loads(path.read_text())
    runs, summary = document["repetitions"], document["summary"]
    assert [of.get("schedule") for of in runs] == ["hts", "sync"]
    assert all(of["watched"]["steps_per_second"] > 0 and 0 < of["watched"]["utilisation"] < 1.2 for of in runs)
    names = {process["name"].split()[0] for process in runs[0]["watched"]["processes"]}
    assert {"executor", "learner"} <= names
    assert summary["works"]["cartpole-ppo"]["schedules"]["sync"]["ratio"]["median"] == 1.0
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


# Soak


@pytest.mark.slow
def test_bench_soak_looks_at_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "_spare_is_ready", lambda run: True)
    monkeypatch.setattr(throughput, "SETTLING_SECONDS", 0.0)

    SoakTable(work=("cartpole-ppo",), seconds=0.3, output=tmp_path).run()

    (path,) = tmp_path.glob("soak.json")
    assert json.loads(path.read_text())["summary"]["cartpole-ppo, hts"]["last_megabytes"] > 100
    assert "growth" in path.with_suffix(".md").read_text()


def test_a_soak_of_no_time_or_of_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(ConfigError, match="seconds=0"):
        SoakTable(seconds=0).run()
    with pytest.raises(ConfigError, match=r"give schedules among hts, sync, lockstep, async, .*, not fast"):
        SoakTable(schedule="fast").run()


def test_growth_is_the_slope_over_all_looks() -> None:
    steady = Soaked("a", [Look(float(t), {"x": 100.0 + (1 if t % 2 else -1), "y": 50.0}) for t in range(0, 600, 10)])
    growing = Soaked("b", [Look(float(t), {"x": 100.0 + t / 10, "y": 50.0}) for t in range(0, 300, 10)])

    assert steady.growth == pytest.approx(0.0, abs=0.5)
    assert growing.growth == pytest.approx(60.0)
    assert soak.table([growing]).rows[0] == ["b", "290 s", "150", "179", "+60.0", "0, 0"]


# Determinism


def test_what_determinism_costs_is_taken_from_each_pair() -> None:
    pairs = [Pair("pong-a2c", *both) for both in ((960, 1000), (980, 1000), (396, 400))]

    document = determinism.summary([*pairs, Pair("pong-ppo", 90, 100)])

    assert document["works"]["pong-a2c"]["cost"] == pytest.approx(0.02)
    rows = determinism.table(DeterminismBench(("pong-a2c", "pong-ppo"), 1.0, 3), document).rows
    assert rows[0] == ["pong-a2c", "960 (396 to 980)", "1,000 (400 to 1,000)", "2.0% (1.0% to 4.0%)", "5% met"]
    assert rows[1][-1] == "5% missed"


def test_the_sides_differ_in_nothing_but_determinism_and_take_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[bool] = []

    def speed(config: Config, seconds: float) -> float:
        ran.append(config.experiment.imports == (determinism.FREE_RUNNING,))
        return 100.0

    monkeypatch.setattr(determinism, "_steps_per_second", speed)
    DeterminismTable(work=("cartpole-ppo",), repetitions=2, output=tmp_path).run()

    assert ran == [False, True, True, False]
    document = json.loads(next(tmp_path.glob("determinism-cartpole-ppo.json")).read_text())
    sides = document["configs"].values()
    assert [side["experiment"].pop("imports") for side in sides] == [[], [determinism.FREE_RUNNING]]
    first, second = sides
    assert first == second


def test_each_work_has_a_record_of_its_own_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(determinism, "_steps_per_second", lambda config, seconds: 100.0)
    works = ("cartpole-ppo", "halfcheetah-ppo")
    DeterminismTable(work=works, repetitions=2, output=tmp_path).run()

    for work in works:
        document = json.loads((tmp_path / f"determinism-{work}.json").read_text())
        assert [pair["work"] for pair in document["repetitions"]] == [work, work]
        assert list(document["summary"]["works"]) == [work]
        assert len(document["configs"]) == 2


def test_free_running_pads_nothing() -> None:
    script = """
import numpy as np
from htsrl_bench import unsafe_free_running
from htsrl.dataflow.reference_shape import ReferenceShape
cells, columns = np.array([5, 6]), np.array([1, 3])
shape = ReferenceShape((4, 8))
assert len(shape.lay_out(cells, columns)[0]) == 4, "importing it tampers with every process"
unsafe_free_running.take_away()
batch, places = shape.lay_out(cells, columns)
assert (batch.tolist(), batch[places].tolist()) == ([5, 6], [5, 6])
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_free_running_takes_the_digest_away_from_that_run_alone() -> None:
    from htsrl.dataflow.reference_shape import ReferenceShape

    lay_out = ReferenceShape.lay_out
    bench = DeterminismBench(("cartpole-ppo",), 1.0, 1)

    def digest_of(free: bool) -> str:
        config = bench.config("cartpole-ppo", free)
        experiment = replace(config.experiment, num_envs=4, sync_interval=8, total_steps=64)
        return run(experiment, backend="processes", num_executors=1).digest

    first, free, again = digest_of(False), digest_of(True), digest_of(False)

    assert free == "0" * 32
    assert first == again != free
    assert ReferenceShape.lay_out is lay_out
