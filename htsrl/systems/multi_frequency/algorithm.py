"""Conservative Q-learning from transitions of several control periods (https://arxiv.org/abs/2207.13082).

    n(dt)     = T_N / dt                       steps that the return of a transition sums over
    gamma(dt) = gamma^(dt / dt_max)            what a reward one step later is worth
    y         = sum_i<n gamma(dt)^i r_i + gamma(dt)^n min Q'(s_n, a'),    a' ~ pi(s_n)

So the value of what follows is asked for after the same time whatever the period, and values of all periods are updated
at one rate. With a single step for all, those of short periods lag behind, and what is learned from one is undone by
the other. Everything else is CQL's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from htsrl.algorithms.algorithm import RunFacts, Update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.cql.algorithm import CQLAlgorithm, CQLObjective
from htsrl.algorithms.cql.settings import ConservativeSettings
from htsrl.algorithms.minibatch_objective import NoTargets
from htsrl.dataflow.exchange import Words
from htsrl.datasets.dataset import Dataset
from htsrl.errors import DatasetError
from htsrl.sources.dataset import DatasetSampler
from htsrl.sources.replay_buffer import Sampled


class MultiFrequencyCQL(CQLAlgorithm):
    """CQL with returns over equal times, for datasets with a `dt`."""

    @dataclass(frozen=True)
    class Settings(ConservativeSettings):
        """CQL from data of several control periods."""

        adaptive_n: bool = True
        """Sum rewards over equal times, n_step periods of the longest; otherwise over n_step steps, as naive mixing
        of the data does."""
        scaled_discount: bool = True
        """Discount by time, with gamma^(dt / longest_dt) for a step; otherwise with gamma for a step of any period."""
        even_periods: bool = False
        """As many transitions of every period in a minibatch, however many steps the dataset has of each."""
        longest_dt: float | None = None
        """Seconds: the control period that `discount` and `n_step` are for. None: the longest of the dataset."""

    def __init__(self, settings: Settings, run: RunFacts) -> None:
        super().__init__(settings, run)
        self._own = settings

    def check_dataset(self, dataset: Dataset) -> None:
        if not dataset.has_dt:
            raise DatasetError(
                f"{dataset.shown} does not say its control periods; collect it from an environment that has `dt` in "
                "its info, or use cql"
            )

    def objective(self, update: Update, batch: Batch, targets: NoTargets) -> MultiFrequencyObjective:
        assert batch.dataset is not None
        return MultiFrequencyObjective(self._own, self._run.seed, update.number, batch.dataset)


class MultiFrequencyObjective(CQLObjective):
    """CQL's losses, with a number of steps and a discount for each transition."""

    def __init__(self, settings: MultiFrequencyCQL.Settings, seed: int, update: int, data: DatasetSampler) -> None:
        super().__init__(settings, seed, update, data)
        self._own = settings

    def _sampled(self) -> Sampled:
        settings = self._own
        first = self._data.draw(self._seed, self._update, self.epoch, settings.minibatch_size)
        if settings.even_periods:
            first = evenly(first, self._data)
        periods = self._data.dt(first).astype(np.float64)
        shares = periods / (settings.longest_dt or self._data.longest_dt)
        powers = shares if settings.scaled_discount else np.ones_like(shares)
        discounts = np.power(settings.discount, powers).astype(np.float32)
        steps = np.rint(settings.n_step / shares) if settings.adaptive_n else np.full_like(shares, settings.n_step)
        return self._data.transitions(first, discounts, np.maximum(steps, 1).astype(np.int64))


def evenly(drawn: Words, data: DatasetSampler) -> Words:
    """Steps of one period after the other in turn, each as far into those of its period as the one drawn in all."""
    periods = data.steps_by_period
    found = np.empty_like(drawn)
    for place, steps in enumerate(periods):
        rows = slice(place, None, len(periods))
        found[rows] = steps[drawn[rows] * len(steps) // data.size]
    return found
