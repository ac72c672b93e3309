"""`htsrl bench lag`: return per step against the lag, compared seed by seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from htsrl.algorithms.a2c import A2C
from htsrl.config import Experiment
from htsrl.errors import ConfigError
from htsrl.statistics.intervals import Interval
from htsrl_bench import lag_learning
from htsrl_bench.highlights import highlights_of
from htsrl_bench.lag_learning import LAG_TASKS, LagTask, lag_rows
from htsrl_bench.learned import Learned
from htsrl_bench.tables.lag import LagTable
from htsrl_bench.ways import in_way


def learned_run(lag: int, seed: int, over_run: float, score: float = 0.0) -> Learned:
    return Learned(f"lag-{lag}", seed, score, 0.0, "digest", 1, 1.0, "htsrl train", None, over_run, ((1, 0.0, 0.0),))


def test_a_lag_is_compared_with_the_first_seed_by_seed() -> None:
    first = [learned_run(0, 1, 10.0), learned_run(0, 2, 20.0)]
    later = [learned_run(4, 2, 19.0), learned_run(4, 1, 7.0)]

    zero, four = lag_rows([0, 4], [*later, *first])

    assert zero.over_run_less_first is None
    difference = four.over_run_less_first
    # Differences -3 and -1: -2 +- 12.706 * sqrt(2) / sqrt(2).
    assert isinstance(difference, Interval)
    assert (difference.mean, difference.low) == pytest.approx((-2.0, -14.706), abs=1e-3)
    assert isinstance(four.over_run, Interval)
    assert four.over_run.mean == 13.0


def test_a_single_seed_has_means_and_no_interval() -> None:
    learned = [learned_run(0, 1, 10.0), learned_run(1, 1, 9.0)]
    rows = lag_rows([0, 1], learned)
    assert [row.over_run for row in rows] == [10.0, 9.0]
    assert rows[1].over_run_less_first == -1.0
    assert "| 1   | 9             | -1 " in lag_learning.tables([0, 1], learned, 10)[0].markdown()
    ((_, result),) = highlights_of("lag-x", lag_learning.summary([0, 1], learned))
    assert result == "1: -1 (no interval)"


@pytest.mark.parametrize("task", LAG_TASKS.values(), ids=LAG_TASKS)
def test_ways_of_a_lag_task_differ_in_the_lag_alone(task: LagTask) -> None:
    experiments = [task.with_seed(3, f"lag-{lag}") for lag in (0, 1, 4)]
    assert [(x.schedule, x.lag, x.seed) for x in experiments] == [("hts", lag, 3) for lag in (0, 1, 4)]
    assert len({(x.algorithm, x.num_envs, x.sync_interval, x.total_steps) for x in experiments}) == 1


def test_what_is_no_lag_is_no_way() -> None:
    with pytest.raises(ConfigError, match="way 'lag-x' is not known"):
        in_way(Experiment("CartPole-v1"), "lag-x")


def test_an_unknown_task_and_a_negative_lag_are_refused_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match="halfcheetah-a2c"):
        LagTable(tasks=("chess",)).run()
    with pytest.raises(ConfigError, match="lags of 0 or more"):
        LagTable(lags=(-1,)).run()


def test_bench_lag_trains_keeps_and_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = Experiment("CartPole-v1", algorithm=A2C(), num_envs=4, sync_interval=8, total_steps=640)
    monkeypatch.setattr("htsrl_bench.tables.lag.LAG_TASKS", {"tiny": LagTask("tiny", experiment)})
    bench = LagTable(("tiny",), (0, 2), (1, 2), 2, finished_runs=tmp_path / "runs", output=tmp_path)

    assert bench.run() == 0
    first = json.loads((tmp_path / "lag-tiny.json").read_text())
    assert bench.run() == 0
    document = json.loads((tmp_path / "lag-tiny.json").read_text())

    assert document["repetitions"] == first["repetitions"]
    assert len({run["digest"] for run in document["repetitions"]}) == 4
    assert "--lag 2" in document["repetitions"][1]["command"]
    ((what, result),) = highlights_of(document["name"], document["summary"])
    assert what.startswith("tiny, 2 seeds, 640 steps")
    assert result.startswith("2: ")
    assert (tmp_path / "lag-tiny.png").read_bytes().startswith(b"\x89PNG")
    assert str(tmp_path) not in (tmp_path / "lag-tiny.json").read_text()
