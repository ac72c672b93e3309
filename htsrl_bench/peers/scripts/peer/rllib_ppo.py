"""RLlib's PPO. It has no A2C any more: PPO with a single pass over the batch stands in for it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

from .envs import Env, make_env
from .job import Job, read_command_line

REPORTED_STEPS = 800
"""An iteration holds updates for about this many: after each one RLlib sums up, which takes longer than five steps."""


class Image(gymnasium.ObservationWrapper[Any, Any, Any]):
    """As RLlib's networks take images: numbers from 0 to 1, channels last."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (84, 84, 4), np.float32)

    def observation(self, observation: Any) -> Any:
        return np.moveaxis(observation, 0, -1).astype(np.float32) / 255.0


def make_rllib_env(job: Job) -> Env:
    env = make_env(job)
    return Image(env) if job.is_atari else env


def network(job: Job) -> DefaultModelConfig:
    if job.is_atari:
        return DefaultModelConfig(
            conv_filters=[(32, 8, 4), (64, 4, 2), (64, 3, 1)],
            conv_activation="relu",
            head_fcnet_hiddens=[512],
            head_fcnet_activation="relu",
            vf_share_layers=True,
        )
    return DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False)


def config(job: Job, variant: str) -> PPOConfig:
    runners = 0 if variant == "local" else min(job.cores, job.num_envs)
    return (
        PPOConfig()
        .environment("work")
        .framework("torch")
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=job.num_envs // max(runners, 1),
            rollout_fragment_length=job.rollout_steps,
        )
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=job.batch_steps,
            minibatch_size=job.minibatch_steps,
            num_epochs=job.epochs,
            lr=job.learning_rate,
            gamma=job.discount,
            lambda_=job.gae_lambda,
            clip_param=job.clip_range,
            entropy_coeff=job.entropy_coefficient,
            vf_loss_coeff=job.value_coefficient,
            grad_clip=job.max_gradient_norm,
            use_kl_loss=False,
        )
        .rl_module(model_config=network(job))
        .reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=REPORTED_STEPS)
    )


def main() -> None:
    job, variant, readings = read_command_line()
    ray.init(num_cpus=job.cores + 1, include_dashboard=False, logging_level="error")
    register_env("work", lambda _: make_rllib_env(job))
    algorithm = config(job, variant).build_algo()
    while True:
        result = algorithm.train()
        readings.updated(int(result["env_runners"]["num_env_steps_sampled_lifetime"]))


if __name__ == "__main__":
    main()
