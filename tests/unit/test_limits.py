"""The limit: parts measured alone, and what follows from them by arithmetic."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from htsrl.errors import ConfigError, HtsrlError
from htsrl_bench import limits
from htsrl_bench.hand_over import HandOver, measure_hand_over
from htsrl_bench.limits import Limits, LimitsBench, StepCosts, all_parts, label, learning_batch, parts_of, step_costs
from htsrl_bench.part_process import Measured, milliseconds_per_step, part_processes
from htsrl_bench.parts import Part
from htsrl_bench.tables.limits import LimitsTable
from htsrl_bench.works import PACKAGES, WORKS, split_by_installed


def test_the_roofline_is_cores_over_the_sum_of_the_parts() -> None:
    # The anchors' Breakout: 0.66 + 0.34 + 1.04 ms on two cores, and four epochs of 0.97 ms for PPO.
    assert StepCosts(0.66, 0.34, 1.04).roofline(cores=2) == pytest.approx(2000 / 2.04)
    assert StepCosts(0.66, 0.34, 4 * 0.97).roofline(cores=2) == pytest.approx(2000 / 4.88)
    assert StepCosts(0.5, 0.25, 0.25).roofline(cores=1) == 1000


def test_a_work_learns_every_step_as_often_as_it_has_epochs() -> None:
    milliseconds = dict(zip(parts_of("pong-ppo"), (0.5, 0.3, 1.0), strict=True))

    assert step_costs("pong-ppo", milliseconds) == StepCosts(0.5, 0.3, 4.0)
    once = dict(zip(parts_of("pong-a2c"), (0.5, 0.3, 1.0), strict=True))
    assert step_costs("pong-a2c", once) == StepCosts(0.5, 0.3, 1.0)


def test_the_works_have_the_batches_that_the_anchors_name() -> None:
    batches = {work: (of.num_envs, of.interval_steps, learning_batch(of)) for work, of in WORKS.items()}

    assert batches["breakout-a2c"] == batches["pong-a2c"] == (16, 5, 80)
    assert batches["breakout-ppo"] == batches["cartpole-ppo"] == batches["halfcheetah-ppo"] == (16, 128, 512)
    assert batches["football-ppo"] == (16, 128, 256)


def test_a_part_that_works_share_is_measured_once() -> None:
    parts = all_parts(["pong-a2c", "pong-ppo"])

    assert len(set(parts)) == len(parts) == 1 + 4 + 2
    assert parts_of("pong-a2c").simulator == parts_of("pong-ppo").simulator
    assert parts_of("pong-a2c").learning != parts_of("pong-ppo").learning
    assert len({label(part) for part in all_parts(WORKS)}) == len(all_parts(WORKS))


def test_cpu_time_is_counted_and_not_the_clock() -> None:
    assert milliseconds_per_step(lambda: time.sleep(0.02), batch=1, seconds=0.1) < 10
    assert milliseconds_per_step(lambda: _busy(0.01), batch=5, seconds=0.1) == pytest.approx(2.0, rel=0.5)


def test_every_process_measures_and_one_that_fails_is_noticed() -> None:
    with part_processes(2) as processes:
        measured = processes.measure(Part("inference", "cartpole-ppo", 4), seconds=0.05)
        assert len(measured.by_process) == 2
        assert measured.milliseconds == pytest.approx(sum(measured.by_process) / 2)
        assert min(measured.by_process) > 0
        with pytest.raises(HtsrlError, match="ended with code"):
            processes.measure(Part("inference", "no such work", 4), seconds=0.05)


def test_a_hand_over_wakes_another_process() -> None:
    hand_over = measure_hand_over(round_trips=20)

    assert 0 < hand_over.microseconds < 1e6
    assert 0 < hand_over.cpu_microseconds < 1e6


def test_the_summary_takes_rooflines_by_repetition() -> None:
    bench = LimitsBench(("cartpole-ppo",), 1.0, 3)
    by_kind = {"simulator": (0.01, 0.02, 0.03), "inference": (0.01, 0.01, 0.01), "learning": (0.005, 0.005, 0.005)}
    measured = [
        Measured(part, by_kind[part.kind][repetition], (by_kind[part.kind][repetition],))
        for repetition in range(3)
        for part in all_parts(bench.work)
    ]
    document = limits.summary(bench, Limits(measured, [HandOver(10.0, 5.0)]))

    of, cores = document["works"]["cartpole-ppo"], document["cores"]
    assert of["roofline"]["median"] == pytest.approx(cores * 1000 / 0.05)
    assert of["roofline"]["highest"] == pytest.approx(cores * 1000 / 0.04)
    assert (of["simulator"], of["learning"]) == (0.02, 0.02)
    rooflines, parts = limits.tables(document)
    assert rooflines.rows[0][:2] == ["cartpole-ppo", "0.020"]
    assert rooflines.rows[0][3] == "0.020 (4 x batch 512)"
    assert ["simulator, CartPole-v1", "0.0200 (0.0100 to 0.0300)"] in [list(row) for row in parts.rows]
    assert parts.rows[-2][1] == "0.0100 (0.0100 to 0.0100)"


def test_work_without_its_simulator_is_left_out_and_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PACKAGES, "football", "no_such_package")

    assert split_by_installed(["cartpole-ppo", "football-ppo"]) == (("cartpole-ppo",), ("football-ppo",))
    assert "football-ppo" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="football-ppo is not installed"):
        split_by_installed(["football-ppo"])


@pytest.mark.parametrize("mistake", [{"work": ("chess",)}, {"work": ()}, {"repetitions": 0}, {"seconds_per_part": 0.0}])
def test_limits_of_nothing_are_refused(mistake: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        replace(LimitsBench(("cartpole-ppo",), 1.0, 1), **mistake)  # type: ignore[arg-type]


def test_bench_limits_writes_a_record_and_a_picture(tmp_path: Path) -> None:
    LimitsTable(work=("cartpole-ppo",), seconds_per_part=0.02, repetitions=1, output=tmp_path).run()

    (path,) = tmp_path.glob("limits-cartpole-ppo.json")
    document = json.loads(path.read_text())
    assert document["command"] == "htsrl bench limits --work cartpole-ppo --seconds-per-part 0.02 --repetitions 1"
    assert len(document["repetitions"]) == 1 + 4 + 1 + 1
    parts = document["summary"]["parts"]
    # A row costs less in company: the reason for batches.
    batches = [parts[f"inference, CartPole-v1, batch {size}"]["median"] for size in (1, 16)]
    assert batches[0] > 2 * batches[1]
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_each_work_has_a_record_of_its_own_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    works = ("cartpole-ppo", "halfcheetah-ppo")
    LimitsTable(work=works, seconds_per_part=0.01, repetitions=1, output=tmp_path).run()

    shown = capsys.readouterr().out
    for work, env in zip(works, ("CartPole-v1", "HalfCheetah-v5"), strict=True):
        document = json.loads((tmp_path / f"limits-{work}.json").read_text())
        assert list(document["summary"]["works"]) == list(document["configs"]) == [work]
        assert all(env in of["part"] or of["part"] == "hand-over" for of in document["repetitions"])
        assert f"| {work} " in shown


def _busy(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
