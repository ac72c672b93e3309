"""What benchmarks of runs on text make of their measurements."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from htsrl.config import Placement
from htsrl.errors import ConfigError, HtsrlError
from htsrl_bench.language import bible, bits, sweep
from htsrl_bench.language.prepared import Prepared
from htsrl_bench.language.speed import Measured, Reading, TextWork, measured_of, ratios, shares_of_bound

WORK = TextWork("small", Path("m"), Path("p"), "a:b", batch=4, completion_tokens=8, updates=2, skipped=1, last=1)


def readings(seconds: float) -> list[Reading]:
    return [Reading(seconds * n, 80.0 * n, 3.0 * n, 1.0 * n) for n in range(1, 5)]


def test_an_update_is_timed_between_the_first_ones_and_the_last() -> None:
    found = measured_of(WORK, "in turn", 0, [Reading(0.0, 0.0), *readings(4.0)[1:3], Reading(99.0, 9999.0)], 5.0)
    assert (found.seconds, found.tokens_per_second) == (6.0, 20.0)
    found = measured_of(WORK, "in turn", 0, readings(4.0), 5.0)
    assert (found.generating, found.learning, found.bound) == (3.0, 1.0, 4 / 3)
    assert measured_of(WORK, "side by side", 0, readings(4.0), 5.0).bound is None
    with pytest.raises(HtsrlError, match="ended after 3 of 4 updates"):
        measured_of(WORK, "in turn", 0, readings(4.0)[:3], 5.0)


def test_speed_ups_are_taken_within_a_repetition_and_beside_its_bound() -> None:
    measured = [
        measured_of(WORK, way, repetition, readings(seconds), 5.0)
        for repetition, slow in enumerate((1.0, 2.0))
        for way, seconds in (("in turn", 4.0 * slow), ("side by side", 3.2 * slow))
    ]
    assert ratios(measured, "small", "in turn", "side by side") == [pytest.approx(1.25)] * 2
    assert shares_of_bound(measured, "small") == [pytest.approx(0.9375)] * 2
    assert Measured("small", "TRL", 0, 1.0, 1.0, 1.0).bound is None


def run(loss: str, lag: int, minibatches: int, seed: int, win_rate: float) -> dict[str, Any]:
    point = sweep.Point(loss, lag, minibatches, seed, 1e-4)
    curve = [{"proxy": 0.1, "kl": None}, {"proxy": 0.5, "kl": 2.0}]
    own = {"win_rate": win_rate, "start": 0.3, "gold": 0.2, "digest": "d", "curve": curve}
    return {**dataclasses.asdict(point), **own}


def test_win_rates_are_compared_with_those_of_the_same_seeds() -> None:
    runs = [run("rloo", lag, 1, seed, 0.8 - 0.1 * lag + 0.01 * seed) for seed in (1, 2, 3) for lag in (0, 1)]
    without, delayed = sweep.table(runs, sweep.Budget(10, 4)).rows
    assert without[4:6] == ["3", "82.0 (81.0 to 83.0)"]
    assert without[-1] == "-"
    assert delayed[-1] == "-10.0 (-10.0 to -10.0)"
    assert len(sweep.runs_table(runs).rows) == 6


def test_updates_that_do_not_divide_into_rollouts_are_refused(tmp_path: Path) -> None:
    point, prepared = sweep.Point("rloo", 1, 32, 1, 1e-4), Prepared(tmp_path, 1)
    with pytest.raises(ConfigError, match=r"updates=10 is no multiple of the 64 optimizer steps .*\(32 minibatches, 2"):
        sweep.config_of(point, prepared, sweep.Budget(10, 4, num_iterations=2), Placement())


def test_runs_of_another_model_or_budget_are_kept_apart(tmp_path: Path) -> None:
    prepared, budget = Prepared(tmp_path, 800), sweep.Budget(48, 64)
    models = [prepared, Prepared(tmp_path, 100), Prepared(tmp_path, 800, 16), Prepared(tmp_path, 800, size="large")]
    changes = [{"updates": 8}, {"batch": 8}, {"num_generations": 4}, {"num_iterations": 2}]
    budgets = [budget, *(dataclasses.replace(budget, **change) for change in changes)]
    folders = {sweep.runs_folder(tmp_path, model, own) for model in models for own in budgets}
    assert len(folders) == len(models) * len(budgets)
    assert len({model.folder for model in models} | folders) == len(folders) + len(models)


def test_a_run_whose_bits_differ_shows_in_its_groups_line() -> None:
    compared = [bits.Compared("rloo", name, "d", 6, name != "other") for name in ("one process", "other")]
    assert bits.table(compared).rows[0][:2] == ["rloo", "1 of 2"]


def test_a_tool_rewards_words_that_it_has_not_heard() -> None:
    echo = bits.Echo("the lord", source="x")
    assert echo.step("the king king") == (" king", 1 / 8, False)
    assert echo.step("king") == (" king", 0.0, False)
    assert bits.variety(["a a b b", ""]) == [0.5, 0.0]


def test_saying_nothing_is_no_way_to_a_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    class Indifferent:
        def polarity_scores(self, text: str) -> dict[str, float]:
            return {"compound": 0.0}

    monkeypatch.setattr(bible, "_vader", Indifferent)
    assert bible.gold(["", "a b c d", "a b c d e f g h", "a a b b c c d d"]) == [-1.0, -0.5, 0.0, -0.25]
