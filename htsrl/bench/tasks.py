"""The tasks that `htsrl bench learning` learns, with their hyperparameters and goals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from htsrl.config import A2C, PPO, Experiment

Schedule = Literal["hts", "sync"]
SCHEDULES: tuple[Schedule, ...] = ("hts", "sync")


@dataclass(frozen=True)
class Task:
    """Something to learn; `experiment.total_steps` is the budget."""

    name: str
    experiment: Experiment
    goal: float
    """Mean return of the final policy's evaluation: 100 episodes of its most likely actions."""

    def with_seed(self, seed: int, schedule: Schedule) -> Experiment:
        return replace(self.experiment, seed=seed, schedule=schedule)


_ALL = (
    Task(
        name="cartpole-ppo",
        goal=475,
        experiment=Experiment("CartPole-v1", algorithm=PPO(), total_steps=149_504),  # whole intervals within 150,000
    ),
    Task(
        name="cartpole-a2c",
        goal=475,
        experiment=Experiment("CartPole-v1", algorithm=A2C(), total_steps=500_000),
    ),
    Task(
        name="pendulum-ppo",
        goal=-250,
        experiment=Experiment(
            "Pendulum-v1",
            algorithm=PPO(learning_rate=1e-3, discount=0.9, num_minibatches=32),
            total_steps=300_000,
        ),
    ),
)
TASKS: Mapping[str, Task] = {task.name: task for task in _ALL}
