"""A small policy in NumPy, for actors.

A simulator leaves nothing of torch in the processor's caches, and to find it again takes torch several times as long as
the numbers of a small network do: actions for 8 HalfCheetahs take 94 us in torch between their steps, 21 us here. So
actors of small networks do without torch. All that they need of a policy is its actions and, where a time limit cuts an
episode, its value; log-probabilities and values to learn from are deferred to the learner, which adds them by torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.policies.constants import EPSILON, FORBIDDEN, MAX_DEVIATIONS
from htsrl.spaces import Interface, ObservationLeaf
from htsrl.spaces.observations import MASK_KEY

Array = NDArray[Any]
Rows = Mapping[str, Array]
"""Fields by name, a row per environment."""
ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, 0, out=x),
}


@dataclass(frozen=True)
class Place:
    """Where an array lies in a flat one."""

    offset: int
    shape: tuple[int, ...]

    def of(self, flat: Array) -> Array:
        size = int(np.prod(self.shape))
        return flat[self.offset : self.offset + size].reshape(self.shape)


@dataclass(frozen=True)
class LightPlan:
    """All that it takes to find a policy in a slot of shared memory; names are those of the policy in torch."""

    interface: Interface
    activation: Literal["tanh", "relu"]
    parameters: Mapping[str, Place]
    statistics: Mapping[str, Place]
    scaled: tuple[str, ...]
    """The fields whose running moments are among the statistics, in their order there."""

    def policies(self, block: SharedArrays) -> list[LightPolicy]:
        """One for each slot."""
        slots, statistics = block["parameter_slots"], block["statistics"]
        return [LightPolicy(self, slot[0], of_slot) for slot, of_slot in zip(slots, statistics, strict=True)]


class LightPolicy:
    """Looks at the parameters where they lie: whatever is written there is what it acts by."""

    def __init__(self, plan: LightPlan, parameters: Array, statistics: Array) -> None:
        self._plan = plan
        found = {name: place.of(parameters) for name, place in plan.parameters.items()}
        moments = {name: place.of(statistics) for name, place in plan.statistics.items()}
        self._activate = ACTIVATIONS[plan.activation]
        self._action_layers = [*_hidden("encoder", found), _layer("action_head", found)]
        self._value_layers = [*_hidden("value_encoder", found), _layer("value_head", found)]
        self._log_std = found.get("log_std")
        self._leaves = {name: x for name, x in plan.interface.observations.items() if name != MASK_KEY}
        self._moments = {
            name: tuple(moments[f"observation_scales.scales.{i}.{kind}"] for kind in ("mean", "variance"))
            for i, name in enumerate(plan.scaled)
        }
        actions = plan.interface.actions
        self._groups = [(count, len(list(group))) for count, group in groupby(actions.categories)]
        self._num_logits = sum(actions.categories)
        self._is_single_choice, self._dtype = actions.is_single_choice, actions.dtype

    def act(self, observations: Rows, noise: Array) -> Array:
        """An action per row, drawn with the executor's noise."""
        return self._sample(self._outputs(self._action_layers, observations), observations.get(MASK_KEY), noise)

    def value(self, observations: Rows) -> Array:
        return self._outputs(self._value_layers, observations)[:, 0]

    def probe(self, inputs: Rows) -> Array:
        """All that answers consist of, and the numbers that they were made from; `noise` is among the inputs."""
        outputs = self._outputs(self._action_layers, inputs)
        actions = self._sample(outputs, inputs.get(MASK_KEY), inputs["noise"])
        return np.column_stack([outputs, actions, self.value(inputs)])

    def _outputs(self, layers: list[tuple[Array, Array]], observations: Rows) -> Array:
        x = self._side_by_side(observations)
        for weight, bias in layers[:-1]:
            x = x.dot(weight)
            x += bias
            self._activate(x)
        weight, bias = layers[-1]
        outputs: Array = x.dot(weight)
        outputs += bias
        return outputs

    def _sample(self, outputs: Array, mask: Array | None, noise: Array) -> Array:
        """Choices by Gumbel-max, which needs no normalised probabilities; then means and what they are off by."""
        count = self._num_logits
        logits = outputs[:, :count] if mask is None else np.where(mask, outputs[:, :count], np.float32(FORBIDDEN))
        if self._is_single_choice:
            chosen: Array = (logits + noise).argmax(axis=1)
            return chosen
        if self._log_std is None:
            return np.concatenate(self._choices(logits + noise), axis=1)
        drawn: Array = outputs[:, count:] + np.exp(self._log_std) * noise[:, count:]
        if not count:
            return drawn
        choices = self._choices(logits + noise[:, :count])
        return np.concatenate([*choices, drawn], axis=1).astype(self._dtype)

    def _choices(self, perturbed: Array) -> list[Array]:
        """Neighbours with as many values at once."""
        chosen, at = [], 0
        for num_values, count in self._groups:
            group = perturbed[:, at : at + num_values * count].reshape(len(perturbed), count, num_values)
            chosen.append(group.argmax(axis=2))
            at += num_values * count
        return chosen

    def _side_by_side(self, observations: Rows) -> Array:
        parts = [self._flat(name, leaf, observations[name]) for name, leaf in self._leaves.items()]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _flat(self, name: str, leaf: ObservationLeaf, obs: Array) -> Array:
        """A leaf as a vector: numbers as they are or scaled, bytes from 0 to 1, choices one-hot."""
        if name in self._moments:
            mean, variance = self._moments[name]
            centred = (obs - mean.astype(obs.dtype)).astype(np.float32)
            obs = centred * (1 / np.sqrt(variance + EPSILON)).astype(np.float32)
            obs = np.minimum(np.maximum(obs, np.float32(-MAX_DEVIATIONS)), np.float32(MAX_DEVIATIONS))
        flat = obs if obs.ndim == 2 else obs.reshape(len(obs), -1)
        if leaf.categories is not None:
            return _one_hot(leaf, flat)
        numbers = flat if flat.dtype == np.float32 else flat.astype(np.float32)
        return numbers * np.float32(1 / 255) if leaf.dtype == "uint8" else numbers


def _one_hot(leaf: ObservationLeaf, elements: Array) -> Array:
    assert leaf.categories is not None
    first_columns = np.cumsum([0, *leaf.categories[:-1]])
    columns = elements.astype(np.int64) - np.array(leaf.starts) + first_columns
    flat = np.zeros((len(elements), leaf.width), np.float32)
    np.put_along_axis(flat, columns, 1.0, axis=1)
    return flat


def _hidden(encoder: str, found: Mapping[str, Array]) -> list[tuple[Array, Array]]:
    """The layers of an encoder, between which its activations are counted too."""
    layers: list[tuple[Array, Array]] = []
    while f"{encoder}.mlp.layers.{2 * len(layers)}.weight" in found:
        layers.append(_layer(f"{encoder}.mlp.layers.{2 * len(layers)}", found))
    return layers


def _layer(name: str, found: Mapping[str, Array]) -> tuple[Array, Array]:
    return found[f"{name}.weight"].T, found[f"{name}.bias"]
