"""Small experiments with several learners."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from helpers import Outcome, run

from htsrl import A2C, PPO, Experiment, Network

CARTPOLE = Experiment(
    "CartPole-v1",
    {"max_episode_steps": 20},
    algorithm=PPO(epochs=2, num_minibatches=2, learning_rate=3e-3),
    network=Network(hidden_sizes=(8,)),
    num_envs=4,
    sync_interval=6,
)
RULES: dict[str, dict[str, Any]] = {
    "fixed": {"local_updates": 3},
    "qsr": {"base_updates": 2, "alpha": 0.0055},
    "selsync": {"window": 2, "delta": 0.2},
    "sync_switch": {"switch_share": 0.4, "momentum_factor": 0.5},
}
NUM_UPDATES = 8


def replicated(
    rule: str, learners: int = 2, num_updates: int = NUM_UPDATES, base: Experiment = CARTPOLE, **args: Any
) -> Experiment:
    steps = num_updates * base.batch_steps
    return replace(base, learners=learners, sync_rule=rule, sync_args={**RULES[rule], **args}, total_steps=steps)


A2C_PIXELS = Experiment(
    "htsrl/PixelCatch-v0", {"step_limit": 17}, algorithm=A2C(), num_envs=4, network=Network(hidden_sizes=(8,))
)
NORMALIZED = Experiment(
    "Pendulum-v1",
    {"max_episode_steps": 11},
    algorithm=PPO(epochs=1, num_minibatches=2, normalize_rewards=True),
    network=Network(normalize_observations=True, hidden_sizes=(8,)),
    num_envs=4,
    sync_interval=8,
)


@cache
def oracle(rule: str, learners: int = 2) -> Outcome:
    """All in this process, undisturbed."""
    return run(replicated(rule, learners), log_every_steps=1)
