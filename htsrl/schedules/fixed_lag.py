"""HTS-RL and its relatives: rollout j runs with version j-lag while the learner works on rollout j-lag.

The pipeline fills with rollouts 0 to lag, all made by version 0, for nothing can be learned before rollout 0 is
complete. So update j has lag j as long as that is less, and every later one exactly `max_lag`. `hts` has lag 1, any
other on request. `sync` has lag 0: rolling out and learning take turns, as in textbook A2C and PPO. `lockstep` is sync
with a barrier for all environments at every step, the paper's baseline.
"""

from __future__ import annotations

from dataclasses import dataclass

from htsrl.dataflow.exchange import Exchange, Request
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.storage import Storages
from htsrl.sources.interval import IntervalSource


@dataclass(frozen=True)
class FixedLag:
    """The interval's number says which version acts."""

    max_lag: int
    step_barrier: bool = False
    mixes_versions = False
    repeats = False

    @property
    def num_storages(self) -> int:
        # Two without a lag, too: a rollout begins where the one before it ended, which must still be there when an
        # executor that was killed in its last step makes it again.
        return max(self.max_lag + 1, 2)

    def acting_version(self, rollout: int) -> int:
        return max(rollout - self.max_lag, 0)

    def answering_version(self, request: Request, published_version: int) -> int:
        return max(request.rollout - self.max_lag, 0)

    def may_begin(self, rollout: int, published_version: int) -> bool:
        return published_version >= self.acting_version(rollout)

    def num_rollouts(self, env: int, num_updates: int) -> int:
        return num_updates

    def arrays(self, num_envs: int) -> list[ArraySpec]:
        return []

    def source(self, block: SharedArrays, storages: Storages, exchange: Exchange) -> IntervalSource:
        return IntervalSource(storages, exchange, self.acting_version, self.max_lag)
