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

from htsrl.config.algorithm_settings import CommonSettings
from htsrl.config.schedule_names import ScheduleFacts, checked_schedule

MAX_BACKPROPAGATION = 32
"""Through so many steps at most gradients flow back, unless asked otherwise or they have no divisor near it."""
USUAL_MINIBATCHES = 16

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
    num_minibatches: int | None = None
    """Pieces the batch is shuffled into, each one optimizer step; they divide it, and with a memory its sequences.
    None: 16, or the nearest number that does."""
    clip_range: float = 0.2
    """The probability ratio counts only within 1 +- this. Under hts and async lag_correction says to which policy; by
    default the first epoch's is to the version that acted, and first_epoch_clip_factor times as much counts."""
    anneal_clip_range: bool = False
    """Lower the clip range linearly to zero over the run."""
    value_clip_range: float | None = None
    """Move the value estimate at most this far from that of the policy that the ratio is to; in the first epoch as much
    further as clip_range. None: do not clip."""
    target_kl: float | None = None
    """End an update early when the approximate KL divergence from the policy that the ratio is clipped around exceeds
    1.5 times this; with lag_correction recentered not in the first epoch."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    max_gradient_norm: float = 0.5
    """Gradients longer than this are scaled down to it."""
    normalize_advantages: bool = True
    """Give advantages mean 0 and deviation 1."""
    advantage_normalization: Literal["minibatch", "batch"] = "minibatch"
    """Over what: each minibatch by itself, or once over the whole batch, before the epochs."""
    normalize_rewards: bool = False
    """Divide rewards by the running deviation of the discounted return, which is updated at barriers."""
    lag_correction: Literal["auto", "recentered", "decoupled", "delayed_update", "none"] = "auto"
    """What makes up for data of older versions, under hts and async. recentered, and auto: the first epoch is clipped
    around the version that acted, wider; later ones around what the first has found, with importance weights.
    decoupled: all epochs around the version that the update starts from, with importance weights. delayed_update: a
    plain update of the version that acted, whose displacement is applied to the newest; not under async. none: all
    epochs around the version that acted."""
    first_epoch_clip_factor: float = 2.0
    """With lag_correction recentered: how much wider clips are in the first epoch. With epochs=1 there is no other."""
    max_importance_weight: float = 2.0
    """With lag_correction recentered or decoupled: importance weights of steps are truncated at this."""


AlgorithmSettings = Any
"""A2C, PPO, or the `Settings` of an algorithm of the user's own."""


@dataclass(frozen=True)
class Network:
    """The policy and value network."""

    encoder: Literal["auto", "mlp", "nature_cnn", "impala"] = "auto"
    """How images are seen: by the Nature CNN, by IMPALA's residual network, or as flat vectors. `auto` takes the Nature
    CNN for three axes of bytes, IMPALA's network where a side is below 36."""
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
    length. None: the largest such number up to 32; where that is far less, the next above."""
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
    algorithm: AlgorithmSettings = field(default_factory=PPO)
    network: Network = field(default_factory=Network)
    init_from: str | Path | None = None
    """Begin with the weights of another run: RUN, RUN@best or RUN@N, its folder and the newest version, the checkpoint
    with the best return, or version N. Taken over by name and shape, and listed; the optimizer starts new."""
    schedule: str = "hts"
    """hts: learn while rolling out, `lag` versions behind. sync: in turn, lag 0. lockstep: sync with a barrier at every
    step, the classic baseline. async: nobody waits, and no two runs are alike, as IMPALA and GA3C. MODULE:CLASS: one of
    your own."""
    lag: int | None = None
    """Under hts: how many versions the data are behind the parameters that learn from them, exactly, once the pipeline
    is full. Each takes memory for another rollout and another version. 0 is as sync. None: 1."""
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
    def _common(self) -> CommonSettings:
        return CommonSettings.of(self.algorithm)

    @property
    def interval_steps(self) -> int:
        """Alpha: steps of one environment in one interval."""
        return self._common.default_sync_interval if self.sync_interval is None else self.sync_interval

    @property
    def _schedule(self) -> ScheduleFacts:
        """What the schedule says of itself: of one of the user's own, its module is imported for that."""
        facts: ScheduleFacts = checked_schedule(self.schedule, self)
        return facts

    @property
    def mixes_versions(self) -> bool:
        """Whether several versions may have made a batch, and nobody knows which unless it is written down."""
        return self._schedule.mixes_versions

    @property
    def overlaps_learning(self) -> bool:
        """Whether the learner works while environments are stepped, and so data may be older than what learns."""
        return self._schedule.max_lag != 0

    @property
    def unroll_steps(self) -> int:
        return self._common.unroll_length or self.interval_steps

    @property
    def sequence_steps(self) -> int:
        """Steps that are learned from as a sequence; 1 without a memory, for then every step stands alone."""
        if self.network.memory == "none":
            return 1
        return self.network.backpropagation_length or _sequence_steps(self.unroll_steps)

    @property
    def num_minibatches(self) -> int:
        """Optimizer steps in one pass over the batch."""
        return self._common.num_minibatches or self.minibatches_near(USUAL_MINIBATCHES)

    def minibatches_near(self, number: int) -> int:
        """The number of minibatches nearest to this one, by ratio, that the batch divides into.

        At most twice as many, for smaller minibatches are noisier, and each of two steps or more where advantages are
        normalised.
        """
        sequences, least = self.batch_steps // self.sequence_steps, 2 if self._common.normalize_advantages else 1
        most = min(sequences * self.sequence_steps // least, 2 * number)
        divisors = [pieces for pieces in range(1, max(most, 1) + 1) if sequences % pieces == 0]
        return min(divisors, key=lambda pieces: max(pieces / number, number / pieces))

    @property
    def batch_steps(self) -> int:
        """Steps of all environments in one interval: what one update learns from."""
        return self.num_envs * self.interval_steps

    @property
    def num_intervals(self) -> int:
        return -(-self.total_steps // self.batch_steps)


def _sequence_steps(unroll: int) -> int:
    """The largest divisor up to the usual length; where that is far less, the next above."""
    usual = min(unroll, MAX_BACKPROPAGATION)
    longest = max(steps for steps in range(1, usual + 1) if unroll % steps == 0)
    if 4 * longest >= usual:
        return longest
    return next(steps for steps in range(usual + 1, unroll + 1) if unroll % steps == 0)


MAX_THREADS = 96
"""Of one executor: they share an interpreter's lock, and a fault handler shows the stacks of a hundred."""
MAX_ENVS_ON_THREADS = 4 * MAX_THREADS
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
    log_info: tuple[str, ...] = ()
    """Keys of `info` whose numbers at an episode's end are logged, as a mean over the last hundred; `is_success` always
    is."""
    tensorboard: bool = True
    """Also write the metrics for TensorBoard."""
    progress: Literal["auto", "live", "plain", "off"] = "auto"
    """Progress on the terminal; auto is live on a terminal and plain lines elsewhere."""
    deadline_seconds: float = 300.0
    """A worker that gets nowhere for so long is killed and started again; when it happens once more, the run ends."""
    check_env: bool = True
    """Before training begins, play a few steps twice and warn where the same seed gives something else."""
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
            return -(-num_envs // MAX_THREADS)
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
    """What `htsrl.train` takes; an environment in place of the experiment stands for one with the plain defaults."""

    experiment: Experiment
    placement: Placement = field(default_factory=Placement)

    def __post_init__(self) -> None:
        """An environment stands for an experiment with the plain defaults."""
        object.__setattr__(self, "experiment", as_experiment(self.experiment))


def as_experiment(given: Any) -> Any:
    is_env = isinstance(given, str) or (callable(given) and not isinstance(given, Experiment))
    return Experiment(given) if is_env else given


def with_seed(config: Config, seed: int) -> Config:
    return replace(config, experiment=replace(config.experiment, seed=seed))


def available_cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
