"""Kills of runs in bfloat16, whose copies of weights are nobody's but the process's that made them: no bit changes."""

from __future__ import annotations

from collections import Counter

from helpers import run
from interleavings import blueprint_of, work_in_any_order

from htsrl import PPO, Experiment, Network
from htsrl.digest import first_difference

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
KILL_ODDS = 0.003
NUM_SEEDS = 2


def test_whoever_is_killed_between_any_two_lines_no_bit_changes() -> None:
    blueprint, killed, oracle = blueprint_of(EXPERIMENT), Counter[str](), run(EXPERIMENT).links
    for seed in range(NUM_SEEDS):
        links, kills = work_in_any_order(blueprint, seed, KILL_ODDS)
        killed += Counter(kills)
        assert first_difference(links, oracle) is None, f"seed {seed}, kills of {kills}"
    assert killed["learner"]
    assert killed["gradient worker 1"]
    assert killed["actor 0"] + killed["actor 1"]
