"""Tasks of many kinds that are learned in minutes, to decide which schedule and correction of the lag is best.

Settings are the presets' and plain defaults, but for Pendulum's learning rate and discount, which are usual there, and
the budgets of steps. CartPole, Pendulum and HalfCheetah have been looked at while objectives were made; of the others
`docs/decisions.md` says on which and with which seeds something was chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.ppo import PPO
from htsrl.config import Experiment, Network
from htsrl.config.presets import preset
from htsrl.errors import ConfigError
from htsrl_bench.ways import in_way, way_named

CHOOSING = ("walker2d", "swimmer", "mountain-car-continuous", "lock", "minigrid-empty")
"""On which settings may be chosen; all others confirm. The default correction was, with other seeds than a suite's."""

OFFERED: Mapping[str, Sequence[str]] = {
    "ppo": ("sync", "hts", "hts-recentered", "hts-decoupled", "hts-delayed-update", "hts-uncorrected"),
    "a2c": ("sync", "hts", "hts-vtrace", "hts-importance", "hts-uncorrected"),
}
"""Ways by algorithm; `lag-K` is another."""


@dataclass(frozen=True)
class SuiteTask:
    """Something to learn, with one algorithm."""

    name: str
    experiment: Experiment

    @property
    def is_for_choosing(self) -> bool:
        return self.name.rpartition("-")[0] in CHOOSING

    def with_seed(self, seed: int, way: str) -> Experiment:
        return in_way(replace(self.experiment, seed=seed), way)

    def with_at_most(self, steps: int | None) -> SuiteTask:
        if steps is None or steps >= self.experiment.total_steps:
            return self
        return replace(self, experiment=replace(self.experiment, total_steps=steps))


PENDULUM_PPO = PPO(learning_rate=1e-3, discount=0.9, num_minibatches=32)
RECURRENT = Network(recurrent="lstm", recurrent_size=32)


def _mujoco(env: str, algo: str, steps: int) -> Experiment:
    return replace(preset(env, algo), total_steps=steps)


_PPO = {
    "cartpole": Experiment("CartPole-v1", total_steps=100_000),
    "acrobot": Experiment("Acrobot-v1", total_steps=100_000),
    "pendulum": Experiment("Pendulum-v1", algorithm=PENDULUM_PPO, total_steps=150_000),
    "mountain-car-continuous": Experiment("MountainCarContinuous-v0", total_steps=100_000),
    "lunar-lander": Experiment("LunarLander-v3", total_steps=200_000),
    "bipedal-walker": Experiment("BipedalWalker-v3", total_steps=200_000),
    "halfcheetah": _mujoco("HalfCheetah-v5", "ppo", 200_000),
    "hopper": _mujoco("Hopper-v5", "ppo", 200_000),
    "walker2d": _mujoco("Walker2d-v5", "ppo", 200_000),
    "swimmer": _mujoco("Swimmer-v5", "ppo", 200_000),
    "inverted-double-pendulum": _mujoco("InvertedDoublePendulum-v5", "ppo", 150_000),
    "minigrid-empty": Experiment("MiniGrid-Empty-6x6-v0", total_steps=50_000),
    "minigrid-door-key": Experiment("MiniGrid-DoorKey-5x5-v0", total_steps=100_000),
    "hidden-cartpole": Experiment("htsrl/HiddenCartPole-v0", network=RECURRENT, total_steps=100_000),
    "lock": Experiment("htsrl/Lock-v0", total_steps=50_000),
}
_A2C = {
    "cartpole": Experiment("CartPole-v1", algorithm=A2C(), total_steps=200_000),
    "acrobot": Experiment("Acrobot-v1", algorithm=A2C(), total_steps=200_000),
    "mountain-car-continuous": Experiment("MountainCarContinuous-v0", algorithm=A2C(), total_steps=200_000),
    "lunar-lander": Experiment("LunarLander-v3", algorithm=A2C(), total_steps=300_000),
    "halfcheetah": _mujoco("HalfCheetah-v5", "a2c", 300_000),
    "hopper": _mujoco("Hopper-v5", "a2c", 300_000),
    "walker2d": _mujoco("Walker2d-v5", "a2c", 300_000),
    "swimmer": _mujoco("Swimmer-v5", "a2c", 300_000),
    "inverted-double-pendulum": _mujoco("InvertedDoublePendulum-v5", "a2c", 200_000),
    "minigrid-empty": Experiment("MiniGrid-Empty-6x6-v0", algorithm=A2C(), total_steps=100_000),
    "hidden-cartpole": Experiment("htsrl/HiddenCartPole-v0", algorithm=A2C(), network=RECURRENT, total_steps=200_000),
    "lock": Experiment("htsrl/Lock-v0", algorithm=A2C(), total_steps=100_000),
}
SUITE: Mapping[str, SuiteTask] = {
    f"{name}-{algo}": SuiteTask(f"{name}-{algo}", experiment)
    for algo, tasks in (("ppo", _PPO), ("a2c", _A2C))
    for name, experiment in tasks.items()
}


def suite_tasks(names: tuple[str, ...], algo: str) -> list[SuiteTask]:
    """By name, or all those for `choosing`, for `confirming`, or `all`, with one algorithm."""
    own = [task for name, task in SUITE.items() if name.endswith(f"-{algo}")]
    groups = {
        "choosing": [task for task in own if task.is_for_choosing],
        "confirming": [task for task in own if not task.is_for_choosing],
        "all": own,
    }
    found = []
    for name in names:
        if name not in groups and f"{name}-{algo}" not in SUITE:
            known = ", ".join(task.name.removesuffix(f"-{algo}") for task in own)
            raise ConfigError(f"task {name!r} is not known for {algo}; choose among {', '.join(groups)}, {known}")
        found += groups.get(name) or [SUITE[f"{name}-{algo}"]]
    return list({task.name: task for task in found}.values())


def check_ways(ways: Sequence[str], algo: str) -> None:
    """ConfigError for the first in which a suite cannot be learned."""
    for name in ways:
        way = way_named(name)
        if way.schedule == "async":
            raise ConfigError(
                f"way {name} has the lag of who happens to be quicker, and in a suite the roles of a run take turns on "
                "one core, which is next to no lag; compare it in processes: htsrl bench learning --ways sync async"
            )
        if name not in OFFERED[algo] and way.lag is None:
            raise ConfigError(f"way {name} is not for {algo} in a suite; use {', '.join(OFFERED[algo])} or lag-K")
