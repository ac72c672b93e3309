"""What BC, CQL and IQL have in common: minibatches of a dataset."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from htsrl.algorithms.minibatch_objective import MinibatchObjective, Settings, tensors_of
from htsrl.config import Network
from htsrl.errors import ConfigError
from htsrl.seeding import ActionNoise, Purpose
from htsrl.sources.dataset import DatasetSampler
from htsrl.sources.replay_buffer import Sampled
from htsrl.spaces import Interface


class Transitions(NamedTuple):
    """Drawn from a dataset, a row each."""

    observations: dict[str, Tensor]
    actions: Tensor
    """As the policy stores what it draws."""
    rewards: Tensor
    next_observations: dict[str, Tensor]
    discounts: Tensor
    """What a value of the next observation is worth now: 0 after a termination."""
    noise: tuple[Tensor, ...] = ()
    """A row or more for each transition, of as many kinds as the algorithm has uses for."""


class DatasetObjective(MinibatchObjective[Settings, Transitions]):
    """With minibatches of a dataset."""

    noise_rows: tuple[int, ...] = ()
    """Rows of noise that a transition needs, by use."""

    def __init__(self, settings: Settings, seed: int, update: int, data: DatasetSampler) -> None:
        super().__init__(settings, seed, update)
        self._data = data

    def _sampled(self) -> Sampled:
        """The transitions of the gradient step."""
        place = self._seed, self._update, self.epoch
        discount, n = (getattr(self._settings, name, 1) for name in ("discount", "n_step"))
        return self._data.sample(*place, self._settings.minibatch_size, discount, n)

    def _draw(self, noise: ActionNoise, device: torch.device) -> Transitions:
        found = self._sampled()
        drawn = tuple(torch.from_numpy(self._noise(noise, use)).to(device) for use in range(len(self.noise_rows)))
        return Transitions(*tensors_of(found, device), drawn)

    def _noise(self, noise: ActionNoise, use: int) -> NDArray[np.float32]:
        """`[transitions, rows, dimensions]`, no two uses of a run alike."""
        size, rows = self._settings.minibatch_size, self.noise_rows[use]
        stream = len(self.noise_rows) * self.epoch + use
        drawn = noise.draw(self._seed, stream, self._update * size * rows, size * rows, Purpose.LEARNING)
        return drawn.reshape(size, rows, -1)


def check_single_steps(name: str, network: Network) -> None:
    if network.recurrent != "none":
        raise ConfigError(
            f"{name} learns from single transitions, and recurrent={network.recurrent} needs what came before; leave "
            "it out"
        )


def check_critics_fit(name: str, interface: Interface, network: Network) -> None:
    """ConfigError unless critics can be given what is seen and done."""
    check_single_steps(name, network)
    actions = interface.actions
    if actions.categories or not actions.squashed.all():
        raise ConfigError(f"{name} needs a Box of actions with two bounds each, not {interface.action_space}; use bc")
    if network.policy is not None or any(leaf.is_image for leaf in interface.observations.values()):
        raise ConfigError(f"{name}'s critics see vectors with networks of their own, and no images; use bc")
