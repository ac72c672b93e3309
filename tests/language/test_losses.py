"""Every loss against numbers worked out by hand."""

from __future__ import annotations

import math

import torch

from htsrl.language.losses import (
    best_and_worst,
    clipped_surrogate,
    group_advantages,
    leave_one_out_advantages,
    low_variance_kl,
    preference_loss,
    token_advantages,
    token_rewards,
    truncated_importance_loss,
    whitened,
)

YES = torch.tensor([[True, True, True]])


def test_the_baseline_is_the_mean_of_the_others() -> None:
    advantages = leave_one_out_advantages(torch.tensor([[1.0, 2.0, 6.0]]), YES)
    assert advantages.tolist() == [[1 - 4, 2 - 3.5, 6 - 1.5]]


def test_a_completion_without_a_score_is_nobodys_baseline() -> None:
    advantages = leave_one_out_advantages(torch.tensor([[1.0, 99.0, 6.0]]), torch.tensor([[True, False, True]]))
    assert advantages.tolist() == [[-5.0, 0.0, 5.0]]


def test_a_single_scored_completion_has_no_advantage() -> None:
    assert leave_one_out_advantages(torch.tensor([[3.0, 4.0]]), torch.tensor([[True, False]])).tolist() == [[0.0, 0.0]]


def test_group_advantages_are_centred_and_scaled() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0]])
    assert group_advantages(scores, YES, scale=False).tolist() == [[-1.0, 0.0, 1.0]]
    assert torch.allclose(group_advantages(scores, YES, scale=True, epsilon=0.0), torch.tensor([[-1.0, 0.0, 1.0]]))
    half = group_advantages(torch.tensor([[2.0, 7.0, 4.0]]), torch.tensor([[True, False, True]]), scale=False)
    assert half.tolist() == [[-1.0, 0.0, 1.0]]


def test_best_and_worst_are_found_among_the_scored_and_ties_say_nothing() -> None:
    scores = torch.tensor([[1.0, 5.0, 3.0], [2.0, 2.0, 2.0], [9.0, 1.0, 4.0]])
    scored = torch.tensor([[True, True, True], [True, True, True], [False, True, True]])
    best, worst, differs = best_and_worst(scores, scored)
    assert differs.tolist() == [True, False, True]
    assert (int(best[0]), int(worst[0])) == (1, 0)
    assert (int(best[2]), int(worst[2])) == (2, 1)


def test_the_surrogate_stops_to_count_beyond_the_clip() -> None:
    ratios, up = torch.tensor([0.5, 1.0, 1.5]), torch.tensor([1.0, 1.0, 1.0])
    assert torch.allclose(clipped_surrogate(ratios, up, 0.2), -torch.tensor([0.5, 1.0, 1.2]))
    assert torch.allclose(clipped_surrogate(ratios, -up, 0.2), torch.tensor([0.8, 1.0, 1.5]))


def test_truncated_weights_are_cut_off_and_not_differentiated() -> None:
    log_probs = torch.tensor([-1.0, -1.0], requires_grad=True)
    log_ratios = log_probs - torch.tensor([-1.0, -1.0 - math.log(8)])
    loss = truncated_importance_loss(log_ratios, log_probs, torch.tensor([2.0, 1.0]), cap=3.0)
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert torch.allclose(loss, torch.tensor([2.0, 3.0]))
    assert log_probs.grad is not None
    assert torch.allclose(log_probs.grad, torch.tensor([-2.0, -3.0]))


def test_preference_losses() -> None:
    margins = torch.tensor([0.0, 2.0])
    expected = [math.log(2), math.log(1 + math.exp(-1.0))]
    assert torch.allclose(preference_loss(margins, beta=0.5, kind="sigmoid"), torch.tensor(expected))
    assert torch.allclose(preference_loss(margins, beta=0.5, kind="ipo"), torch.tensor([1.0, 1.0]))


def test_the_kl_estimate_is_never_negative() -> None:
    log_ratios = torch.tensor([-0.5, 0.0, 0.5])  # of the reference to the policy
    expected = [math.exp(x) - x - 1 for x in log_ratios.tolist()]
    assert torch.allclose(low_variance_kl(torch.zeros(3), log_ratios), torch.tensor(expected))
    assert min(expected) == 0


def test_the_score_comes_with_the_last_token() -> None:
    kl = torch.tensor([[0.1, 0.2, 0.0], [0.5, 0.5, 0.5]])
    rewards = token_rewards(torch.tensor([1.0, 2.0]), kl, torch.tensor([2, 3]), beta=0.5)
    assert torch.allclose(rewards, torch.tensor([[-0.05, 0.9, 0.0], [-0.25, -0.25, 1.75]]))


def test_token_advantages_end_with_the_completion() -> None:
    rewards, values = torch.tensor([[0.0, 1.0, 7.0]]), torch.tensor([[0.2, 0.4, 9.0]])
    mask = torch.tensor([[True, True, False]])
    last = 1.0 - 0.4
    first = (0.0 + 0.9 * 0.4 - 0.2) + 0.9 * 0.5 * last
    assert torch.allclose(token_advantages(rewards, values, mask, 0.9, 0.5), torch.tensor([[first, last, 0.0]]))


def test_whitening_looks_at_masked_places_alone() -> None:
    x, mask = torch.tensor([[1.0, 3.0, 100.0]]), torch.tensor([[True, True, False]])
    assert torch.allclose(whitened(x, mask), torch.tensor([[-1.0, 1.0, 0.0]]))


def test_advantages_reach_over_what_an_environment_wrote() -> None:
    drawn = torch.tensor([[True, False, False, True, False]])
    rewards, values = torch.tensor([[1.0, 9.0, 9.0, 2.0, 9.0]]), torch.tensor([[0.5, 7.0, 7.0, 0.25, 7.0]])
    advantages = token_advantages(rewards, values, drawn, gamma=0.5, lam=0.5)
    last = 2.0 - 0.25
    assert advantages.tolist() == [[1.0 + 0.5 * 0.25 - 0.5 + 0.25 * last, 0.0, 0.0, last, 0.0]]


def test_an_environments_rewards_count_where_they_were_given() -> None:
    turns = torch.tensor([[0.0, 0.5, 0.0, 2.0]])
    rewards = token_rewards(torch.tensor([3.0]), torch.zeros(1, 4), torch.tensor([4]), 0.1, turns)
    assert rewards.tolist() == [[0.0, 0.5, 0.0, 2.5]]


def test_nothing_is_whitened_to_nothing() -> None:
    assert whitened(torch.ones(1, 2), torch.zeros(1, 2, dtype=torch.bool)).tolist() == [[0, 0]]
