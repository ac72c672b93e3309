"""The half of the configuration that may change the result: the same experiment under any placement has one digest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from htsrl.config.algorithm_settings import CommonSettings, default_algorithm
from htsrl.config.network import Network
from htsrl.config.schedule_names import ScheduleFacts, checked_schedule
from htsrl.config.sync_rule_names import EVERY
from htsrl.seeding import replica_seed

MAX_BACKPROPAGATION = 32
"""Through so many steps at most gradients flow back, unless asked otherwise or they have no divisor near it."""
USUAL_MINIBATCHES = 16

NO_ENV = ""
"""In place of an environment, where a run learns from a dataset and nobody evaluates it."""

EnvFactory = Callable[..., Any]
"""Returns a new Gymnasium environment each time it is called (with `env_args` as keyword arguments)."""

AlgorithmSettings = Any
"""htsrl.PPO and the like, or the `Settings` of an algorithm of the user's own."""


@dataclass(frozen=True)
class Experiment:
    """All that may change the result of a run."""

    env: str | EnvFactory
    """A Gymnasium id, `module:Env-v0`, or a callable that returns an environment."""
    env_args: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments for the environment's constructor."""
    imports: tuple[str, ...] = ()
    """Modules imported in every process first, for environments that register themselves."""
    algorithm: AlgorithmSettings = field(default_factory=default_algorithm)
    network: Network = field(default_factory=Network)
    init_from: str | Path | None = None
    """Begin with the weights of another run: RUN, RUN@best or RUN@N, its folder and the newest version, the checkpoint
    with the best return, or version N. Taken over by name and shape, and listed; the optimizer starts new."""
    schedule: str = "hts"
    """hts: learn while rolling out, `lag` versions behind. sync: in turn, lag 0. lockstep: sync with a barrier at every
    step, the classic baseline. async: nobody waits, and no two runs are alike, as IMPALA and GA3C. offline: from a
    source, chosen with it. MODULE:CLASS: one of your own."""
    lag: int | None = None
    """Under hts: how many versions the data are behind the parameters that learn from them, exactly, once the pipeline
    is full. Each takes memory for another rollout and another version. 0 is as sync. None: 1."""
    queue_length: int = 2
    """Under async: rollouts of each environment that may be under way or wait for the learner."""
    replay_schedule: Path | None = None
    """Repeat what the asynchronous run in this folder saw: which rollouts fed which update, and which version acted
    when."""
    on_env_error: Literal["stop", "truncate", "exclude"] = "stop"
    """What an exception in an environment does. stop: the run ends, if it happens again when the environment is brought
    back. truncate: the episode ends as if a time limit had cut it, a new environment takes over, and it is counted.
    exclude: the same, and nothing is learned from the episode's steps in the rollout under way."""
    source: str | None = None
    """Learn from a dataset and no environment: its folder, or minari:NAME. The environment, which may be left out, is
    then what evaluations play in, and steps are gradient steps. For algorithms that learn so: bc, cql, iql."""
    num_envs: int = 16
    """Environments stepped side by side, of all learners together; 0 with a source."""
    lanes: int | None = None
    """Batched simulators, each of which steps an equal share of the environments in one call. None: every environment
    is stepped by itself."""
    sync_interval: int | None = None
    """Alpha: steps of each environment between two barriers. None: 5 for A2C, 128 for PPO."""
    gradient_shards: int = 1
    """Parts that every gradient is taken in and summed from; so many processes can share the work of learning."""
    learners: int = 1
    """Replicas that learn side by side, each from environments of its own, an equal share of num_envs."""
    sync_rule: str = EVERY
    """When learners meet. every: gradients are averaged at each optimizer step, which is one learner's result. fixed,
    qsr, selsync: parameters are averaged now and then. sync_switch: after every update, later asynchronously.
    MODULE:CLASS: one of your own."""
    sync_args: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the sync rule."""
    total_steps: int = 1_000_000
    """Environment steps in all, rounded up to whole intervals."""
    seed: int = 1
    """Every random number of the run is a function of it."""
    stop_at_return: float | None = None
    """End early once the mean return of the last 100 episodes reaches this."""

    @property
    def num_replicas(self) -> int:
        """Learners with parameters of their own; where gradients are averaged at each step, all have the same ones."""
        return 1 if self.sync_rule == EVERY else self.learners

    @property
    def num_shards(self) -> int:
        """Parts that every gradient is summed from: those of all learners, where they average gradients."""
        return self.gradient_shards * self.learners if self.sync_rule == EVERY else self.gradient_shards

    @property
    def per_replica(self) -> Experiment:
        """What one replica learns in: its share of the environments, and as many updates."""
        if self.num_replicas == 1:
            return self
        own_envs = self.num_envs // self.num_replicas
        steps = self.num_intervals * own_envs * self.interval_steps
        return replace(self, num_envs=own_envs, learners=1, sync_rule=EVERY, sync_args={}, total_steps=steps)

    def of_replica(self, replica: int) -> Experiment:
        """The same with the replica's own seed, for all that it draws when it learns."""
        return replace(self.per_replica, seed=replica_seed(self.seed, replica))

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
        """Whether several versions may have made a batch, or it is not the rollout of the update's own number."""
        return self._schedule.mixes_versions

    @property
    def is_recorded(self) -> bool:
        """Whether the schedule looks at progress, so that nobody knows what it saw unless it is written down."""
        return self._schedule.max_lag is None

    @property
    def overlaps_learning(self) -> bool:
        """Whether the learner works while environments are stepped, and so data may be older than what learns."""
        return self._schedule.max_lag != 0

    @property
    def unroll_steps(self) -> int:
        return self._common.unroll_length or self.interval_steps

    @property
    def sequence_steps(self) -> int:
        """Steps that are learned from as a sequence; 1 without a recurrent state, for then every step stands alone."""
        if self.network.recurrent == "none":
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
    def tolerates_env_errors(self) -> bool:
        """Whether a new environment takes over from one that raised."""
        return self.on_env_error != "stop"

    @property
    def num_simulators(self) -> int:
        """What is asked, stepped and brought back as a whole: lanes, or environments that are stepped by themselves."""
        return self.num_envs if self.lanes is None else self.lanes

    @property
    def envs_per_simulator(self) -> int:
        return self.num_envs // max(self.num_simulators, 1)

    @property
    def batch_steps(self) -> int:
        """Steps of all environments in one interval: what one update learns from. With a source, gradient steps."""
        return self.interval_steps if self.source is not None else self.num_envs * self.interval_steps

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
