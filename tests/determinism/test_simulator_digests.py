"""Law 2 on real simulators: one digest, whatever the number of processes and however they are delayed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from helpers import Outcome, assert_same_run, run

from htsrl import Experiment, preset
from htsrl.digest import first_difference

SMALL: dict[str, tuple[str, Experiment]] = {
    "pong_a2c": ("ale_py", replace(preset("ALE/Pong-v5", "a2c"), num_envs=4, total_steps=400)),
    "breakout_ppo": ("ale_py", replace(preset("ALE/Breakout-v5"), num_envs=4, sync_interval=32, total_steps=512)),
    "halfcheetah_ppo": ("mujoco", replace(preset("HalfCheetah-v5"), num_envs=4, sync_interval=64, total_steps=1536)),
    "empty_goal_close_ppo": (
        "gfootball",
        replace(preset("football/academy_empty_goal_close-v0"), num_envs=4, sync_interval=32, total_steps=512),
    ),
    "3_vs_1_ppo": (
        "gfootball",
        replace(preset("football/academy_3_vs_1_with_keeper-v0"), num_envs=4, sync_interval=16, total_steps=256),
    ),
    "3_vs_1_team_ppo": (
        "gfootball",
        replace(
            preset("football/academy_3_vs_1_with_keeper-v0"),
            env_args={"players": 3},
            num_envs=4,
            sync_interval=16,
            total_steps=256,
        ),
    ),
}
"""The package that each needs, and a few updates of its preset."""


@cache
def oracle(name: str) -> Outcome:
    package, experiment = SMALL[name]
    pytest.importorskip(package)
    return run(experiment, num_executors=1, num_actors=0)


@pytest.mark.parametrize(
    "placement",
    [
        pytest.param({"num_executors": 4, "num_actors": 3}, marks=pytest.mark.slow),
        pytest.param({"backend": "processes", "num_executors": 2, "num_actors": 0}, marks=pytest.mark.slow),
        {"backend": "processes", "num_executors": 3, "num_actors": 2, "jitter_seconds": 5e-3},
    ],
    ids=["inline-E4-A3", "processes-E2-A0", "processes-E3-A2-jitter"],
)
@pytest.mark.parametrize("name", SMALL)
def test_the_placement_does_not_change_the_digest(name: str, placement: dict[str, Any]) -> None:
    expected = oracle(name)
    assert_same_run(run(SMALL[name][1], **placement), expected)


@pytest.mark.parametrize(
    "name", ["pong_a2c", *(pytest.param(name, marks=pytest.mark.slow) for name in SMALL if name != "pong_a2c")]
)
def test_another_seed_gives_another_digest(name: str) -> None:
    expected = oracle(name)
    assert first_difference(run(replace(SMALL[name][1], seed=2)).links, expected.links) is not None
