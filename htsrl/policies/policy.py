"""The actor-critic policy: encoder, action head, value head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from gymnasium import spaces
from torch import Tensor, nn

from htsrl.config import Experiment, Network
from htsrl.errors import ConfigError
from htsrl.policies.distributions import Categorical, DiagonalGaussian, Distribution
from htsrl.policies.encoders import Mlp, NatureCnn, orthogonal
from htsrl.policies.normalization import ObservationScale, RewardScale
from htsrl.seeding import network_seed
from htsrl.spaces import ActionLeaf, ObservationLeaf, action_leaf, observation_leaves

Observations = Mapping[str, Tensor]
"""Observation fields by name, a row per environment or step."""


class Decision(NamedTuple):
    """What an actor answers."""

    actions: Tensor
    log_probs: Tensor
    values: Tensor


class Policy(nn.Module):
    """Maps observations to a distribution over actions and a value."""

    def __init__(self, observation: ObservationLeaf, action: ActionLeaf, network: Network) -> None:
        super().__init__()
        self.encoder = _encoder(observation, network)
        convolutional = isinstance(self.encoder, NatureCnn)
        separate = not convolutional if network.separate_value is None else network.separate_value
        self.value_encoder = _encoder(observation, network) if separate else None
        self.observation = observation
        self.observation_scale = _observation_scale(observation) if network.normalize_observations else None
        self.reward_scale: RewardScale | None = None
        self._action = action
        num_outputs = action.num_categories or action.noise.columns
        self.action_head = orthogonal(nn.Linear(self.encoder.num_features, num_outputs), 0.01)
        self.value_head = orthogonal(nn.Linear(self.encoder.num_features, 1), 1.0)
        if action.num_categories is None:
            self.log_std = nn.Parameter(torch.full(action.shape, network.initial_log_std))

    def forward(self, observations: Observations) -> tuple[Distribution, Tensor]:
        action_outputs, value_outputs = self._outputs(observations)
        return self._distribution(action_outputs), value_outputs.squeeze(-1)

    def outputs(self, observations: Observations) -> Tensor:
        """What the heads say, before it becomes a distribution and a value."""
        return torch.cat(self._outputs(observations), dim=1)

    def _outputs(self, observations: Observations) -> tuple[Tensor, Tensor]:
        obs = observations["obs"] if self.observation_scale is None else self.observation_scale(observations["obs"])
        features = self.encoder(obs)
        value_features = features if self.value_encoder is None else self.value_encoder(obs)
        return self.action_head(features), self.value_head(value_features)

    def decide(self, observations: Observations, noise: Tensor) -> Decision:
        distribution, values = self(observations)
        actions = distribution.sample(noise)
        return Decision(actions, distribution.log_prob(actions), values)

    def _distribution(self, outputs: Tensor) -> Distribution:
        if self._action.num_categories is not None:
            return Categorical(outputs)
        return DiagonalGaussian(outputs.view(-1, *self._action.shape), self.log_std)


def policy_for(
    experiment: Experiment,
    observation_space: spaces.Space[object],
    action_space: spaces.Space[object],
    num_columns: int = 0,
) -> Policy:
    """The policy that an experiment starts with; `num_columns` is how many agents it will be trained with at once."""
    policy = build_policy(observation_space, action_space, experiment.network, network_seed(experiment.seed))
    if experiment.algorithm.normalize_rewards:
        policy.reward_scale = RewardScale(num_columns)
    return policy


def build_policy(
    observation_space: spaces.Space[object], action_space: spaces.Space[object], network: Network, seed: int
) -> Policy:
    """A policy for these spaces, initialised from `seed` without touching torch's global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        observation = observation_leaves(observation_space)["obs"]
        return Policy(observation, action_leaf(action_space), network)


def _observation_scale(observation: ObservationLeaf) -> ObservationScale:
    if not observation.dtype.startswith("float"):
        kind = "categories" if observation.num_categories is not None else observation.dtype
        raise ConfigError(
            f"normalize_observations=True needs observations of floats, not {kind}; "
            "turn it off with --no-normalize-observations (bytes are divided by 255 anyway)"
        )
    return ObservationScale(observation.shape)


def _encoder(observation: ObservationLeaf, network: Network) -> Mlp | NatureCnn:
    if network.encoder == "nature_cnn" or (network.encoder == "auto" and observation.is_image):
        return NatureCnn(observation)
    return Mlp(observation, network.hidden_sizes, network.activation)
