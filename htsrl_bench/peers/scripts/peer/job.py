"""What every peer is asked to do, and how it tells how far it is."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

FOREVER = 1_000_000_000
"""Steps; whoever started a peer ends it."""


@dataclass(frozen=True)
class Job:
    """The work, in words that no framework owns."""

    env: str
    algorithm: str
    """`a2c` or `ppo`."""
    hidden_sizes: tuple[int, ...]
    """Of the MLPs; one layer is shared by policy and value and has rectifiers, two are not and have tangents."""
    num_envs: int
    rollout_steps: int
    """Of each environment, between two updates."""
    epochs: int
    num_minibatches: int
    learning_rate: float
    optimizer_epsilon: float
    discount: float
    gae_lambda: float
    clip_range: float
    """Of PPO; A2C has no use for it."""
    entropy_coefficient: float
    value_coefficient: float
    max_gradient_norm: float
    normalize_advantages: bool
    cores: int

    @property
    def is_atari(self) -> bool:
        return self.env.startswith("ALE/")

    @property
    def batch_steps(self) -> int:
        return self.num_envs * self.rollout_steps

    @property
    def minibatch_steps(self) -> int:
        return self.batch_steps // self.num_minibatches


@dataclass(frozen=True)
class OffPolicyJob:
    """The same of algorithms with a replay buffer."""

    env: str
    algorithm: str
    """`sac`."""
    num_envs: int
    rollout_steps: int
    """Of each environment, between two updates."""
    gradient_steps: int
    """Of every update."""
    minibatch_steps: int
    replay_capacity: int
    learning_starts: int
    """Steps of all environments before the first gradient."""
    learning_rate: float
    discount: float
    follow_rate: float
    hidden_sizes: list[int]
    seed: int
    total_steps: int
    evaluation_episodes: int
    """Played with the most likely actions once all steps are done."""

    @property
    def is_atari(self) -> bool:
        return self.env.startswith("ALE/")


class Readings:
    """A file with a line `STEPS SECONDS` for every update."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._parent = os.getppid()

    def updated(self, steps: int) -> None:
        self._file.write(f"{steps} {time.monotonic():.6f}\n")
        if os.getppid() != self._parent:  # nobody is left to end this: end it, with all workers
            os.killpg(0, signal.SIGKILL)


def read_command_line() -> tuple[Job, str, Readings]:
    job_file, variant, readings_file = sys.argv[1:]
    return Job(**json.loads(Path(job_file).read_text())), variant, Readings(Path(readings_file))


def read_off_policy_command_line() -> tuple[OffPolicyJob, str, Path]:
    job_file, variant, readings_file = sys.argv[1:]
    return OffPolicyJob(**json.loads(Path(job_file).read_text())), variant, Path(readings_file)
