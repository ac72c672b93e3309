"""The planner: predictions by hand-computed numbers, and measurements of a small experiment."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import htsrl
from htsrl import A2C, PPO, Experiment
from htsrl.cli.main import main
from htsrl.envs.check.claims import Barrier, StepTime, bound_steps_per_second
from htsrl.envs.toy import Sleeping
from htsrl.planning.lag_price import COMPARED, Compared, lag_price, optimizer_steps
from htsrl.planning.measure import StepCosts, measure
from htsrl.planning.model import Layout, best, changes, predict
from htsrl_bench.simulations import simulate_hts_steps_per_second

RECORDS = Path(htsrl.__file__).parents[1] / "benchmarks"
COMPUTES = StepCosts(
    simulator=100e-6,
    simulator_wall=100e-6,
    simulator_cv=0.0,
    inference={8: 20e-6, 16: 10e-6},
    collecting=150e-6,
    learning=60e-6,
    gradient=40e-6,
)
WAITS = replace(COMPUTES, simulator=0.0, simulator_wall=50e-3, simulator_cv=1.0, collecting=50e-6, waits=True)
HTS = Experiment("CartPole-v1", algorithm=A2C(), num_envs=16, sync_interval=20, gradient_shards=2)


def test_under_hts_the_slower_of_collecting_and_learning_decides() -> None:
    one = predict(HTS, COMPUTES, Layout(1), cores=4)
    assert one.steps_per_second == pytest.approx(1 / 150e-6)
    assert one.bottleneck == "environments"
    # Two executors answer 8 each, at 20 us instead of 10: 160 us over 2.
    two = predict(HTS, COMPUTES, Layout(2), cores=4)
    assert two.steps_per_second == pytest.approx(2 / 160e-6)
    # Learning, its gradient shared by two: 20 us and 40 us over 2.
    learner = predict(HTS, replace(COMPUTES, learning=300e-6, gradient=200e-6), Layout(4, learner_workers=2), cores=16)
    assert learner.steps_per_second == pytest.approx(1 / 200e-6)
    assert learner.bottleneck == "learning"


def test_no_layout_is_faster_than_all_cores_busy() -> None:
    full = predict(HTS, COMPUTES, Layout(2, learner_workers=2), cores=2)
    assert full.steps_per_second == pytest.approx(2 / 220e-6)
    assert full.bottleneck == "cores"


def test_in_turn_the_times_add_up() -> None:
    sync = predict(replace(HTS, schedule="sync"), COMPUTES, Layout(1), cores=4)
    assert sync.steps_per_second == pytest.approx(1 / 210e-6)


def test_on_threads_the_slowest_is_waited_for_as_claim_1_says_and_less_under_hts() -> None:
    waits, bound = replace(WAITS, collecting=0.0, inference={16: 0.0}), Barrier(16, 20)
    nothing = replace(waits, learning=0.0, gradient=0.0)
    sync = predict(replace(HTS, schedule="sync"), nothing, Layout(1, on_threads=True), cores=2)
    hts = predict(HTS, waits, Layout(1, on_threads=True), cores=2)
    assert sync.steps_per_second == pytest.approx(bound_steps_per_second(bound, StepTime(50e-3)), rel=1e-6)
    assert hts.steps_per_second == pytest.approx(simulate_hts_steps_per_second(bound, StepTime(50e-3), 400), rel=0.03)
    assert hts.steps_per_second > 1.2 * sync.steps_per_second
    assert best(HTS, WAITS, cores=2)[0].layout.on_threads


def test_steps_that_wait_are_not_waited_for_longer_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(self: Sleeping, action: Any) -> Any:
        steps.append(action)
        return step(self, action)

    steps, step = list[Any](), Sleeping.step
    monkeypatch.setattr(Sleeping, "step", counted)
    experiment = Experiment(
        "htsrl/Sleeping-v0", {"mean_seconds": 0.01, "law": "constant"}, imports=("htsrl.envs.toy",), algorithm=A2C(),
        num_envs=64, sync_interval=20,
    )  # fmt: skip

    costs = measure(experiment, seconds=0.1)

    assert 64 <= len(steps) < 500  # two updates are 2,560
    assert costs.waits
    assert costs.simulator_wall > 0.0099
    assert costs.collecting < costs.simulator_wall / 2, "of the CPU, and who waits uses none"


def test_what_would_help_is_named_with_its_gain() -> None:
    found = {change.what: change for change in changes(HTS, WAITS, cores=2)}
    assert found["--num-envs 32"].gain > 0.5
    assert found["--sync-interval 80 instead of 20"].changes_experiment
    assert found["--sync-interval 80 instead of 20"].gain > 0.05
    cores = {change.what: change for change in changes(HTS, COMPUTES, cores=2)}
    assert not cores["2 more cores"].changes_experiment


PPO_HTS = replace(HTS, algorithm=PPO(epochs=10, num_minibatches=32), sync_interval=128)


def test_what_the_lag_of_ppo_cost_elsewhere_is_said_with_the_speed_of_sync() -> None:
    first, second = lag_price(PPO_HTS, COMPUTES, cores=2)
    assert "320 optimizer steps an update; hts was lower than sync, per step, on HalfCheetah (80)" in first
    assert "no difference was shown on CartPole (160)" in second
    sync = best(replace(PPO_HTS, schedule="sync"), COMPUTES, cores=2)[0].steps_per_second
    assert second.endswith(f"--schedule sync: {sync:,.0f} steps/s")


@pytest.mark.parametrize(
    "experiment",
    [
        HTS,  # A2C's one gradient is taken where the data were made
        replace(PPO_HTS, schedule="sync"),
        replace(PPO_HTS, lag=0),
        replace(PPO_HTS, algorithm=PPO(epochs=4, num_minibatches=4)),  # less than what was ever seen to cost anything
    ],
)
def test_no_price_is_named_where_there_is_no_lag_or_none_is_known(experiment: Experiment) -> None:
    assert not lag_price(experiment, COMPUTES, cores=2)


@pytest.mark.parametrize("compared", COMPARED["ppo"], ids=lambda compared: compared.task)
def test_what_is_said_of_the_lag_is_what_its_record_says(compared: Compared) -> None:
    record = json.loads((RECORDS / f"{compared.record}.json").read_text())
    config = next(iter(record["configs"].values()))["experiment"]
    experiment = Experiment(config["env"], algorithm=PPO(num_minibatches=config["algorithm"]["num_minibatches"]))
    assert optimizer_steps(experiment) == compared.optimizer_steps
    if "lags" in record["summary"]:
        of_one = next(row for row in record["summary"]["lags"] if row["lag"] == 1)
        differences = [of_one["over_run_less_first"], of_one["score_less_first"]]
    else:
        differences = [record["summary"][name]["differences"]["sync"] for name in ("over_run", "scores")]
    assert any(difference["high"] < 0 for difference in differences) == compared.is_lower


def test_a_run_is_measured_and_planned_for(capsys: pytest.CaptureFixture[str]) -> None:
    experiment = Experiment("CartPole-v1", algorithm=A2C(), num_envs=4, sync_interval=5)
    costs = measure(experiment, seconds=0.05)
    assert 0 < costs.simulator < costs.collecting
    assert 0 < costs.gradient < costs.learning
    assert set(costs.inference) == {1, 2, 4}
    assert not costs.waits
    with pytest.raises(SystemExit) as ended:
        main(["plan", "CartPole-v1", "--algo", "a2c", "--seconds", "0.05", "--cores", "3"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "predicted for 3 cores" in shown
    assert "htsrl train CartPole-v1 --algo a2c" in shown
