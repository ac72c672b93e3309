"""The paper's figures: which points they are made of, and what is made of the points."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from htsrl.errors import ConfigError
from htsrl_bench import variance
from htsrl_bench.headline import HEADLINE, Headline, measure_headline
from htsrl_bench.lag import LAG_POINTS, lag_rows, lag_table
from htsrl_bench.points import Measured, Point, _load, lockstep, run_point
from htsrl_bench.tables.variance import FIGURES, VarianceTable
from htsrl_bench.variance import VarianceBench

MEAN = 0.005
BENCH = VarianceBench(tuple(FIGURES.values()), MEAN, 4.0, repetitions=1, headline_repetitions=2)


def ideal(point: Point, mean_seconds: float, seconds: float, seed: int) -> Measured:
    """A run as Claim 1 has it, with learning of 20 ms an epoch."""
    learning = 0.02 * point.epochs if point.epochs else None
    lag, load = (1.5, 0.5) if point.epochs else (None, None)
    return Measured(point, seed, point.bound(mean_seconds), learning, lag, load)


def test_a_point_in_several_figures_is_measured_once() -> None:
    points = BENCH.points()

    assert len(points) == len(set(points))
    assert {Point(), Point(num_envs=64, sync_interval=128), lockstep(Point(cv=0.0)), Point(num_actors=4)} <= set(points)
    assert sum(len(figure.points) for figure in BENCH.figures) > len(points)
    assert len({point.name for point in points}) == len(points)
    place = points.index(Point(cv=0.5))
    assert points[place + 1] == lockstep(Point(cv=0.5))


def test_the_figures_span_what_the_paper_spans() -> None:
    values = {name: [getattr(point, of.setting) for point in of.hts] for name, of in FIGURES.items()}

    assert values["environments"] == values["processes"] == [4, 8, 16, 32, 64]
    assert values["alpha"] == [1, 2, 5, 20, 64, 128]
    assert values["variance"] == [0.0, 0.25, 0.5, 1.0]
    assert values["actors"] == [1, 2, 4]


@pytest.mark.parametrize(
    ("cv", "sleep"),
    [(0.0, {"law": "constant"}), (0.5, {"law": "gamma", "cv": 0.5}), (1.0, {"law": "exponential", "cv": 1.0})],
)
def test_a_point_sleeps_as_its_variance_says(cv: float, sleep: dict[str, object]) -> None:
    config = Point(cv=cv).config(MEAN, seconds=4.0)

    assert config.experiment.env_args == {"mean_seconds": MEAN, **sleep}
    assert (config.placement.num_executors, config.placement.executor_threads) == (1, True)
    in_processes = Point(cv=cv, on_threads=False).config(MEAN, seconds=4.0).placement
    assert (in_processes.num_executors, in_processes.executor_threads) == (16, False)
    # Two intervals before the clock starts, and about four seconds at the bound.
    measured = config.experiment.total_steps - 2 * 16 * 20
    assert measured / Point(cv=cv).bound(MEAN) == pytest.approx(4.0, rel=0.1)


def test_ideal_runs_reach_the_bound_and_its_ratio() -> None:
    measured = variance.measure(BENCH, run=ideal)
    rows = {figure.name: variance.rows(BENCH, figure, measured) for figure in BENCH.figures}

    row = rows["environments"][2]
    assert row.value == 16
    assert row.document()["share_of_bound"] == pytest.approx(1.0)
    assert row.bound == pytest.approx(2753, rel=0.005)
    assert row.lockstep_bound == pytest.approx(946, rel=0.005)
    assert row.ratio == row.claimed_ratio == pytest.approx(2753 / 946, rel=0.005)
    assert rows["environments"][0].per_env == 1.0
    assert row.per_env == pytest.approx(row.bound / 16 / (rows["environments"][0].bound / 4))
    assert rows["variance"][0].ratio == pytest.approx(1.0)
    assert all(row.ratio is None for row in rows["alpha"])
    tables = variance.tables(BENCH, rows, headline=None, lags=[])
    assert [len(table.rows) for table in tables] == [4, 5, 5, 6, 3]
    assert tables[1].rows[2][:4] == ["16", "2,753 (2,753 to 2,753)", "2,753", "100%"]


def test_the_headline_is_calibrated_so_that_learning_takes_as_long_as_rolling_out() -> None:
    headline = measure_headline(MEAN, 4.0, repetitions=2, run=ideal)

    assert headline is not None
    # 128 steps of the slowest of 32: 128 * 1.192 * 5 ms; an epoch takes 20 ms.
    assert headline.rollout_seconds == pytest.approx(0.763, rel=0.005)
    assert headline.point == replace(HEADLINE, epochs=38)
    assert len(headline.measured) == 4
    document = headline.document(MEAN)
    assert document["learning_seconds"] == pytest.approx(0.76)
    # A barrier at every step: 128 * 4.059 * 5 ms, then 0.76 s of learning; HTS does both within 0.763 s.
    assert document["claimed_ratio"] == pytest.approx((128 * 4.059 * 0.005 + 0.76) / 0.763, rel=0.005)


def test_the_headline_compares_runs_of_the_same_seed() -> None:
    speeds = {HEADLINE: (400.0, 500.0, 600.0), lockstep(HEADLINE): (100.0, 100.0, 200.0)}
    runs = [Measured(point, seed, speed, 0.7) for point, of in speeds.items() for seed, speed in enumerate(of)]

    document = Headline(HEADLINE, 0.763, runs).document(MEAN)

    assert document["ratio"] == {"median": 4.0, "lowest": 3.0, "highest": 5.0}


def test_the_lag_stands_beside_claim_2_at_the_load_that_the_learner_had() -> None:
    point = Point(schedule="async", num_envs=16, sync_interval=20, epochs=4)
    slow = replace(point, epochs=40)
    runs = [Measured(slow, 1, 1600.0, 0.3, lag=9.0, load=1.0)]
    runs += [Measured(point, seed, 1600.0, 0.1, lag, load=0.5) for seed, lag in enumerate((1.0, 2.0, 6.0))]

    half, full = lag_rows(runs)

    assert half.epochs == 4
    assert half.load == pytest.approx(0.5)
    assert half.claimed == pytest.approx(1.0)
    assert half.lag.median == 2.0
    assert (full.epochs, full.load, full.claimed) == (40, 1.0, None)
    assert [row[-1] for row in lag_table([half, full]).rows] == ["1.00", "no bound"]


def test_asynchronous_points_have_room_for_a_lag() -> None:
    for point in LAG_POINTS:
        experiment = point.config(MEAN, seconds=1.0).experiment
        assert (experiment.schedule, experiment.queue_length) == ("async", 16)
        assert point.bound(MEAN) == pytest.approx(16 / MEAN)


@pytest.mark.parametrize(
    "mistake", [{"repetitions": 0}, {"headline_repetitions": -1}, {"seconds_per_run": 0.0}, {"mean_seconds": 0.0}]
)
def test_a_bench_that_measures_nothing_is_refused(mistake: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        replace(BENCH, **mistake)  # type: ignore[arg-type]


def test_an_unknown_figure_is_refused() -> None:
    with pytest.raises(ConfigError, match="environments"):
        VarianceTable(figures=("environments", "colour")).run()


def test_a_point_runs_and_tells_what_learning_took_and_how_old_the_data_were() -> None:
    point = Point(num_envs=2, sync_interval=8, epochs=2)
    measured = run_point(point, mean_seconds=0.001, seconds=0.05, seed=1)

    assert 0 < measured.steps_per_second < 2 / 0.001 * 1.5
    assert measured.learning_seconds is not None
    assert measured.learning_seconds > 0
    assert measured.lag == 1.0
    asynchronous = run_point(replace(point, schedule="async"), mean_seconds=0.001, seconds=0.05, seed=1)
    assert asynchronous.lag is not None
    assert asynchronous.lag >= 0  # how much depends on who is quicker
    assert asynchronous.load is not None
    assert 0 <= asynchronous.load <= 1


def test_a_learner_is_busy_when_it_does_not_wait() -> None:
    lines = [{"wait/learner_seconds": waited, "time/time_elapsed": now} for waited, now in ((1, 10), (2, 12), (4, 20))]

    assert _load(lines) == pytest.approx(0.7)


def test_bench_variance_writes_a_record_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variance.measure, "__defaults__", (ideal,))
    monkeypatch.setattr(variance.measure_points, "__defaults__", (ideal,))
    monkeypatch.setattr(measure_headline, "__defaults__", (ideal,))

    VarianceTable(output=tmp_path).run()

    (path,) = tmp_path.glob("variance.json")
    document = json.loads(path.read_text())
    assert document["command"] == "htsrl bench variance"
    assert set(document["configs"]) >= {run["config"] for run in document["repetitions"]}
    assert document["summary"]["headline"]["epochs"] == 38
    assert len(document["summary"]["lag"]) == 5
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "3.5 met" in path.with_suffix(".md").read_text() or "3.5 missed" in path.with_suffix(".md").read_text()
