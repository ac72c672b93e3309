"""A schedule of one's own: no lag while a policy changes fastest, then HTS-RL.

    htsrl train CartPole-v1 --schedule examples.warm_start:WarmStart

The first rollouts are made and learned from in turn, as under `sync`. From then on rollout j is made by version j-1
while the learner works on rollout j-1, as under `hts`. `--lag K` ends with a lag of K.
"""

from __future__ import annotations

from htsrl.extending import (
    ArraySpec,
    Exchange,
    Experiment,
    FixedLag,
    IntervalSource,
    Request,
    SharedArrays,
    Storages,
)

ROLLOUTS_WITHOUT_LAG = 20


class WarmStart:
    """The rollout's number says which version acts, so any placement, kill or resume gives the same bits."""

    step_barrier = False
    mixes_versions = False
    repeats = False

    def __init__(self, experiment: Experiment) -> None:
        self.max_lag = 1 if experiment.lag is None else experiment.lag
        self.num_storages = FixedLag(self.max_lag).num_storages

    def acting_version(self, rollout: int) -> int:
        """Never goes back: when the lag begins, rollouts are made by the same version until it has grown."""
        return max(min(rollout, ROLLOUTS_WITHOUT_LAG), rollout - self.max_lag)

    def answering_version(self, request: Request, published_version: int) -> int:
        return self.acting_version(request.rollout)

    def may_begin(self, rollout: int, published_version: int) -> bool:
        return published_version >= self.acting_version(rollout)

    def num_rollouts(self, env: int, num_updates: int) -> int:
        return num_updates

    def arrays(self, num_envs: int) -> list[ArraySpec]:
        return []

    def source(self, block: SharedArrays, storages: Storages, exchange: Exchange) -> IntervalSource:
        return IntervalSource(storages, exchange, self.acting_version, self.max_lag)
