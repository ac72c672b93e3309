"""Distributions over actions, whose samples are a function of the noise they are given."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from htsrl.policies.constants import FORBIDDEN

LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)
# As tensors, of any device's use: a number takes longer to become one than small tensors take to be multiplied.
_MINUS_HALF, _LOG_SQRT_2_PI = torch.tensor(-0.5), torch.tensor(LOG_SQRT_2_PI)
NODES = torch.linspace(-4.5, 4.5, 24)
WEIGHTS = torch.softmax(-0.5 * NODES.square(), dim=0)
"""A standard normal distribution on a grid: for functions as smooth as ours no other nodes need to be fewer."""


class Distribution(Protocol):
    """One distribution per row."""

    def sample(self, noise: Tensor) -> Tensor:
        """An action per row, drawn with the executor's noise: no generator is touched here."""

    def mode(self) -> Tensor:
        """The most likely action per row."""

    def log_prob(self, actions: Tensor) -> Tensor: ...

    def entropy(self) -> Tensor: ...


def masked(logits: Tensor, mask: Tensor | None) -> Tensor:
    """No gradient reaches what is forbidden."""
    return logits if mask is None else torch.where(mask, logits, FORBIDDEN)


class Categorical:
    """A choice among n values, or `[rows, K]` of them."""

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


class Choices:
    """Independent choices, each with its own number of values; neighbours with as many are computed as one."""

    def __init__(self, logits: Tensor, categories: tuple[int, ...]) -> None:
        self._groups = _groups(categories)
        self._parts = [Categorical(part) for part in self._split(logits)]

    def sample(self, noise: Tensor) -> Tensor:
        drawn = [part.sample(of_part) for part, of_part in zip(self._parts, self._split(noise), strict=True)]
        return torch.cat(drawn, dim=1)

    def mode(self) -> Tensor:
        return torch.cat([part.mode() for part in self._parts], dim=1)

    def log_prob(self, actions: Tensor) -> Tensor:
        counts = [count for count, _ in self._groups]
        chosen = zip(self._parts, torch.split(actions, counts, dim=1), strict=True)
        return sum_over([part.log_prob(of_part) for part, of_part in chosen])

    def entropy(self) -> Tensor:
        return sum_over([part.entropy() for part in self._parts])

    def _split(self, columns: Tensor) -> list[Tensor]:
        widths = [count * num_values for count, num_values in self._groups]
        parts = zip(torch.split(columns, widths, dim=1), self._groups, strict=True)
        return [torch.unflatten(part, 1, group) for part, group in parts]


class DiagonalGaussian:
    """Independent normal distributions, one per action dimension."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

    def sample(self, noise: Tensor) -> Tensor:
        return self.mean + self.log_std.exp() * noise

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, actions: Tensor) -> Tensor:
        z = (actions - self.mean) * (-self.log_std).exp()
        return (z * z * _MINUS_HALF - self.log_std - _LOG_SQRT_2_PI).sum(dim=-1)

    def entropy(self) -> Tensor:
        per_dimension = self.log_std + 0.5 + LOG_SQRT_2_PI
        if per_dimension.dim() == 2:  # a deviation for each row
            return per_dimension.sum(dim=-1)
        return per_dimension.sum().expand(self.mean.shape[0])


class Squash(NamedTuple):
    """Which dimensions are squashed into bounds, and how far these lie apart: the same for all distributions."""

    dimensions: Tensor
    log_half_ranges: Tensor
    """Of half the distance of the bounds; 0 where a dimension is not squashed."""
    log_volume: Tensor
    """By how much, in logarithms, actions in [-1, 1] are denser than squashed ones."""

    @classmethod
    def of(cls, half_ranges: Tensor) -> Squash:
        """`half_ranges` are nan where a dimension is not squashed."""
        dimensions = ~half_ranges.isnan()
        log_half_ranges = torch.where(dimensions, half_ranges, 1.0).log()
        return cls(dimensions, log_half_ranges, log_half_ranges.sum())

    def on(self, device: torch.device) -> Squash:
        return self if self.dimensions.device == device else Squash(*(x.to(device) for x in self))


class SquashedGaussian:
    """Normal distributions whose samples are squashed into bounds by a hyperbolic tangent, dimension by dimension.

    Actions stay as they were drawn, before the squashing, where no rounding at the bounds loses anything;
    probabilities are densities of what comes out behind it. The mode is the one before the squashing: the median.
    """

    def __init__(self, gaussian: DiagonalGaussian, squash: Squash) -> None:
        self._gaussian = gaussian
        self._squash = squash
        self.log_volume = squash.log_volume
        self.sample, self.mode = gaussian.sample, gaussian.mode

    def log_prob(self, actions: Tensor) -> Tensor:
        return self._gaussian.log_prob(actions) - self._log_slope(actions).sum(dim=-1)

    def entropy(self) -> Tensor:
        """That of the normal distributions and the mean of the slope's logarithm, by the trapezoidal rule.

        It is off by less than 1e-3 up to a deviation of e, and by 0.02 at e^2.
        """
        mean, std = self._gaussian.mean, self._gaussian.log_std.exp()
        nodes, weights = (x.to(mean)[:, None, None] for x in (NODES, WEIGHTS))
        log_slopes = weights * self._log_slope(mean + nodes * std)
        return self._gaussian.entropy() + log_slopes.sum(dim=(0, 2))

    def _log_slope(self, drawn: Tensor) -> Tensor:
        """log(half range * (1 - tanh(x)^2)), in a form that does not round to log(0).

        Without torch's softplus, which gives the last few numbers of an array other bits than the rest.
        """
        distance = drawn.abs()
        log_slope = 2 * (math.log(2) - distance - torch.log1p(torch.exp(-2 * distance)))
        return torch.where(self._squash.dimensions, self._squash.log_half_ranges + log_slope, 0.0)


class Hybrid:
    """Choices and continuous dimensions side by side; probabilities multiply, so their logarithms add up."""

    def __init__(self, choices: Choices, continuous: Distribution, num_choices: int, num_values: int) -> None:
        self._choices = choices
        self._continuous = continuous
        self._num_choices = num_choices
        self._num_values = num_values

    def sample(self, noise: Tensor) -> Tensor:
        gumbel, normal = noise[:, : self._num_values], noise[:, self._num_values :]
        return self._joined(self._choices.sample(gumbel), self._continuous.sample(normal))

    def mode(self) -> Tensor:
        return self._joined(self._choices.mode(), self._continuous.mode())

    def log_prob(self, actions: Tensor) -> Tensor:
        chosen, drawn = actions[:, : self._num_choices], actions[:, self._num_choices :]
        return self._choices.log_prob(chosen.long()) + self._continuous.log_prob(drawn)

    def entropy(self) -> Tensor:
        return self._choices.entropy() + self._continuous.entropy()

    @staticmethod
    def _joined(chosen: Tensor, drawn: Tensor) -> Tensor:
        return torch.cat([chosen.to(drawn.dtype), drawn], dim=1)


def sum_over(parts: list[Tensor]) -> Tensor:
    """The sum of `[rows, K]` parts along each row."""
    return torch.cat(parts, dim=1).sum(dim=1)


def _groups(categories: tuple[int, ...]) -> list[tuple[int, int]]:
    """Runs of equal numbers, as (how many, number)."""
    groups: list[tuple[int, int]] = []
    for num_values in categories:
        if groups and groups[-1][1] == num_values:
            groups[-1] = (groups[-1][0] + 1, num_values)
        else:
            groups.append((1, num_values))
    return groups
