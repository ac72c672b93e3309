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

LONGEST_BACKPROPAGATION = 32
"""Through so many steps at most gradients flow back, unless asked otherwise."""

EnvFactory = Callable[..., Any]
"""Returns a new Gymnasium environment each time it is called (with `env_args` as keyword arguments)."""

NetworkFactory = Callable[..., Any]
"""Returns a torch.nn.Module that makes features of observations, given the observation space."""


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
    normalize_rewards: bool = False
    """Divide rewards by the running deviation of the discounted return, which is updated at barriers."""
    lag_correction: Literal["auto", "delayed_gradient", "importance", "vtrace", "none"] = "auto"
    """What makes up for data of older versions. delayed_gradient: differentiate where they were made. importance and
    vtrace: differentiate at the current parameters, with truncated importance weights, vtrace with its own returns.
    none: as if they were new. auto: vtrace under async, else delayed_gradient."""


@dataclass(frozen=True)
class PPO:
    """Proximal policy optimisation: several epochs over the batch, the ratio to the policy before them clipped."""

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
    """End an update early when the approximate KL divergence exceeds 1.5 times this; under hts and async not in the
    first epoch, unless lag_correction is none."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    max_gradient_norm: float = 0.5
    """Gradients longer than this are scaled down to it."""
    normalize_advantages: bool = True
    """Give the advantages of a minibatch mean 0 and deviation 1."""
    normalize_rewards: bool = False
    """Divide rewards by the running deviation of the discounted return, which is updated at barriers."""
    lag_correction: Literal["auto", "decoupled", "none"] = "auto"
    """What makes up for data of older versions, under hts and async. decoupled, and auto: the first epoch is clipped
    around the version that acted, twice as wide; later ones around what the first has found, with each step weighed by
    how much more likely its action had become. none: always around the version that acted."""


Algorithm = A2C | PPO
ALGORITHMS: Mapping[str, type[A2C] | type[PPO]] = {"a2c": A2C, "ppo": PPO}


@dataclass(frozen=True)
class Network:
    """The policy and value network."""

    encoder: Literal["auto", "mlp", "nature_cnn", "impala"] = "auto"
    """How images are seen: by the Nature CNN, by IMPALA's residual network, or as flat vectors. `auto` takes the Nature
    CNN for three axes of bytes."""
    policy: str | NetworkFactory | None = None
    """A network of your own in place of the encoder: MODULE:CLASS, or in Python also the class itself."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the MLP's layers; empty makes the policy linear."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Non-linearity of the MLP."""
    separate_value: bool | None = None
    """Give the value its own network, beside what is remembered. None: yes, unless there are images or a policy of your
    own."""
    memory: Literal["none", "lstm", "gru"] = "none"
    """Let the policy remember what it has seen of the episode."""
    memory_size: int = 64
    """Width of the memory."""
    backpropagation_length: int | None = None
    """Through how many steps gradients flow back; the memory before them is as it was when acting. Divides the unroll
    length. None: the largest such number up to 32."""
    bounded_actions: Literal["clip", "squash"] = "clip"
    """What keeps continuous actions within their bounds: cutting them off there, or a hyperbolic tangent."""
    initial_log_std: float = 0.0
    """Logarithm of the standard deviation that continuous actions start with."""
    normalize_observations: bool = False
    """Bring observations to mean 0 and deviation 1 by running statistics, which are updated at barriers."""


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
    schedule: Literal["hts", "sync", "lockstep", "async"] = "hts"
    """hts: learn while rolling out, one version behind. sync: in turn, lag 0. lockstep: sync with a barrier at every
    step, the classic baseline. async: nobody waits, and no two runs are alike, as IMPALA and GA3C."""
    queue_length: int = 2
    """Under async: rollouts of each environment that may be under way or wait for the learner."""
    replay_schedule: Path | None = None
    """Repeat what the asynchronous run in this folder saw: which rollouts fed which update, and which version acted
    when."""
    on_env_error: Literal["stop", "truncate"] = "stop"
    """What an exception in an environment does. stop: the run ends, if it happens again when the environment is brought
    back. truncate: the episode ends as if a time limit had cut it, a new environment takes over, and it is counted."""
    num_envs: int = 16
    """Environments stepped side by side."""
    sync_interval: int | None = None
    """Alpha: steps of each environment between two barriers. None: 5 for A2C, 128 for PPO."""
    gradient_shards: int = 1
    """Parts that every gradient is taken in and summed from; so many processes can share the work of learning."""
    total_steps: int = 1_000_000
    """Environment steps in all, rounded up to whole intervals."""
    seed: int = 1
    """Every random number of the run is a function of it."""
    stop_at_return: float | None = None
    """End early once the mean return of the last 100 episodes reaches this."""

    @property
    def interval_steps(self) -> int:
        """Alpha: steps of one environment in one interval."""
        return self.algorithm.default_sync_interval if self.sync_interval is None else self.sync_interval

    @property
    def queues(self) -> bool:
        """Whether rollouts wait in a queue instead of for each other."""
        return self.schedule == "async"

    @property
    def learns_meanwhile(self) -> bool:
        """Whether the learner works while environments are stepped, and so data may be older than what learns."""
        return self.schedule in ("hts", "async")

    @property
    def unroll_steps(self) -> int:
        return self.interval_steps if self.algorithm.unroll_length is None else self.algorithm.unroll_length

    @property
    def sequence_steps(self) -> int:
        """Steps that are learned from as a sequence; 1 without a memory, for then every step stands alone."""
        if self.network.memory == "none":
            return 1
        longest = min(self.unroll_steps, LONGEST_BACKPROPAGATION)
        divisors = [steps for steps in range(1, longest + 1) if self.unroll_steps % steps == 0]
        return self.network.backpropagation_length or divisors[-1]

    @property
    def batch_steps(self) -> int:
        """Steps of all environments in one interval: what one update learns from."""
        return self.num_envs * self.interval_steps

    @property
    def num_intervals(self) -> int:
        return -(-self.total_steps // self.batch_steps)


MOST_THREADS = 96
"""Of one executor: they share an interpreter's lock, and a fault handler shows the stacks of a hundred."""
MOST_ENVS_ON_THREADS = 4 * MOST_THREADS
"""Of one run: each has a file descriptor in every process, and a thousand is a common limit."""


@dataclass(frozen=True)
class Placement:
    """All that must not change the result of a run: who works where, and what is shown of it."""

    backend: Literal["inline", "processes"] = "processes"
    """inline: everything in this process (debugger, oracle). processes: executors, actors and learner in their own."""
    num_executors: int | None = None
    """Processes that step environments. None: one per core, less one where the learner works at the same time and a
    step takes less than the networks do: a millisecond with images, 40 microseconds without; one for
    every 96 environments that step on threads."""
    num_actors: int | None = None
    """Processes that run the policy; 0 lets every executor act for its own environments. None: 0 on the CPU, unless
    executors step on threads; else 1."""
    executor_threads: bool | None = None
    """Step every environment on a thread of its own: for environments whose steps wait, for a server, another process
    or a clock, let other threads run meanwhile, and bear one another in one process. None: where a look at two shows
    that they do, and there are more than cores, unless num_executors is given."""
    learner_workers: int | None = None
    """Processes that take gradients, the learner among them. None: one per core, up to gradient_shards; 1 where the
    networks do not run on the CPU, or everything in one process."""
    device: str = "cpu"
    """Where the networks run: cpu, cuda, cuda:1 ..."""
    run_dir: Path | None = None
    """Folder for this run's results; must not exist yet. None: a new one under runs/."""
    checkpoint_every_seconds: float | None = 300.0
    """Write a checkpoint about this often, in the background, and one at the end in any case. None: not by time."""
    checkpoint_every_updates: int | None = None
    """Also write one before every so many updates. None: not by count."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints are kept, beside the one with the best return."""
    restart_workers: bool = True
    """Start a worker process that dies again, where it left off. Otherwise its end is the run's."""
    log_every_steps: int = 2048
    """Metrics are written about this often, in environment steps."""
    tensorboard: bool = True
    """Also write the metrics for TensorBoard."""
    progress: Literal["auto", "live", "plain", "off"] = "auto"
    """Progress on the terminal; auto is live on a terminal and plain lines elsewhere."""
    deadline_seconds: float = 300.0
    """A worker that gets nowhere for so long is killed and started again; when it happens once more, the run ends."""
    jitter_seconds: float = 0.0
    """For tests: every role sleeps up to this long before each piece of work."""
    measure_costs: bool = False
    """Also write to the metrics how many CPU seconds went into simulator, inference, learning and in all."""
    verify_storages: bool = False
    """For tests: poison every storage before it is written and check that nobody writes to one being read."""

    def resolved_executors(self, num_envs: int, leave_a_core: bool = False, on_threads: bool = False) -> int:
        if self.num_executors is not None:
            return self.num_executors
        if on_threads:
            return -(-num_envs // MOST_THREADS)
        return min(num_envs, max(available_cores() - leave_a_core, 1))

    def resolved_learner_workers(self, gradient_shards: int) -> int:
        if self.backend == "inline" or not self.device.startswith("cpu"):
            return 1
        return min(gradient_shards, available_cores()) if self.learner_workers is None else self.learner_workers

    def resolved_actors(self, on_threads: bool = False) -> int:
        if self.num_actors is None:
            return 0 if self.device.startswith("cpu") and not on_threads else 1
        return self.num_actors


@dataclass(frozen=True)
class Config:
    """What `htsrl.train` takes."""

    experiment: Experiment
    placement: Placement = field(default_factory=Placement)


def with_seed(config: Config, seed: int) -> Config:
    return replace(config, experiment=replace(config.experiment, seed=seed))


def available_cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
