"""The half of the configuration that may change the result: the same experiment under any placement has one digest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from htsrl.config.algorithm_settings import CommonSettings
from htsrl.config.network import Network
from htsrl.config.ppo import PPO
from htsrl.config.schedule_names import ScheduleFacts, checked_schedule

MAX_BACKPROPAGATION = 32
"""Through so many steps at most gradients flow back, unless asked otherwise or they have no divisor near it."""
USUAL_MINIBATCHES = 16

EnvFactory = Callable[..., Any]
"""Returns a new Gymnasium environment each time it is called (with `env_args` as keyword arguments)."""

AlgorithmSettings = Any
"""A2C, PPO, or the `Settings` of an algorithm of the user's own."""


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
