"""The bench of environments that wait: what it compares with, and what a record of it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from htsrl.envs.toy import Sleeping
from htsrl.errors import ConfigError
from htsrl_bench.highlights import highlights_of
from htsrl_bench.waiting import Measured, WaitingBench, intervals, limits, summary, table

BENCH = WaitingBench(8, 2, 0.05, "exponential", 1.5, 20, ("hts", "lockstep"), 1.0, 1)


@pytest.mark.parametrize("law", ["exponential", "pareto"])
def test_a_simulated_step_is_drawn_from_the_law_that_the_environment_sleeps_by(law: str) -> None:
    bench = replace(BENCH, law=law, shape=3.0)  # type: ignore[arg-type]
    env = Sleeping(law, mean_seconds=0.05, shape=3.0, episode_steps=20_000)  # type: ignore[arg-type]
    env.reset(seed=1)

    drawn = intervals(bench, 1000) / bench.sync_interval

    assert drawn.mean() == pytest.approx(0.05, rel=0.02)
    assert np.mean(env.sleep_seconds) == pytest.approx(0.05, rel=0.03)
    assert np.std(env.sleep_seconds) == pytest.approx(drawn.std() * bench.sync_interval**0.5, rel=0.15)


def test_a_softer_barrier_lets_environments_be_faster_than_claim_1() -> None:
    found = limits(BENCH)

    assert found["claim_1"] < found["soft_barrier"] < found["no_barrier"] == pytest.approx(160)


def test_a_pareto_law_without_a_mean_is_refused() -> None:
    with pytest.raises(ConfigError, match="shape=1 must be above 1"):
        Sleeping("pareto", shape=1)


def test_memory_of_an_environment_is_what_more_of_them_take() -> None:
    runs = {"hts": (150.0, 160.0), "lockstep": (75.0, 160.0), "hts, 2 environments": (40.0, 148.0)}
    measured = [Measured(name, 1, speed, 90.0, megabytes) for name, (speed, megabytes) in runs.items()]

    document = summary(BENCH, measured, {"all in turn": "a1", "all at once": "a1"})

    assert document["megabytes_per_env"] == 2.0
    text = table(BENCH, document).markdown()
    assert "2.00" in text.splitlines()[3]  # lockstep: hts over it
    assert text.rstrip().endswith("all in turn, all at once: equal.")
    ((_, said),) = highlights_of("waiting-exponential", document)
    assert said.startswith("hts 150, lockstep 75, ")
    different = summary(BENCH, measured, {"all in turn": "a1", "all at once": "b2"})
    assert "NOT EQUAL" in table(BENCH, different).markdown()


@pytest.mark.parametrize("mistake", [{"schedules": ("sync",)}, {"few_envs": 8}, {"seconds_per_run": 0.0}])
def test_a_bench_that_cannot_compare_is_refused(mistake: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        replace(BENCH, **mistake)  # type: ignore[arg-type]
