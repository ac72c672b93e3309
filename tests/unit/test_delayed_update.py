"""PPO's whole update from the version that acted, its displacement applied to the newest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from gymnasium import spaces
from ppo_batches import NUM_ENVS, NUM_STEPS, OBSERVATIONS, batch_of, small_policy
from recorded_draft import recorded_draft
from torch import Tensor
from updates import improve

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.delayed_update import delayed
from htsrl.algorithms.ppo import PPO
from htsrl.config import Experiment, Network
from htsrl.policies.policy import Policy, build_policy

pytestmark = pytest.mark.usefixtures("fixed_seed")


def experiment(algorithm: A2C | PPO) -> Experiment:
    return Experiment("any", algorithm=algorithm, num_envs=NUM_ENVS, sync_interval=NUM_STEPS, total_steps=32)


def moved_copy(policy: Policy, distance: float) -> Policy:
    result = small_policy()
    for parameter, start in zip(result.parameters(), policy.parameters(), strict=True):
        parameter.data = start.detach() + distance * torch.randn_like(start)
    return result


def flat(policy: Policy) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])


def test_the_displacement_is_that_of_an_update_which_starts_where_the_data_were_made() -> None:
    behaviour = small_policy()
    batch, now = batch_of(behaviour), moved_copy(behaviour, 0.3)
    settings = PPO(epochs=3, num_minibatches=2, learning_rate=0.1, value_clip_range=0.1, target_kl=0.05)
    at_behaviour, draft_policy = moved_copy(behaviour, 0.0), moved_copy(now, 0.0)
    plain_draft, plain = recorded_draft(at_behaviour)
    improve(experiment(replace(settings, lag_correction="none")), 0, plain_draft, behaviour, batch)
    draft, optimizer = recorded_draft(draft_policy)
    metrics = improve(experiment(replace(settings, lag_correction="delayed_update")), 0, draft, behaviour, batch)
    assert len(optimizer.gradients) == len(plain.gradients) > 2
    assert all(one.equal(other) for one, other in zip(optimizer.gradients, plain.gradients, strict=True))
    displacement = flat(at_behaviour) - flat(behaviour)
    assert displacement.norm() > 0.01
    assert flat(draft_policy).equal(flat(now) + displacement)
    assert metrics["train/clip_range"] == settings.clip_range


def test_with_one_gradient_it_is_the_delayed_gradient_of_a2c() -> None:
    behaviour = small_policy()
    batch, now = batch_of(behaviour), moved_copy(behaviour, 0.3)
    shared: Any = {"learning_rate": 0.1, "gae_lambda": 0.9, "max_gradient_norm": 1e6}
    ppo = PPO(epochs=1, num_minibatches=1, normalize_advantages=False, lag_correction="delayed_update", **shared)
    ends = []
    for algorithm in (ppo, A2C(lag_correction="delayed_gradient", **shared)):
        policy = moved_copy(now, 0.0)
        improve(experiment(algorithm), 0, recorded_draft(policy)[0], behaviour, batch)
        ends.append(flat(policy))
    assert (ends[0] - flat(now)).norm() > 0.01
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-4, atol=1e-6)


def test_meanwhile_observations_are_scaled_as_they_were_when_acting() -> None:
    network = Network(hidden_sizes=(8,), normalize_observations=True)
    behaviour, policy = (build_policy(OBSERVATIONS, spaces.Discrete(4), network, seed) for seed in (1, 2))
    for scaled, shift in ((behaviour, 0.0), (policy, 5.0)):
        assert scaled.observation_scales is not None
        scaled.observation_scales.take_in({"obs": torch.randn(64, 3) + shift})
    obs = {"obs": torch.randn(5, 3)}
    before = [buffer.clone() for buffer in policy.buffers()]
    with torch.no_grad(), delayed(policy, behaviour):
        assert policy(obs)[1].equal(behaviour(obs)[1])
    assert all(one.equal(other) for one, other in zip(before, policy.buffers(), strict=True))
