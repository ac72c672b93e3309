"""Distributions over actions, whose samples are a function of the noise they are given."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


class Distribution(Protocol):
    """One distribution per row."""

    def sample(self, noise: Tensor) -> Tensor:
        """An action per row, drawn with the executor's noise: no generator is touched here."""

    def mode(self) -> Tensor:
        """The most likely action per row."""

    def log_prob(self, actions: Tensor) -> Tensor: ...

    def entropy(self) -> Tensor: ...


class Categorical:
    """A choice among n actions."""

    def __init__(self, logits: Tensor) -> None:
        self.log_probs = torch.log_softmax(logits, dim=-1)

    def sample(self, noise: Tensor) -> Tensor:
        """Gumbel-max: adding standard Gumbel noise to the log-probabilities makes their argmax a sample."""
        return (self.log_probs + noise).argmax(dim=-1)

    def mode(self) -> Tensor:
        return self.log_probs.argmax(dim=-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        return self.log_probs.gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(dim=-1)


class DiagonalGaussian:
    """Independent normal distributions, one per action dimension."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

    def sample(self, noise: Tensor) -> Tensor:
        return self.mean + self.log_std.exp() * noise.view_as(self.mean)

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, actions: Tensor) -> Tensor:
        z = (actions - self.mean) * (-self.log_std).exp()
        return (-0.5 * z.square() - self.log_std - LOG_SQRT_2_PI).reshape(len(self.mean), -1).sum(dim=-1)

    def entropy(self) -> Tensor:
        per_dimension = self.log_std + 0.5 + LOG_SQRT_2_PI
        return per_dimension.sum().expand(self.mean.shape[0])
