"""Small experiments with what real environments need at once: memory, masks, spaces of parts, teams."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

from helpers import Outcome, run

from htsrl import A2C, PPO, Experiment, Network

Schedule = Literal["hts", "sync", "lockstep"]
NUM_ENVS = 4
LSTM = Network(hidden_sizes=(8,), recurrent="lstm", recurrent_size=8)
GRU = replace(LSTM, recurrent="gru")
BRIEF_PPO = PPO(epochs=2, num_minibatches=2)

# The limits cut some episodes and let others end, at all rows of a rollout; the lengths have few common divisors.
COMBINATIONS = {
    "lstm_ppo": Experiment(
        "htsrl/HiddenCartPole-v0",
        {"step_limit": 15},
        algorithm=BRIEF_PPO,
        network=replace(LSTM, backpropagation_length=4),
        sync_interval=8,
    ),
    "gru_a2c": Experiment("htsrl/HiddenCartPole-v0", {"step_limit": 15}, algorithm=A2C(), network=GRU, sync_interval=5),
    "dict_mask_lstm": Experiment(
        "htsrl/Memoir-v0",
        {"num_doors": 3, "length": 5, "max_episode_steps": 4},
        algorithm=BRIEF_PPO,
        network=LSTM,
        sync_interval=7,
    ),
    "hybrid_gru": Experiment(
        "htsrl/Crane-v0",
        {"length": 5},
        algorithm=replace(BRIEF_PPO, normalize_rewards=True),
        network=replace(GRU, encoder="impala", normalize_observations=True, bounded_actions="squash"),
        sync_interval=6,
    ),
    "team_mask_lstm": Experiment("htsrl/Relay-v0", algorithm=BRIEF_PPO, network=LSTM, sync_interval=5),
}
SIMULATORS = {
    "pettingzoo_gru": (
        "mpe2",
        Experiment(
            "pettingzoo/mpe2.simple_spread_v3", {"max_cycles": 7}, algorithm=A2C(), network=GRU, sync_interval=5
        ),
    ),
    "football_lstm": (
        "gfootball",
        Experiment(
            "football/academy_3_vs_1_with_keeper-v0",
            {"players": 3},
            algorithm=BRIEF_PPO,
            network=LSTM,
            sync_interval=8,
        ),
    ),
}
"""Three agents each, with the package that they need."""


def combination(name: str, num_updates: int, schedule: Schedule = "hts") -> Experiment:
    experiment = COMBINATIONS[name] if name in COMBINATIONS else SIMULATORS[name][1]
    experiment = replace(experiment, num_envs=NUM_ENVS, schedule=schedule)
    return replace(experiment, total_steps=num_updates * experiment.batch_steps)


@cache
def oracle(name: str, num_updates: int, schedule: Schedule = "hts") -> Outcome:
    """One executor that acts for itself, all in this process, undisturbed."""
    return run(combination(name, num_updates, schedule), num_executors=1, num_actors=0)
