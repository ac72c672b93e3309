"""The experiments whose digests are compared, and their inline oracle."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

from helpers import Outcome, run

from htsrl import A2C, PPO, Experiment, Network

NUM_ENVS = 8
EXPERIMENTS = {
    "cartpole_ppo": Experiment(
        "CartPole-v1", algorithm=PPO(epochs=2), num_envs=NUM_ENVS, sync_interval=32, total_steps=1024
    ),
    # The limit cuts some episodes and lets others fall over.
    "cartpole_a2c": Experiment(
        "CartPole-v1", {"max_episode_steps": 20}, algorithm=A2C(), num_envs=NUM_ENVS, total_steps=1000
    ),
    "pixels_a2c": Experiment(
        "htsrl/PixelCatch-v0", {"step_limit": 17}, algorithm=A2C(), num_envs=NUM_ENVS, total_steps=400
    ),
    "normalized_ppo": Experiment(
        "Pendulum-v1",
        {"max_episode_steps": 21},
        algorithm=PPO(epochs=2, num_minibatches=4, normalize_rewards=True),
        network=Network(normalize_observations=True),
        num_envs=NUM_ENVS,
        sync_interval=16,
        total_steps=512,
    ),
}


def small_experiment(name: str, schedule: Literal["hts", "sync", "lockstep"] = "hts") -> Experiment:
    return replace(EXPERIMENTS[name], schedule=schedule)


@cache
def oracle(name: str, schedule: Literal["hts", "sync"] = "hts") -> Outcome:
    """One executor that acts for itself, all in this process: what every other placement must match."""
    return run(small_experiment(name, schedule), num_executors=1, num_actors=0)
