"""What the tests of PPO share: rows of a minibatch by hand, a small policy, batches that it might have made."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from updates import PPOProgress

from htsrl.algorithms.batch import Batch
from htsrl.algorithms.ppo import PPO
from htsrl.algorithms.ppo.algorithm import Clips, Minibatch
from htsrl.algorithms.returns import Transitions
from htsrl.config import Network
from htsrl.policies.policy import Policy, build_policy

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
NUM_STEPS, NUM_ENVS = 8, 4
CLIP = 0.2
RAW = PPO(normalize_advantages=False)


def rows(
    log_probs: Tensor, advantages: Tensor, values: Tensor | None = None, returns: Tensor | None = None
) -> Minibatch:
    """Steps that all took action 0."""
    zeros = torch.zeros(len(advantages))
    values, returns = zeros if values is None else values, zeros if returns is None else returns
    return Minibatch(zeros.long(), log_probs, log_probs, values, advantages, returns)


def clips(settings: PPO) -> Clips:
    return Clips(CLIP, settings.value_clip_range)


def small_policy() -> Policy:
    return build_policy(OBSERVATIONS, spaces.Discrete(4), Network(hidden_sizes=(8,)), seed=1)


def batch_of(behaviour: Policy) -> Batch:
    """Steps that `behaviour` might have made, with rewards out of the blue."""
    shape = (NUM_STEPS, NUM_ENVS)
    obs = torch.randn(*shape, 3)
    with torch.no_grad():
        distribution, values = behaviour({"obs": obs.flatten(0, 1)})
        actions = distribution.sample(torch.randn(NUM_STEPS * NUM_ENVS, 4))
        log_probs = distribution.log_prob(actions)
    ends = torch.zeros(shape, dtype=torch.bool)
    rewards_TB, values_TB, next_values_TB = torch.randn(shape), values.view(shape), torch.randn(shape)
    next_values_TB[:-1] = values_TB[1:]
    steps = Transitions(rewards_TB, values_TB, next_values_TB, ends, ends)
    return Batch({"obs": obs}, actions.view(shape), log_probs.view(shape), steps)


def progress(learning_rate: float = 0.01, clip_range: float = CLIP, update: int = 0) -> PPOProgress:
    return PPOProgress(1, update, learning_rate, clip_range)


def divergence(policy: Policy, batch: Batch) -> float:
    with torch.no_grad():
        distribution, _ = policy({"obs": batch.observations["obs"].flatten(0, 1)})
        log_ratio = distribution.log_prob(batch.actions.flatten()) - batch.log_probs.flatten()
    return float((log_ratio.exp() - 1 - log_ratio).mean())
