"""Stable-Baselines3: its SAC as it is, to see how fast it is or what it learns.

Beside the readings it writes `learned.json` once all steps are done: the curve of its training episodes, and what the
final policy is worth.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecMonitor

from .job import OffPolicyJob, Readings, read_off_policy_command_line
from .sb3 import vector_env

CURVE_EVERY_STEPS = 500


class Watch(BaseCallback):
    """A rollout begins when the update before it is done; the curve is the mean return of the last 100 episodes."""

    def __init__(self, readings: Readings) -> None:
        super().__init__()
        self._readings = readings
        self._start = time.monotonic()
        self.curve: list[tuple[int, float, float]] = []

    def _on_rollout_start(self) -> None:
        if self.num_timesteps:
            self._readings.updated(self.num_timesteps)
        if self.num_timesteps - (self.curve[-1][0] if self.curve else 0) >= CURVE_EVERY_STEPS:
            self.look()

    def look(self) -> None:
        episodes = self.model.ep_info_buffer
        if episodes:
            mean = float(np.mean([episode["r"] for episode in episodes]))
            self.curve.append((self.num_timesteps, mean, time.monotonic() - self._start))

    def _on_step(self) -> bool:
        return True


def algorithm(job: OffPolicyJob, variant: str) -> SAC:
    """The policy's network and the critics' have the same sizes, and ReLU; the temperature is learned."""
    return SAC(
        "MlpPolicy",
        VecMonitor(vector_env(job, variant)),
        learning_rate=job.learning_rate,
        buffer_size=job.replay_capacity,
        learning_starts=job.learning_starts,
        batch_size=job.minibatch_steps,
        tau=job.follow_rate,
        gamma=job.discount,
        train_freq=(job.rollout_steps, "step"),
        gradient_steps=job.gradient_steps,
        policy_kwargs={"net_arch": list(job.hidden_sizes)},
        device="cpu",
        seed=job.seed,
    )


def main() -> None:
    job, variant, path = read_off_policy_command_line()
    watch, model = Watch(Readings(path)), algorithm(job, variant)
    model.learn(job.total_steps, callback=watch)
    watch.look()
    environment = VecMonitor(vector_env(job, "dummy"))
    environment.seed(job.seed + 1000)
    returns, _ = evaluate_policy(model, environment, job.evaluation_episodes, return_episode_rewards=True)
    score = {"score": float(np.mean(returns)), "score_deviation": float(np.std(returns)), "curve": watch.curve}
    Path(path.with_name("learned.json")).write_text(json.dumps(score))


if __name__ == "__main__":
    main()
