"""Kills of runs in bfloat16, whose copies of weights are nobody's but the process's that made them: no bit changes."""

from __future__ import annotations

from helpers import run
from interleavings import assert_kills_change_nothing, blueprint_of

from htsrl import PPO, Experiment, Network

EXPERIMENT = Experiment(
    "htsrl/PixelCatch-v0",
    {"step_limit": 17},
    algorithm=PPO(epochs=2, num_minibatches=2),
    network=Network(precision="bfloat16"),
    num_envs=4,
    sync_interval=8,
    gradient_shards=2,
    total_steps=4 * 8 * 6,
)


def test_whoever_is_killed_between_any_two_lines_no_bit_changes() -> None:
    wanted = {"learner": 1, "gradient worker 1": 1, "actor": 1}
    assert_kills_change_nothing(blueprint_of(EXPERIMENT), run(EXPERIMENT).links, wanted, min_runs=2)
