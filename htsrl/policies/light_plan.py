"""Which policies are small enough to act in NumPy, and where their numbers lie."""

from __future__ import annotations

from htsrl.config import Network
from htsrl.dataflow.parameters import FlatLayout, statistics_of
from htsrl.policies.custom import CustomEncoder
from htsrl.policies.layers import Dense
from htsrl.policies.light import LightPlan, Place
from htsrl.policies.policy import Policy

MAX_WEIGHTS = 1 << 14
"""Of a layer. From some 256 x 256 on, torch makes up for what it takes to get going."""


def light_plan(policy: Policy, network: Network) -> LightPlan | None:
    """None for a policy that acts in torch.

    That is where actions and values share an encoder, so that values cost nothing extra, or where it remembers, or
    where the algorithm says how actions are drawn.
    """
    encoder = policy.encoder
    if isinstance(encoder, CustomEncoder) or policy.value_encoder is None or policy.core is not None:
        return None
    if policy.exploration is not None:
        return None
    largest = max(layer.weight.numel() for layer in policy.modules() if isinstance(layer, Dense))
    if encoder.sees_images or largest > MAX_WEIGHTS or network.state_dependent_std:
        return None
    scales = policy.observation_scales
    return LightPlan(
        interface=policy.interface,
        activation=network.activation,
        parameters=_parameter_places(policy),
        statistics=_statistic_places(policy),
        scaled=() if scales is None else scales.names,
    )


def _parameter_places(policy: Policy) -> dict[str, Place]:
    """As `FlatLayout` lays them out."""
    named = zip(policy.named_parameters(), FlatLayout.of(policy).offsets, strict=True)
    return {name: Place(offset, tuple(parameter.shape)) for (name, parameter), offset in named}


def _statistic_places(policy: Policy) -> dict[str, Place]:
    """As `bind_statistics` lays them out, one after another."""
    owners = {owner: name for name, owner in policy.named_modules()}
    places, offset = {}, 0
    for (owner, name), buffer in statistics_of(policy).items():
        places[f"{owners[owner]}.{name}"] = Place(offset, tuple(buffer.shape))
        offset += buffer.numel()
    return places
