"""An update of PPO: its epochs and minibatches, what it anneals, and where it stops."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from ppo_batches import NUM_ENVS, NUM_STEPS, batch_of, divergence, progress, small_policy
from recorded_draft import RecordingSgd, recorded_draft
from torch import Tensor
from updates import improve, ppo_update

from htsrl.algorithms.ppo import PPO
from htsrl.algorithms.ppo.algorithm import PPOObjective
from htsrl.algorithms.returns import gae
from htsrl.config import Experiment
from htsrl.policies.policy import Policy

pytestmark = pytest.mark.usefixtures("fixed_seed")


def test_every_minibatch_is_one_step_and_every_gradient_is_clipped() -> None:
    policy = small_policy()
    draft, optimizer = recorded_draft(policy)
    settings = PPO(epochs=2, num_minibatches=8, max_gradient_norm=0.01)
    metrics = ppo_update(settings, draft, batch_of(policy), NUM_STEPS, progress())
    assert [gradient.norm().item() for gradient in optimizer.gradients] == pytest.approx([0.01] * 16, rel=1e-3)
    assert metrics["train/gradient_norm"] > 0.1


def test_every_shard_and_every_step_is_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, signs = small_policy(), list[str]()
    draft, optimizer = recorded_draft(policy)
    monkeypatch.setattr(draft._gradient.shards, "beat", lambda: signs.append("beat"))
    monkeypatch.setattr(optimizer, "step", lambda learning_rate: signs.append("step"))
    ppo_update(PPO(epochs=1, num_minibatches=2), draft, batch_of(policy), NUM_STEPS, progress())
    assert signs == ["beat", "step", "beat"] * 2


def test_every_epoch_visits_every_step_once_in_its_own_order() -> None:
    policy = small_policy()
    draft, _ = recorded_draft(policy)
    batch = batch_of(policy)
    seen: list[Tensor] = []
    policy.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]["obs"][:, 0]))
    ppo_update(PPO(epochs=3, num_minibatches=4), draft, batch, NUM_STEPS, progress())
    assert [len(minibatch) for minibatch in seen] == [8] * 12
    epochs = [torch.cat(seen[first : first + 4]) for first in (0, 4, 8)]
    for epoch in epochs:
        assert torch.equal(epoch.sort().values, batch.observations["obs"][..., 0].flatten().sort().values)
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[1], epochs[2])


@pytest.mark.parametrize(("over", "epsilon"), [("minibatch", 1e-8), ("batch", 1e-5)])
def test_advantages_are_normalized_by_minibatch_or_once_over_the_batch(
    over: Literal["minibatch", "batch"], epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What every gradient of both epochs aims at, against NumPy's deviation with n - 1 under its root."""
    policy, aims = small_policy(), list[tuple[Tensor, Tensor]]()
    batch, (draft, _) = batch_of(policy), recorded_draft(policy)
    differentiate = draft.differentiate

    def watched(objective: PPOObjective, at: Policy, chosen: Tensor) -> Tensor:
        aims.append((chosen, objective.targets.advantages[chosen].clone()))
        return differentiate(objective, at, chosen)

    monkeypatch.setattr(draft, "differentiate", watched)
    settings = PPO(epochs=2, num_minibatches=4, advantage_normalization=over)
    ppo_update(settings, draft, batch, NUM_STEPS, progress())
    raw = gae(batch.steps, settings.discount, settings.gae_lambda, NUM_STEPS).flatten().double().numpy()
    for rows, aim in aims:
        whole = raw if over == "batch" else raw[rows]
        expected = (raw[rows] - whole.mean()) / (whole.std(ddof=1) + epsilon)
        np.testing.assert_allclose(aim.numpy(), expected, rtol=1e-4, atol=1e-5)
    assert len(aims) == 8


def test_an_update_stops_before_the_step_that_would_leave_the_target_divergence() -> None:
    behaviour = small_policy()
    batch = batch_of(behaviour)
    settings = PPO(epochs=10, num_minibatches=1, max_gradient_norm=100.0)

    def final_policy(settings: PPO, learning_rate: float = 0.2) -> tuple[Policy, RecordingSgd, dict[str, float]]:
        policy = small_policy()
        draft, optimizer = recorded_draft(policy)
        metrics = ppo_update(settings, draft, batch, NUM_STEPS, progress(learning_rate))
        return policy, optimizer, metrics

    divergences = [
        divergence(final_policy(replace(settings, epochs=epochs))[0], batch) for epochs in range(1, settings.epochs + 1)
    ]
    target = divergences[3] / 1.5 * 0.999  # the policy after the fourth step is just too far
    assert max(divergences[:3]) < 1.5 * target
    policy, optimizer, _ = final_policy(replace(settings, target_kl=target))
    assert len(optimizer.gradients) == 4
    assert divergence(policy, batch) == divergences[3]
    _, optimizer, _ = final_policy(replace(settings, target_kl=divergences[3] / 1.5 * 1.001))
    assert len(optimizer.gradients) > 4
    _, optimizer, _ = final_policy(replace(settings, target_kl=1e9))
    assert len(optimizer.gradients) == 10


@pytest.mark.parametrize("anneals", [True, False])
def test_learning_rate_and_clip_range_fall_linearly_to_zero_or_stay(anneals: bool) -> None:
    settings = PPO(
        learning_rate=0.2,
        clip_range=0.4,
        anneal_learning_rate=anneals,
        anneal_clip_range=anneals,
        epochs=1,
        num_minibatches=2,
    )
    experiment = Experiment("any", algorithm=settings, num_envs=NUM_ENVS, sync_interval=NUM_STEPS, total_steps=8 * 32)
    policy = small_policy()
    draft, optimizer = recorded_draft(policy)
    metrics = [improve(experiment, update, draft, policy, batch_of(policy)) for update in (0, 6)]
    factor = 0.25 if anneals else 1.0
    assert experiment.num_intervals == 8
    assert optimizer.learning_rates == pytest.approx([0.2, 0.2, 0.2 * factor, 0.2 * factor])
    assert [m["train/learning_rate"] for m in metrics] == pytest.approx([0.2, 0.2 * factor])
    assert [m["train/clip_range"] for m in metrics] == pytest.approx([0.4, 0.4 * factor])


def test_the_annealed_clip_range_is_the_one_that_clips() -> None:
    fractions = []
    for clip_range in (1e-4, 10.0):
        policy = small_policy()
        draft, _ = recorded_draft(policy)
        settings = PPO(epochs=4, num_minibatches=4)
        metrics = ppo_update(settings, draft, batch_of(policy), NUM_STEPS, progress(clip_range=clip_range))
        fractions.append(metrics["train/clip_fraction"])
    assert fractions[0] > 0.5
    assert fractions[1] == 0
