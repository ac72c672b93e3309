"""Where the CPU time goes: what is counted, and that the parts add up."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from helpers import assert_same_run, run

from htsrl import A2C, ConfigError, Experiment
from htsrl.dataflow.exchange import Cost
from htsrl.roles.meter import Meter
from htsrl_bench import costs
from htsrl_bench.tables.costs import CostsTable

SMALL = Experiment("CartPole-v1", algorithm=A2C(), num_envs=4, total_steps=400)


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Simulator:
    def step(self) -> str:
        burn(0.02)
        return "stepped"

    def reset(self) -> None:
        raise RuntimeError("no episode today")

    def render(self) -> None:
        burn(0.02)


def test_the_time_of_a_watched_call_is_counted_and_no_other() -> None:
    seconds = np.zeros(len(Cost))
    simulator, meter = Simulator(), Meter(seconds)
    meter.watch_simulator(simulator)
    simulator.render()
    assert not seconds.any()
    assert simulator.step() == "stepped"
    assert 0.02 <= seconds[Cost.SIMULATOR] < 0.04
    assert not seconds[[Cost.INFERENCE, Cost.LEARNING]].any()


def test_a_call_that_raises_is_counted_and_raises() -> None:
    seconds = np.zeros(len(Cost))
    simulator = Simulator()
    Meter(seconds).watch_simulator(simulator)
    with pytest.raises(RuntimeError, match="no episode today"):
        simulator.reset()
    assert seconds[Cost.SIMULATOR] > 0


@pytest.mark.parametrize(
    ("executor_threads", "learner_workers"),
    [(False, 1), (True, 1), (False, 2)],
    ids=["in turn", "on threads", "two learn"],
)
def test_measuring_changes_no_bit_and_the_parts_are_within_the_whole(
    executor_threads: bool, learner_workers: int
) -> None:
    experiment = replace(SMALL, gradient_shards=2)
    worker_layout = {"backend": "processes", "num_executors": 1, "num_actors": 1, "executor_threads": executor_threads}
    measured = run(experiment, **worker_layout, learner_workers=learner_workers, measure_costs=True, log_every_steps=20)
    first, last = measured.metrics[0], measured.metrics[-1]
    assert float(last["cpu/total_seconds"] or 0) > float(first["cpu/total_seconds"] or 0)
    parts = [float(last[f"cpu/{cost.name.lower()}_seconds"] or 0) for cost in Cost]
    assert min(parts) > 0
    assert sum(parts[: Cost.TOTAL]) < parts[Cost.TOTAL]
    plain = run(experiment)
    assert_same_run(replace(measured, metrics=plain.metrics), plain)


def test_measuring_needs_workers() -> None:
    with pytest.raises(ConfigError, match="measure_costs=True splits costs by worker, and placement inline has none"):
        run(SMALL, measure_costs=True)


def test_the_table_of_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = costs._placement
    monkeypatch.setattr(costs, "_placement", lambda folder: replace(placement(folder), log_every_steps=400))
    monkeypatch.setattr(costs, "WORK", {"small": replace(SMALL, total_steps=2400)})
    measured = costs.measure(["small"], repetitions=2)
    assert [of.work for of in measured] == ["small", "small"]
    assert all(of.overhead > 0 for of in measured)
    document = costs.summary(["small"], measured)
    low, high = document["small"]["overhead_share_range"]
    assert 0 < low <= document["small"]["overhead_share"] <= high < 1
    assert 0 < document["small"]["checks"] < document["small"]["total"]
    assert "| small" in costs.table(document).markdown()


def test_each_work_has_a_record_of_its_own_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = [costs.Costs(work, 1.0, 2.0, 3.0, 0.5, 10.0, 100.0) for work in ("pong-a2c", "pong-ppo")]
    monkeypatch.setattr(costs, "measure", lambda *_: measured)
    monkeypatch.setattr(costs, "checks_of", lambda _: 0.1)

    CostsTable(work=("pong-a2c", "pong-ppo"), repetitions=1, output=tmp_path).run()

    for of in measured:
        document = json.loads((tmp_path / f"costs-{of.work}.json").read_text())
        assert document["repetitions"] == [asdict(of)]
        assert list(document["summary"]) == list(document["configs"]) == [of.work]


def test_unknown_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="work 'tennis' is not known; choose among pong-a2c"):
        costs.measure(["tennis"], repetitions=1)
