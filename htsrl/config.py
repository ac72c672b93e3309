"""The configuration, in two halves.

`Experiment` holds all that may change the result, `Placement` all that must not: the same experiment
under any placement ends with the same digest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from htsrl.errors import ConfigError

EnvFactory = Callable[..., Any]
"""Returns a new Gymnasium environment each time it is called (with `env_args` as keyword arguments)."""


@dataclass(frozen=True)
class A2C:
    """Advantage actor-critic; under the `hts` schedule with the paper's one-step delayed gradient."""

    name: ClassVar[str] = "a2c"
    default_sync_interval: ClassVar[int] = 5

    learning_rate: float = 7e-4
    """Step size of the optimizer."""
    anneal_learning_rate: bool = True
    """Lower the learning rate linearly to zero over the run."""
    optimizer: Literal["rmsprop", "adam"] = "rmsprop"
    """Update rule."""
    rmsprop_decay: float = 0.99
    """Memory of RMSprop's running mean of squares."""
    optimizer_epsilon: float = 1e-5
    """Added to the denominator of the update rule."""
    discount: float = 0.99
    """Gamma: what a reward one step later is worth."""
    gae_lambda: float = 1.0
    """Trace decay of the advantage; 1 gives n-step returns."""
    unroll_length: int | None = None
    """Steps per gradient; returns bootstrap at its end. Divides the sync interval. None: the whole interval."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    max_gradient_norm: float = 0.5
    """Gradients longer than this are scaled down to it."""
    normalize_advantages: bool = False
    """Give the advantages of a gradient mean 0 and deviation 1."""


@dataclass(frozen=True)
class PPO:
    """Proximal policy optimisation: several epochs over the batch, the ratio to the behaviour policy clipped."""

    name: ClassVar[str] = "ppo"
    default_sync_interval: ClassVar[int] = 128

    learning_rate: float = 3e-4
    """Step size of the optimizer."""
    anneal_learning_rate: bool = True
    """Lower the learning rate linearly to zero over the run."""
    optimizer: Literal["rmsprop", "adam"] = "adam"
    """Update rule."""
    rmsprop_decay: float = 0.99
    """Memory of RMSprop's running mean of squares."""
    optimizer_epsilon: float = 1e-5
    """Added to the denominator of the update rule."""
    discount: float = 0.99
    """Gamma: what a reward one step later is worth."""
    gae_lambda: float = 0.95
    """Trace decay of the generalised advantage estimate."""
    unroll_length: int | None = None
    """Advantages are cut and bootstrapped every so many steps. Divides the sync interval. None: the whole interval."""
    epochs: int = 10
    """Passes over the batch per update."""
    num_minibatches: int = 16
    """Pieces the batch is shuffled into, each one optimizer step."""
    clip_range: float = 0.2
    """The probability ratio counts only within 1 +- this."""
    anneal_clip_range: bool = False
    """Lower the clip range linearly to zero over the run."""
    value_clip_range: float | None = None
    """Move the value estimate at most this far per update. None: do not clip."""
    target_kl: float | None = None
    """End an update early when the approximate KL divergence exceeds 1.5 times this."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    max_gradient_norm: float = 0.5
    """Gradients longer than this are scaled down to it."""
    normalize_advantages: bool = True
    """Give the advantages of a minibatch mean 0 and deviation 1."""


Algorithm = A2C | PPO
ALGORITHMS: Mapping[str, type[A2C] | type[PPO]] = {"a2c": A2C, "ppo": PPO}


@dataclass(frozen=True)
class Network:
    """The policy and value network."""

    encoder: Literal["auto", "mlp", "nature_cnn"] = "auto"
    """`auto` takes the Nature CNN for images and the MLP for everything else."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the MLP's layers; empty makes the policy linear."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Non-linearity of the MLP."""
    separate_value: bool | None = None
    """Give the value its own network. None: yes for the MLP, no for the CNN."""
    initial_log_std: float = 0.0
    """Logarithm of the standard deviation that continuous actions start with."""


@dataclass(frozen=True)
class Experiment:
    """All that may change the result of a run."""

    env: str | EnvFactory
    """A Gymnasium id, `module:Env-v0`, or a callable that returns an environment."""
    env_args: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments for the environment's constructor."""
    imports: tuple[str, ...] = ()
    """Modules imported in every process first, for environments that register themselves."""
    algorithm: Algorithm = field(default_factory=PPO)
    network: Network = field(default_factory=Network)
    schedule: Literal["hts", "sync", "lockstep"] = "hts"
    """hts: learn while rolling out, one version behind. sync: in turn, lag 0. lockstep: sync with a barrier at every
    step, the classic baseline."""
    num_envs: int = 16
    """Environments stepped side by side."""
    sync_interval: int | None = None
    """Alpha: steps of each environment between two barriers. None: 5 for A2C, 128 for PPO."""
    total_steps: int = 1_000_000
    """Environment steps in all, rounded up to whole intervals."""
    seed: int = 1
    """Every random number of the run is a function of it."""
    stop_at_return: float | None = None
    """End early once the mean return of the last 100 episodes reaches this."""

    @property
    def interval_steps(self) -> int:
        """Alpha: steps of one environment in one interval."""
        return self.sync_interval or self.algorithm.default_sync_interval

    @property
    def unroll_steps(self) -> int:
        return self.algorithm.unroll_length or self.interval_steps

    @property
    def batch_steps(self) -> int:
        """Steps of all environments in one interval: what one update learns from."""
        return self.num_envs * self.interval_steps

    @property
    def num_intervals(self) -> int:
        return -(-self.total_steps // self.batch_steps)


@dataclass(frozen=True)
class Placement:
    """All that must not change the result of a run: who works where, and what is shown of it."""

    backend: Literal["inline", "processes"] = "processes"
    """inline: everything in this process (debugger, oracle). processes: executors, actors and learner in their own."""
    num_executors: int | None = None
    """Processes that step environments. None: one per core."""
    num_actors: int | None = None
    """Processes that run the policy; 0 lets every executor act for its own environments. None: 0 on the CPU, else 1."""
    device: str = "cpu"
    """Where the networks run: cpu, cuda, cuda:1 ..."""
    run_dir: Path | None = None
    """Folder for this run's results; must not exist yet. None: a new one under runs/."""
    log_every_steps: int = 2048
    """Metrics are written about this often, in environment steps."""
    tensorboard: bool = True
    """Also write the metrics for TensorBoard."""
    progress: Literal["auto", "live", "plain", "off"] = "auto"
    """Progress on the terminal; auto is live on a terminal and plain lines elsewhere."""
    deadline_seconds: float = 300.0
    """A worker that waits longer than this for the others ends the run with an error."""
    jitter_seconds: float = 0.0
    """For tests: every role sleeps up to this long before each piece of work."""
    verify_storages: bool = False
    """For tests: poison every storage that was learned from and check that nobody writes to one being read."""

    def resolved_executors(self, num_envs: int) -> int:
        return self.num_executors or min(num_envs, os.cpu_count() or 1)

    def resolved_actors(self) -> int:
        if self.num_actors is None:
            return 0 if self.device == "cpu" else 1
        return self.num_actors


@dataclass(frozen=True)
class Config:
    """What `htsrl.train` takes."""

    experiment: Experiment
    placement: Placement = field(default_factory=Placement)


def check(config: Config) -> None:
    """Raise ConfigError for the first value that cannot work, before anything starts."""
    _check_experiment(config.experiment)
    _check_algorithm(config.experiment)
    _check_placement(config.placement, config.experiment.num_envs)


def with_seed(config: Config, seed: int) -> Config:
    return replace(config, experiment=replace(config.experiment, seed=seed))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def _check_experiment(experiment: Experiment) -> None:
    for name in ("num_envs", "interval_steps", "total_steps", "unroll_steps"):
        value = getattr(experiment, name)
        _require(value >= 1, f"{name}={value} must be at least 1")
    _require(0 <= experiment.seed < 2**63, f"seed={experiment.seed} must be from 0 to 2**63 - 1")
    _require(
        experiment.schedule in ("hts", "sync", "lockstep"),
        f"schedule={experiment.schedule!r} is not hts, sync or lockstep",
    )
    alpha, unroll = experiment.interval_steps, experiment.unroll_steps
    _require(
        alpha % unroll == 0,
        f"sync_interval={alpha} is not a multiple of unroll_length={unroll}; use {_near_multiples(alpha, unroll)}",
    )
    _require(
        all(size >= 1 for size in experiment.network.hidden_sizes),
        f"hidden_sizes={experiment.network.hidden_sizes} must all be at least 1",
    )


def _check_algorithm(experiment: Experiment) -> None:
    algorithm = experiment.algorithm
    _require(algorithm.learning_rate > 0, f"learning_rate={algorithm.learning_rate} must be above 0")
    _require(algorithm.max_gradient_norm > 0, f"max_gradient_norm={algorithm.max_gradient_norm} must be above 0")
    for name in ("discount", "gae_lambda"):
        value = getattr(algorithm, name)
        _require(0 <= value <= 1, f"{name}={value} must be from 0 to 1")
    if isinstance(algorithm, PPO):
        batch, pieces = experiment.batch_steps, algorithm.num_minibatches
        _require(algorithm.epochs >= 1, f"epochs={algorithm.epochs} must be at least 1")
        _require(pieces >= 1, f"num_minibatches={pieces} must be at least 1")
        if batch % pieces:
            raise ConfigError(
                f"num_envs={experiment.num_envs} times sync_interval={experiment.interval_steps} gives batches of "
                f"{batch}, which do not divide into num_minibatches={pieces}; use {_near_divisors(batch, pieces)}"
            )
        _require(
            batch // pieces >= 2 or not algorithm.normalize_advantages,
            f"num_minibatches={pieces} leaves one step per minibatch; advantages of one step cannot be normalized, "
            "use fewer minibatches or turn normalize_advantages off",
        )
        _require(algorithm.clip_range > 0, f"clip_range={algorithm.clip_range} must be above 0")


def _check_placement(placement: Placement, num_envs: int) -> None:
    executors, actors = placement.resolved_executors(num_envs), placement.resolved_actors()
    _require(
        1 <= executors <= num_envs,
        f"num_executors={placement.num_executors} must be from 1 to num_envs={num_envs}; an executor owns environments",
    )
    _require(
        0 <= actors <= num_envs,
        f"num_actors={actors} must be from 0 (executors act for themselves) to num_envs={num_envs}",
    )
    _require(placement.deadline_seconds > 0, f"deadline_seconds={placement.deadline_seconds} must be above 0")
    _require(placement.jitter_seconds >= 0, f"jitter_seconds={placement.jitter_seconds} must not be negative")
    _require(placement.log_every_steps >= 1, f"log_every_steps={placement.log_every_steps} must be at least 1")


def _near_multiples(value: int, unit: int) -> str:
    below, above = value // unit * unit, -(-value // unit) * unit
    return f"{below} or {above}" if below else str(above)


def _near_divisors(value: int, divisor: int) -> str:
    below = max(d for d in range(1, divisor) if value % d == 0)
    above = next((d for d in range(divisor + 1, value + 1) if value % d == 0), None)
    return f"{below} or {above}" if above else str(below)
