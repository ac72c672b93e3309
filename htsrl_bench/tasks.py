"""The tasks that `htsrl bench learning` learns, with their hyperparameters and goals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.ppo import PPO
from htsrl.config import Experiment
from htsrl.config.presets import preset
from htsrl_bench.ways import in_way


@dataclass(frozen=True)
class Task:
    """Something to learn; `experiment.total_steps` is the budget."""

    name: str
    experiment: Experiment
    goal: float
    """Mean return of the final policy's evaluation: 100 episodes of its most likely actions."""

    def with_seed(self, seed: int, way: str) -> Experiment:
        return in_way(replace(self.experiment, seed=seed), way)


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
    Task(name="pendulum-sac", goal=-200, experiment=replace(preset("Pendulum-v1", "sac"), total_steps=10_000)),
    Task(name="pendulum-td3", goal=-200, experiment=replace(preset("Pendulum-v1", "td3"), total_steps=10_000)),
    Task(name="cartpole-dqn", goal=475, experiment=preset("CartPole-v1", "dqn")),
    Task(name="cartpole-discrete-sac", goal=475, experiment=preset("CartPole-v1", "discrete_sac")),
    Task(
        name="halfcheetah-sac",
        goal=3000,
        experiment=replace(preset("HalfCheetah-v5", "sac"), total_steps=60_000),
    ),
    Task(
        name="football-empty-goal-close",
        goal=0.9,
        experiment=replace(preset("football/academy_empty_goal_close-v0"), total_steps=204_800),
    ),
    Task(
        name="pong-ppo",
        goal=15,
        experiment=replace(
            preset("ALE/Pong-v5"),
            algorithm=PPO(learning_rate=5e-4, epochs=2, num_minibatches=8, clip_range=0.1, entropy_coefficient=0.01),
            sync_interval=64,
            gradient_shards=2,
            total_steps=1_200_128,
        ),
    ),
    Task(
        name="pong-a2c",
        goal=18,
        experiment=replace(preset("ALE/Pong-v5", "a2c"), total_steps=5_000_000),
    ),
)
TASKS: Mapping[str, Task] = {task.name: task for task in _ALL}
QUICK_TASKS = ("cartpole-ppo", "cartpole-a2c", "pendulum-ppo")
"""Those that take minutes, not hours, and no simulator that has to be built."""
