"""Stable-Baselines3: its A2C and PPO as they are."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from .envs import Env, make_env
from .job import FOREVER, Job, OffPolicyJob, Readings, read_command_line


class Watch(BaseCallback):
    """A rollout begins when the update before it is done."""

    def __init__(self, readings: Readings) -> None:
        super().__init__()
        self._readings = readings

    def _on_rollout_start(self) -> None:
        if self.num_timesteps:
            self._readings.updated(self.num_timesteps)

    def _on_step(self) -> bool:
        return True


def vector_env(job: Job | OffPolicyJob, variant: str) -> VecEnv:
    def make() -> Env:
        return make_env(job)

    makers: list[Callable[[], gymnasium.Env]] = [make] * job.num_envs
    return DummyVecEnv(makers) if variant == "dummy" else SubprocVecEnv(makers, start_method="fork")


def algorithm(job: Job, env: VecEnv) -> BaseAlgorithm:
    shared = {
        "policy": "CnnPolicy" if job.is_atari else "MlpPolicy",  # the Nature CNN; two MLPs of 64x64 with tanh
        "env": env,
        "learning_rate": job.learning_rate,
        "n_steps": job.rollout_steps,
        "gamma": job.discount,
        "gae_lambda": job.gae_lambda,
        "ent_coef": job.entropy_coefficient,
        "vf_coef": job.value_coefficient,
        "max_grad_norm": job.max_gradient_norm,
        "normalize_advantage": job.normalize_advantages,
        "device": "cpu",
        "seed": 1,
    }
    if job.algorithm == "a2c":
        return A2C(**shared, rms_prop_eps=job.optimizer_epsilon)
    return PPO(**shared, batch_size=job.minibatch_steps, n_epochs=job.epochs, clip_range=job.clip_range)


def main() -> None:
    job, variant, readings = read_command_line()
    algorithm(job, vector_env(job, variant)).learn(FOREVER, callback=Watch(readings))


if __name__ == "__main__":
    main()
