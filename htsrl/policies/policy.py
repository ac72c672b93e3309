"""The actor-critic policy: encoder, recurrent core if it has one, action head, value head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor, nn

from htsrl.config import Experiment, Network
from htsrl.config.algorithm_settings import CommonSettings, algorithm_of, unpacked
from htsrl.config.run_facts import RunFacts
from htsrl.dataflow.trajectory import RECURRENT_STATE
from htsrl.numerics import OwnNumerics
from htsrl.policies.custom import CustomEncoder, custom_encoder
from htsrl.policies.distributions import (
    Categorical,
    Choices,
    DiagonalGaussian,
    Distribution,
    Hybrid,
    Squash,
    SquashedGaussian,
    masked,
)
from htsrl.policies.encoders import Encoder, encoder_for
from htsrl.policies.exploration import Exploration
from htsrl.policies.layers import Dense, orthogonal
from htsrl.policies.normalization import ObservationScales, RewardScale
from htsrl.policies.recurrent import Gru, Lstm, RecurrentCore
from htsrl.seeding import network_seed
from htsrl.spaces import Interface
from htsrl.spaces.observations import MASK_KEY

Observations = Mapping[str, Tensor]
"""Fields by name, a row per environment or step: the leaves of what is seen, the action mask if there is one, when
acting with a recurrent policy its state, and when learning the activations that were kept."""


LOG_STD_RANGE = (-20.0, 2.0)
"""Of deviations that depend on what is seen."""


class Decision(NamedTuple):
    """What an actor answers."""

    actions: Tensor
    log_probs: Tensor
    values: Tensor
    states: Tensor | None
    """The recurrent state after these rows."""
    activations: dict[str, Tensor]
    """What layers gave on the way, of those that were to be kept."""


class Past(NamedTuple):
    """How rows follow one another, for a recurrent policy: L x N rows, time first, are N sequences of L steps."""

    states: Tensor
    """The recurrent state before the first step of each sequence."""
    begins_LN: Tensor
    """Whether an episode begins at the step, so that nothing before it is remembered."""
    counted: Tensor | None = None
    """The rows to answer for; None: all."""


class Policy(nn.Module):
    """Maps observations to a distribution over actions and a value."""

    def __init__(self, interface: Interface, network: Network, exploration: Exploration | None = None) -> None:
        """`exploration` is the algorithm's, where it has one."""
        super().__init__()
        self.interface = interface
        self.exploration = exploration
        seen = {name: leaf for name, leaf in interface.observations.items() if name != MASK_KEY}
        self.encoder: Encoder | CustomEncoder
        self.value_encoder: Encoder | None = None
        if network.policy is not None:
            self.encoder = custom_encoder(network.policy, interface.observation_space, seen)
        else:
            self.encoder = encoder = encoder_for(seen, network)
            separate = not encoder.sees_images if network.separate_value is None else network.separate_value
            self.value_encoder = encoder_for(seen, network) if separate else None
        # `memory` is the core's name in the files of saved policies.
        self.memory = _recurrent_core(self.encoder.num_features, network)
        self.observation_scales = ObservationScales(seen) if network.normalize_observations else None
        self.reward_scale: RewardScale | None = None
        width = self.encoder.num_features if self.core is None else self.core.num_features
        actions = interface.actions
        num_continuous = actions.num_continuous * (2 if network.state_dependent_std else 1)
        self.action_head = orthogonal(Dense(width, sum(actions.categories) + num_continuous), 0.01)
        value_width = width
        if self.value_encoder is not None:
            value_width = self.value_encoder.num_features + (0 if self.core is None else self.core.num_features)
        self.value_head = orthogonal(Dense(value_width, 1), 1.0)
        self.initial_log_std = network.initial_log_std if network.state_dependent_std else None
        """None where continuous actions have one deviation whatever is seen."""
        if actions.num_continuous and not network.state_dependent_std and exploration is None:
            self.log_std = nn.Parameter(torch.full((actions.num_continuous,), network.initial_log_std))
        self._squash = Squash.of(torch.from_numpy(actions.half_ranges).float()) if actions.squashed.any() else None

    @property
    def core(self) -> RecurrentCore | None:
        """What makes it recurrent, if it is."""
        return self.memory

    @property
    def state_size(self) -> int:
        """How many numbers its recurrent state is, 0 where it has none."""
        return 0 if self.core is None else self.core.state_size

    @property
    def activation_shapes(self) -> dict[str, tuple[int, ...]]:
        """What can be kept of a row when acting: a gradient at the same parameters need not compute it again."""
        if isinstance(self.encoder, CustomEncoder) or self.value_encoder is not None:
            return {}
        return self.encoder.activation_shapes

    @property
    def activation_dtype(self) -> str:
        """In which they lie in a storage; numbers of bfloat16 are kept by their bits."""
        return "float32" if isinstance(self.encoder, CustomEncoder) else self.encoder.activation_dtype

    def forward(self, observations: Observations, past: Past | None = None) -> tuple[Distribution, Tensor]:
        """Distributions and values, a row each: of rows that stand alone, or in sequences with a past."""
        mask, (features, value_features) = observations.get(MASK_KEY), self._encoded(observations)
        if self.core is not None:
            assert past is not None, "a recurrent policy needs to know what went before"
            inputs_LN = features.view(*past.begins_LN.shape, -1)
            features = self.core.unroll(inputs_LN, past.states, past.begins_LN).flatten(0, 1)
            if past.counted is not None:
                features = features[past.counted]
                value_features = None if value_features is None else value_features[past.counted]
                mask = None if mask is None else mask[past.counted]
        action_outputs, values = self._heads(features, value_features)
        return self._distribution(action_outputs, mask), values

    def respond(self, observations: Observations) -> tuple[Distribution, Tensor, Tensor | None]:
        """Distributions, values and the recurrent state after one step; that before it is among `observations`."""
        action_outputs, values, states = self._step(observations)
        return self._distribution(action_outputs, observations.get(MASK_KEY)), values, states

    def decide(self, observations: Observations, noise: Tensor, keep_activations: bool = False) -> Decision:
        keep: dict[str, Tensor] | None = {} if keep_activations else None
        action_outputs, values, states = self._step(observations, keep)
        distribution = self._distribution(action_outputs, observations.get(MASK_KEY))
        actions = distribution.sample(noise)
        return Decision(actions, distribution.log_prob(actions), values, states, keep or {})

    def draw(self, observations: Observations, noise: Tensor) -> Tensor:
        """The actions of `decide`, with the same bits, by a policy that remembers nothing; no value is computed."""
        seen = observations if self.observation_scales is None else self.observation_scales(observations)
        outputs = self.action_head.forward(self.encoder.forward(seen))
        return self._distribution(outputs, observations.get(MASK_KEY)).sample(noise)

    def outputs(self, observations: Observations) -> Tensor:
        """All that `respond` computes, before it becomes a distribution."""
        return _side_by_side(*self._step(observations))

    def probe(self, observations: Observations, noise: Tensor, keep_activations: bool = False) -> Tensor:
        """All that an actor's answer consists of, and the numbers that it was made from."""
        keep: dict[str, Tensor] | None = {} if keep_activations else None
        action_outputs, values, states = self._step(observations, keep)
        distribution = self._distribution(action_outputs, observations.get(MASK_KEY))
        actions = distribution.sample(noise)
        kept = (keep or {}).values()
        return _side_by_side(action_outputs, values, states, actions, distribution.log_prob(actions), *kept)

    def _step(
        self, observations: Observations, keep: dict[str, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        features, value_features = self._encoded(observations, keep)
        if self.core is None:
            return *self._heads(features, value_features), None
        features, states = self.core.step(features, observations[RECURRENT_STATE])
        return *self._heads(features, value_features), states

    def _encoded(
        self, observations: Observations, keep: dict[str, Tensor] | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Features for the action, and for the value where it has its own."""
        seen = observations if self.observation_scales is None else self.observation_scales(observations)
        # Looked up once each: in a small network, finding a module takes as long as an operation on numbers.
        encoder, value_encoder = self.encoder, self.value_encoder
        if isinstance(encoder, CustomEncoder):
            return encoder.forward(seen), None
        if value_encoder is None:
            return encoder.forward(seen, keep), None
        if encoder.sees_images:
            return encoder.forward(seen, keep), value_encoder.forward(seen)
        side_by_side = encoder.side_by_side(seen)
        return encoder.above(side_by_side), value_encoder.above(side_by_side)

    def _heads(self, features: Tensor, value_features: Tensor | None) -> tuple[Tensor, Tensor]:
        if value_features is None:
            value_features = features
        elif self.core is not None:
            # The value looks at what is remembered, but its errors, which may be large, do not decide what that is.
            value_features = torch.cat([value_features, features.detach()], dim=1)
        return self.action_head.forward(features), self.value_head.forward(value_features).squeeze(-1)

    def _distribution(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        actions = self.interface.actions
        if actions.is_single_choice:
            exploration = self.exploration
            return Categorical(masked(outputs, mask)) if exploration is None else exploration.choice(outputs, mask)
        if not actions.categories:
            return self._continuous(outputs)
        num_values = sum(actions.categories)
        choices = Choices(masked(outputs[:, :num_values], mask), actions.categories)
        if not actions.num_continuous:
            return choices
        return Hybrid(choices, self._continuous(outputs[:, num_values:]), len(actions.categories), num_values)

    def _continuous(self, outputs: Tensor) -> DiagonalGaussian | SquashedGaussian:
        gaussian = DiagonalGaussian(*self.means_and_log_stds(outputs))
        return gaussian if self._squash is None else SquashedGaussian(gaussian, self._squash.on(outputs.device))

    def means_and_log_stds(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Of continuous actions, from the outputs for them; a row for each unless the deviation is one for all."""
        if self.exploration is not None:
            return self.exploration.means_and_log_stds(outputs)
        if self.initial_log_std is None:
            return outputs, self.log_std
        means, log_stds = outputs.chunk(2, dim=1)
        return means, (log_stds + self.initial_log_std).clamp(*LOG_STD_RANGE)


def _side_by_side(*parts: Tensor | None) -> Tensor:
    return torch.cat([part.reshape(len(part), -1).float() for part in parts if part is not None], dim=1)


def policy_for(experiment: Experiment, interface: Interface, num_columns: int = 0) -> Policy:
    """The policy that an experiment starts with; `num_columns` is how many agents it will be trained with at once."""
    exploration = exploration_of(experiment, interface)
    policy = _built(interface, experiment.network, network_seed(experiment.seed), exploration)
    if CommonSettings.of(experiment.algorithm).normalize_rewards:
        policy.reward_scale = RewardScale(num_columns)
    return policy


def exploration_of(experiment: Experiment, interface: Interface) -> Exploration | None:
    """What the algorithm says of how actions are drawn; None where that is left to the policy."""
    if not CommonSettings.of(experiment.algorithm).own_exploration:
        return None
    settings = unpacked(experiment.algorithm)
    algorithm: Any = algorithm_of(settings)(settings, RunFacts.of(experiment))
    exploration: Exploration = algorithm.exploration(interface)
    return exploration


def build_policy(
    observation_space: spaces.Space[object], action_space: spaces.Space[object], network: Network, seed: int
) -> Policy:
    """A policy for these spaces."""
    squashes = network.bounded_actions == "squash"
    return _built(Interface(observation_space, action_space, squashes=squashes), network, seed)


def _built(interface: Interface, network: Network, seed: int, exploration: Exploration | None = None) -> Policy:
    """Initialised from `seed`, without touching torch's global generator."""
    with OwnNumerics(), torch.random.fork_rng(devices=[]):  # the last bits of a decomposition depend on threads
        torch.manual_seed(seed)
        return Policy(interface, network, exploration)


def _recurrent_core(num_inputs: int, network: Network) -> RecurrentCore | None:
    if network.recurrent == "none":
        return None
    return (Lstm if network.recurrent == "lstm" else Gru)(num_inputs, network.recurrent_size)
