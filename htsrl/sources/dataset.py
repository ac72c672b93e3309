"""A dataset as a source: always ready, and the same for every update; gradients draw their minibatches from it.

Which transitions a gradient draws is a function of (seed, update, gradient step), so everybody who takes a share of it
draws the same, however often a process was killed. The dataset itself is mapped by every process that learns.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.exchange import Words
from htsrl.dataflow.storage import Storages
from htsrl.datasets.action_rows import as_stored
from htsrl.datasets.dataset import Dataset
from htsrl.seeding import replay_draws
from htsrl.sources.replay_buffer import Sampled
from htsrl.sources.source import Fields
from htsrl.spaces import ActionLayout


class DatasetSource:
    """The batch source of a run without environments: its batches are empty, for the dataset holds all there is."""

    max_updates = sys.maxsize

    def __init__(self, storages: Storages) -> None:
        self._storages = storages

    def has_room(self, env: int, rollout: int) -> bool:
        return False

    def put(self, env: int, rollout: int) -> None:
        raise AssertionError(f"environment {env} made rollout {rollout} in a run that learns from a dataset")

    def is_ready(self, update: int) -> bool:
        return True

    def claim(self, update: int) -> None:
        pass

    def fields(self, update: int) -> Fields:
        """Of no environment."""
        return self._storages.batch(0)

    def check_versions(self, update: int, fields: Fields) -> None:
        assert not fields["versions"].size, "somebody acted in a run that learns from a dataset"

    def behaviour_version(self, update: int) -> None:
        return None

    def provenance(self, update: int, fields: Fields) -> None:
        return None

    def release(self, update: int) -> None:
        pass

    def released(self, version: int) -> Words:
        return np.zeros(0, np.int64)

    def completed_at_barrier(self, update: int) -> Words:
        return np.zeros(0, np.int64)

    def describe(self, update: int) -> str:
        return f"the dataset (update {update})"

    def waits_for(self, update: int) -> str:
        return "nothing: it learns from a dataset"


class DatasetSampler:
    """Minibatches of a dataset's transitions, as a replay buffer gives them."""

    def __init__(self, dataset: Dataset, actions: ActionLayout) -> None:
        """`actions` says how the policy stores them."""
        self.dataset = dataset
        self._layout = actions
        self._rewards = dataset.arrays["rewards"]
        self._terminated = dataset.arrays["terminated"]

    @property
    def size(self) -> int:
        return self.dataset.num_steps

    def draw(self, seed: int, update: int, gradient_step: int, size: int) -> Words:
        """The numbers of steps, drawn uniformly and with replacement."""
        return replay_draws(seed, update, gradient_step, self.size, size)

    def sample(self, seed: int, update: int, gradient_step: int, size: int, discount: float, n: int = 1) -> Sampled:
        """A minibatch over `n` steps each."""
        drawn = self.draw(seed, update, gradient_step, size)
        return self.transitions(drawn, np.full(size, discount, np.float32), np.full(size, n))

    def transitions(self, first: Words, discounts: NDArray[np.float32], n: Words) -> Sampled:
        """Those that begin with these steps, each with its own discount and over its own number of steps at most; they
        end with their episode."""
        episode_ends = self.dataset.episode_ends[self.dataset.episode_of(first)]
        counts = np.minimum(n, episode_ends - first)
        rewards, worth = np.zeros(len(first), np.float32), np.ones(len(first), np.float32)
        for step in range(int(counts.max())):
            goes_on = step < counts
            row = np.where(goes_on, first + step, first)
            rewards += np.where(goes_on, worth * self._rewards[row], np.float32(0))
            worth = np.where(goes_on, worth * discounts, worth)
        last = first + counts - 1
        return Sampled(
            self.dataset.observations_at(first),
            self.stored_actions(first),
            rewards,
            self.dataset.observations_at(last, after=True),
            np.where(self._terminated[last], np.float32(0), worth),
        )

    def stored_actions(self, steps: Words) -> NDArray[Any]:
        """As the policy stores what it draws."""
        return as_stored(self._layout, self.dataset.arrays["actions"][steps])

    @cached_property
    def longest_dt(self) -> float:
        """The longest control period of the dataset."""
        return float(self.dataset.arrays["dt"].max())

    @cached_property
    def steps_by_period(self) -> list[Words]:
        """The steps of each control period, the shortest first."""
        periods = self.dataset.arrays["dt"]
        return [np.flatnonzero(periods == period) for period in np.unique(periods)]

    def dt(self, steps: Words) -> NDArray[np.float32]:
        """The control periods of steps, in seconds."""
        periods: NDArray[np.float32] = self.dataset.arrays["dt"][steps]
        return periods
