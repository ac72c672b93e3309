"""Running statistics of observations and rewards.

They are part of a policy's version: the learner takes in a whole batch at a barrier, in a fixed order, and everybody
who acts or learns with that version scales by the same numbers. Nothing is updated in between, so bits hold.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from htsrl.dataflow.parameters import statistics_of
from htsrl.errors import ConfigError
from htsrl.learners.average import Moments
from htsrl.policies.constants import EPSILON, MAX_DEVIATIONS
from htsrl.spaces import ObservationLeaf


class RunningMoments(nn.Module):
    """Mean and variance of all that was seen, in double precision."""

    holds_statistics = True
    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))

    @torch.no_grad()
    def take_in(self, samples: Tensor) -> None:
        """Merge a batch of samples, a row each (https://doi.org/10.1007/978-3-642-51461-6_3)."""
        if not len(samples):
            return  # all of it was left out
        samples = samples.double()
        added, batch_mean = len(samples), samples.mean(dim=0)
        batch_variance = samples.var(dim=0, correction=0)
        total = self.count + added
        difference = batch_mean - self.mean
        squares = self.variance * self.count + batch_variance * added
        squares += difference.square() * self.count * added / total
        self.mean += difference * (added / total)
        self.variance.copy_(squares / total)
        self.count.copy_(total)

    def deviation(self) -> Tensor:
        return (self.variance + EPSILON).sqrt()


def places_of_moments(module: nn.Module) -> list[Moments]:
    """Where the running moments of a module lie among its statistics, as `bind_statistics` lays them out."""
    places: dict[nn.Module, dict[str, slice]] = {}
    offset = 0
    for (owner, name), buffer in statistics_of(module).items():
        if isinstance(owner, RunningMoments):
            places.setdefault(owner, {})[name] = slice(offset, offset + buffer.numel())
        offset += buffer.numel()
    return [Moments(**of_owner) for of_owner in places.values()]


class ObservationScale(RunningMoments):
    """Brings observations to mean 0 and deviation 1, and cuts off what is far out."""

    def forward(self, obs: Tensor) -> Tensor:
        # Subtracted in the observations' own precision: doubles may be large and close together.
        centred = (obs - self.mean.to(obs.dtype)).float()
        scaled = centred * self.deviation().reciprocal().float()
        return scaled.clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS)


class ObservationScales(nn.Module):
    """A scale for every leaf of floats; what else is seen passes as it is."""

    def __init__(self, leaves: Mapping[str, ObservationLeaf]) -> None:
        super().__init__()
        floats = {name: leaf for name, leaf in leaves.items() if leaf.dtype.startswith("float")}
        if not floats:
            kinds = {"categories" if leaf.categories is not None else leaf.dtype for leaf in leaves.values()}
            raise ConfigError(
                f"normalize_observations=True needs observations of floats, not {' and '.join(sorted(kinds))}; "
                "turn it off with --no-normalize-observations (bytes are divided by 255 anyway)"
            )
        self.names = tuple(floats)
        self.scales = nn.ModuleList(ObservationScale(leaf.shape) for leaf in floats.values())

    def forward(self, observations: Mapping[str, Tensor]) -> dict[str, Tensor]:
        scaled = {name: scale(observations[name]) for name, scale in zip(self.names, self.scales, strict=True)}
        return {**observations, **scaled}

    def take_in(self, observations: Mapping[str, Tensor]) -> None:
        """Merge a batch of observations, a row each."""
        for name, scale in zip(self.names, self.scales, strict=True):
            assert isinstance(scale, ObservationScale)
            scale.take_in(observations[name])


class RewardScale(nn.Module):
    """Divides rewards by the deviation of the discounted return, so that values are of the order of 1."""

    holds_statistics = True
    returns_B: Tensor

    def __init__(self, num_columns: int) -> None:
        super().__init__()
        self.moments = RunningMoments(())
        # Not saved with the policy: only the run that it belongs to continues from it.
        self.register_buffer("returns_B", torch.zeros(num_columns, dtype=torch.float64), persistent=False)

    @torch.no_grad()
    def take_in(self, rewards_TB: Tensor, ends_TB: Tensor, discount: float, counted: Tensor | slice) -> None:
        """Carry every column's discounted return along through the batch, from one episode's end to the next.

        Of the flattened steps only those that are `counted` enter the moments.
        """
        returns_TB = torch.empty_like(rewards_TB, dtype=torch.float64)
        running_B = self.returns_B
        for t, rewards_B in enumerate(rewards_TB.double()):
            running_B = running_B * discount + rewards_B
            returns_TB[t] = running_B
            running_B = torch.where(ends_TB[t], 0.0, running_B)
        self.returns_B.copy_(running_B)
        self.moments.take_in(returns_TB.flatten()[counted])

    def forward(self, rewards_TB: Tensor) -> Tensor:
        scaled = rewards_TB * self.moments.deviation().reciprocal().float()
        return scaled.clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS)
