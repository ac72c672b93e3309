"""What is trained: the same for everybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from htsrl.algorithms.ppo import PPO
from htsrl.algorithms.sac import SAC
from htsrl.config import Config, Experiment, Network, Placement, available_cores
from htsrl.config.presets import preset
from htsrl.envs.make import make_env
from htsrl_bench.peers.frameworks import ATARI, WIDEST

Precision = Literal["float32", "bfloat16"]

LIGHT_PPO = PPO(epochs=4, num_minibatches=4)


def _learning_soon(env: str) -> Experiment:
    """The preset for SAC, with its first gradient before anybody measures."""
    experiment = preset(env, "sac")
    return replace(experiment, algorithm=replace(experiment.algorithm, learning_starts=500), total_steps=100_000_000)


WORK: Mapping[str, Experiment] = {
    "pong-a2c": preset("ALE/Pong-v5", "a2c"),
    "breakout-a2c": preset("ALE/Breakout-v5", "a2c"),
    "pong-ppo": preset("ALE/Pong-v5", "ppo"),
    "breakout-ppo": preset("ALE/Breakout-v5", "ppo"),
    "cartpole-ppo": Experiment("CartPole-v1", algorithm=LIGHT_PPO, total_steps=100_000_000),
    "halfcheetah-ppo": Experiment("HalfCheetah-v5", algorithm=LIGHT_PPO, total_steps=100_000_000),
    # PufferLib's own shape: one hidden layer that actions and values share, 64 steps, minibatches of 32,768.
    WIDEST: Experiment(
        "CartPole-v1",
        algorithm=PPO(epochs=1, num_minibatches=8),
        network=Network(hidden_sizes=(128,), activation="relu", separate_value=False),
        num_envs=4096,
        lanes=2,
        sync_interval=64,
        gradient_shards=8,
        total_steps=1_000_000_000,
    ),
    "pendulum-sac": _learning_soon("Pendulum-v1"),
    "halfcheetah-sac": _learning_soon("HalfCheetah-v5"),
}
"""By name; all of them longer than anybody waits, for runs are ended from outside."""


def check_simulator(work: str) -> None:
    """ConfigError where htsrl itself lacks the simulator: better said before an hour of installing others."""
    make_env(WORK[work].env, WORK[work].env_args, WORK[work].imports).close()


def htsrl_config(work: str, precision: Precision = "float32") -> Config:
    """Where htsrl puts its roles by itself."""
    placement = Placement(log_every_steps=1, tensorboard=False, progress="off")  # a line for every update
    network = replace(WORK[work].network, precision=precision)
    return Config(replace(WORK[work], schedule="hts", network=network), placement)


def precisions_of(work: str, asked: Sequence[Precision]) -> list[Precision]:
    """Those of the asked ones that the work has: only what sees images multiplies in bfloat16."""
    return [name for name in asked if name == "float32" or work in ATARI]


def job(work: str) -> dict[str, Any]:
    """The work as `peer.job.Job` takes it: no peer knows htsrl's own words."""
    experiment, algorithm = WORK[work], WORK[work].algorithm
    if isinstance(algorithm, SAC):
        return off_policy_job(experiment, evaluation_episodes=0)
    return {
        "env": experiment.env,
        "algorithm": algorithm.name,
        "hidden_sizes": experiment.network.hidden_sizes,
        "num_envs": experiment.num_envs,
        "rollout_steps": experiment.interval_steps,
        "epochs": getattr(algorithm, "epochs", 1),
        "num_minibatches": experiment.num_minibatches,
        "learning_rate": algorithm.learning_rate,
        "optimizer_epsilon": algorithm.optimizer_epsilon,
        "discount": algorithm.discount,
        "gae_lambda": algorithm.gae_lambda,
        "clip_range": getattr(algorithm, "clip_range", 0.2),
        "entropy_coefficient": algorithm.entropy_coefficient,
        "value_coefficient": algorithm.value_coefficient,
        "max_gradient_norm": algorithm.max_gradient_norm,
        "normalize_advantages": algorithm.normalize_advantages,
        "cores": available_cores(),
    }


def off_policy_job(experiment: Experiment, evaluation_episodes: int) -> dict[str, Any]:
    """The work as `peer.job.OffPolicyJob` takes it."""
    algorithm = experiment.algorithm
    assert isinstance(algorithm, SAC)
    assert algorithm.learning_rate == algorithm.temperature_learning_rate, "Stable-Baselines3 has one for both"
    return {
        "env": experiment.env,
        "algorithm": algorithm.name,
        "num_envs": experiment.num_envs,
        "rollout_steps": experiment.interval_steps,
        "gradient_steps": round(algorithm.update_to_data * experiment.num_envs * experiment.interval_steps),
        "minibatch_steps": algorithm.minibatch_size,
        "replay_capacity": algorithm.replay_capacity,
        "learning_starts": algorithm.learning_starts,
        "learning_rate": algorithm.learning_rate,
        "discount": algorithm.discount,
        "follow_rate": algorithm.follow_rate,
        "hidden_sizes": list(experiment.network.hidden_sizes),
        "seed": experiment.seed,
        "total_steps": experiment.total_steps,
        "evaluation_episodes": evaluation_episodes,
    }
