"""What SAC, TD3 and DQN have in common: how many gradient steps an update takes, and what each of them learns from.

The lag of `hts` needs no correction here: data of any age are as good as new ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from htsrl.algorithms.minibatch_objective import (
    Minibatch,
    MinibatchObjective,
    check_shards_of_minibatch,
    tensors_of,
)
from htsrl.config import Network
from htsrl.config.run_facts import RunFacts
from htsrl.dataflow.exchange import Words
from htsrl.errors import ConfigError
from htsrl.policies.policy import Policy
from htsrl.seeding import ActionNoise, Purpose
from htsrl.sources.replay_buffer import ReplayBuffer
from htsrl.spaces import Interface


class ReplaySettings(Protocol):
    """The settings that all of them have."""

    @property
    def discount(self) -> float: ...
    @property
    def n_step(self) -> int: ...
    @property
    def minibatch_size(self) -> int: ...
    @property
    def update_to_data(self) -> float: ...
    @property
    def learning_starts(self) -> int: ...
    @property
    def importance_exponent(self) -> float: ...


class Transitions(NamedTuple):
    """Drawn from the replay buffer, a row each."""

    observations: dict[str, Tensor]
    actions: Tensor
    rewards: Tensor
    next_observations: dict[str, Tensor]
    discounts: Tensor
    weights: Tensor | None = None
    """What each counts in a mean, where they were drawn by priority."""
    numbers: Tensor | None = None
    """Which row of the minibatch each is, where they were drawn by priority."""


Settings = TypeVar("Settings", bound=ReplaySettings)


class ReplayObjective(MinibatchObjective[Settings, Minibatch]):
    """With minibatches of a replay buffer."""

    def __init__(self, settings: Settings, seed: int, update: int, replay_buffer: ReplayBuffer) -> None:
        super().__init__(settings, seed, update)
        self._replay_buffer = replay_buffer
        self._places: Words | None = None

    def _transitions(self, device: torch.device) -> Transitions:
        settings = self._settings
        place = self._seed, self._update, self.epoch
        found = self._replay_buffer.sample(*place, settings.minibatch_size, settings.discount, settings.n_step)

        self._places = found.places
        weights = importance_weights(found.likelihoods, settings.importance_exponent, device)
        numbers = None if weights is None else torch.arange(len(weights), device=device)
        return Transitions(*tensors_of(found, device), weights, numbers)

    def note_errors(self, numbers: Tensor | None, errors: Tensor) -> None:
        """By how much the values of some rows of the minibatch were off; priorities follow from it."""
        if numbers is not None and self._replay_buffer.priorities is not None:
            self._replay_buffer.priorities.note_errors(numbers.numpy(force=True), errors.detach().numpy(force=True))

    def revise_priorities(self) -> None:
        """The learner's, after the gradient whose loss has noted the errors."""
        if self._replay_buffer.priorities is not None:
            assert self._places is not None, "nothing was drawn"
            self._replay_buffer.priorities.revise(self._update, self.epoch, self._places)

    def _noise(self, noise: ActionNoise, use: int, num_uses: int, device: torch.device) -> Tensor:
        """A row for each transition, of one of the gradient step's `num_uses` uses of noise."""
        size = self._settings.minibatch_size
        place = num_uses * self.epoch + use, self._update * size
        return torch.from_numpy(noise.draw(self._seed, *place, size, Purpose.LEARNING)).to(device)


def importance_weights(likelihoods: NDArray[np.float32] | None, exponent: float, device: torch.device) -> Tensor | None:
    """What makes up for draws that are not uniform: likelihood^-beta, the largest of them 1."""
    if likelihoods is None:
        return None
    weights = np.power(likelihoods.astype(np.float64), -exponent)
    return torch.from_numpy((weights / weights.max()).astype(np.float32)).to(device)


def mean_over_rows(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Over the last axis, each row by its weight if there are any."""
    return losses.mean(dim=-1) if weights is None else (losses * weights).mean(dim=-1)


def gradient_steps(settings: ReplaySettings, update: int, num_new: int) -> range:
    """Those of an update with so many new transitions, counted from the run's beginning; none before there are
    `learning_starts` transitions."""
    if (update + 1) * num_new < settings.learning_starts:
        return range(0)
    first = math.floor(settings.update_to_data * update * num_new)
    return range(first, first + num_gradient_steps(settings.update_to_data, update, num_new))


def num_gradient_steps(update_to_data: float, update: int, num_new: int) -> int:
    """Of an update with so many new transitions: all up to it together are the whole number below their share."""
    before, after = (math.floor(update_to_data * number * num_new) for number in (update, update + 1))
    return after - before


def check_replay(name: str, settings: ReplaySettings, run: RunFacts) -> None:
    """ConfigError for a run that cannot learn from a replay buffer."""
    if run.mixes_versions:
        raise ConfigError(f"{name}'s replay buffer follows every environment by interval; use --schedule hts or sync")
    check_shards_of_minibatch(settings, run)


def check_bounded_box(name: str, interface: Interface) -> None:
    """ConfigError unless every action is a number between two bounds."""
    actions = interface.actions
    has_bounds = ((actions.low > -math.inf) & (actions.high < math.inf) & (actions.low < actions.high)).all()
    if actions.categories or not has_bounds:
        raise ConfigError(
            f"{name} needs a Box of actions with two bounds each, not {interface.action_space}; use PPO, or DQN and "
            "discrete_sac for Discrete"
        )


def check_single_choice(name: str, interface: Interface) -> None:
    """ConfigError unless an action is one choice."""
    if not interface.actions.is_single_choice:
        raise ConfigError(
            f"{name} needs one choice among actions, Discrete, not {interface.action_space}; use PPO, or SAC for a Box"
        )


def check_network(name: str, network: Network, own_network: bool = False) -> None:
    """ConfigError for what needs more than a transition, and for a network of the user's own unless that is known."""
    if network.recurrent != "none":
        raise ConfigError(
            f"{name} learns from single transitions, and recurrent={network.recurrent} needs what went before; leave "
            "it out, or use PPO"
        )
    if network.policy is not None and not own_network:
        raise ConfigError(f"{name}'s critics have networks of their own; leave out policy={network.policy}, or use PPO")


def check_vectors(name: str, interface: Interface) -> None:
    """ConfigError where there are images to see."""
    if any(leaf.is_image for leaf in interface.observations.values()):
        raise ConfigError(f"{name}'s critics see vectors, and there are images among the observations; use PPO")


def scaled(policy: Policy, observations: dict[str, Tensor]) -> dict[str, Tensor]:
    """As the policy sees them."""
    scales = policy.observation_scales
    return observations if scales is None else dict(scales(observations))
