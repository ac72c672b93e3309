"""What is trained: the same for everybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from htsrl.config import PPO, Config, Experiment, Placement, available_cores
from htsrl.config.presets import preset
from htsrl.envs.make import make_env

LIGHT_PPO = PPO(epochs=4, num_minibatches=4)

WORK: Mapping[str, Experiment] = {
    "pong-a2c": preset("ALE/Pong-v5", "a2c"),
    "breakout-a2c": preset("ALE/Breakout-v5", "a2c"),
    "pong-ppo": preset("ALE/Pong-v5", "ppo"),
    "breakout-ppo": preset("ALE/Breakout-v5", "ppo"),
    "cartpole-ppo": Experiment("CartPole-v1", algorithm=LIGHT_PPO, total_steps=100_000_000),
    "halfcheetah-ppo": Experiment("HalfCheetah-v5", algorithm=LIGHT_PPO, total_steps=100_000_000),
}
"""By name; all of them longer than anybody waits, for runs are ended from outside."""


def check_simulator(work: str) -> None:
    """ConfigError where htsrl itself lacks the simulator: better said before an hour of installing others."""
    make_env(WORK[work].env, WORK[work].env_args, WORK[work].imports).close()


def htsrl_config(work: str) -> Config:
    """Where htsrl puts its roles by itself."""
    placement = Placement(log_every_steps=1, tensorboard=False, progress="off")  # a line for every update
    return Config(replace(WORK[work], schedule="hts"), placement)


def job(work: str) -> dict[str, Any]:
    """The work as `peer.job.Job` takes it: no peer knows htsrl's own words."""
    experiment, algorithm = WORK[work], WORK[work].algorithm
    ppo = algorithm if isinstance(algorithm, PPO) else None
    return {
        "env": experiment.env,
        "algorithm": algorithm.name,
        "num_envs": experiment.num_envs,
        "rollout_steps": experiment.interval_steps,
        "epochs": ppo.epochs if ppo else 1,
        "num_minibatches": experiment.num_minibatches,
        "learning_rate": algorithm.learning_rate,
        "optimizer_epsilon": algorithm.optimizer_epsilon,
        "discount": algorithm.discount,
        "gae_lambda": algorithm.gae_lambda,
        "clip_range": ppo.clip_range if ppo else 0.2,
        "entropy_coefficient": algorithm.entropy_coefficient,
        "value_coefficient": algorithm.value_coefficient,
        "max_gradient_norm": algorithm.max_gradient_norm,
        "normalize_advantages": algorithm.normalize_advantages,
        "cores": available_cores(),
    }
