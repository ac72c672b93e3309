"""The mathematics of learning from scored texts, as pure functions; [B, C] is a row per completion, a column per token.

Online DPO: https://arxiv.org/abs/2402.04792, RLOO: https://arxiv.org/abs/2402.14740, GRPO:
https://arxiv.org/abs/2402.03300, PPO on tokens: https://arxiv.org/abs/2203.02155, all of them with generation and
learning side by side: https://arxiv.org/abs/2410.18252.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def leave_one_out_advantages(scores_GK: Tensor, scored_GK: Tensor) -> Tensor:
    """Each score less the mean of the others of its prompt; zero where there is none, or no other."""
    scores = torch.where(scored_GK, scores_GK, 0.0)
    counts = scored_GK.sum(dim=1, keepdim=True)
    others = (scores.sum(dim=1, keepdim=True) - scores) / (counts - 1).clamp(min=1)
    return torch.where(scored_GK & (counts > 1), scores - others, 0.0)


def group_advantages(scores_GK: Tensor, scored_GK: Tensor, scale: bool, epsilon: float = 1e-4) -> Tensor:
    """Each score less the mean of its prompt's, over their standard deviation if asked for."""
    scores, counts = torch.where(scored_GK, scores_GK, 0.0), scored_GK.sum(dim=1, keepdim=True)
    centred = torch.where(scored_GK, scores - scores.sum(dim=1, keepdim=True) / counts.clamp(min=1), 0.0)
    if not scale:
        return centred
    variance = centred.square().sum(dim=1, keepdim=True) / (counts - 1).clamp(min=1)
    return centred / (variance.sqrt() + epsilon)


def best_and_worst(scores_GK: Tensor, scored_GK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each prompt: the places of its best and its worst completion, and whether one is better than the other."""
    best = torch.where(scored_GK, scores_GK, -torch.inf).argmax(dim=1)
    worst = torch.where(scored_GK, scores_GK, torch.inf).argmin(dim=1)
    places = torch.stack([best, worst], dim=1)
    best_score, worst_score = scores_GK.gather(1, places).unbind(dim=1)
    both_scored = scored_GK.gather(1, places).all(dim=1)
    return best, worst, both_scored & (best_score > worst_score)


def clipped_surrogate(ratios: Tensor, advantages: Tensor, epsilon: float) -> Tensor:
    """What PPO minimises: the worse of the ratio and the clipped ratio, times the advantage, negated."""
    return -torch.min(ratios * advantages, ratios.clamp(1 - epsilon, 1 + epsilon) * advantages)


def truncated_importance_loss(log_ratios: Tensor, log_probs: Tensor, advantages: Tensor, cap: float) -> Tensor:
    """The policy gradient's loss, with the importance weight of old data cut off at `cap`."""
    weights = log_ratios.detach().exp().clamp(max=cap)
    return -weights * advantages * log_probs


def preference_loss(margins: Tensor, beta: float, kind: str) -> Tensor:
    """DPO's loss of how much more than the reference the policy prefers the better completion, [pairs].

    sigmoid: https://arxiv.org/abs/2305.18290; ipo: https://arxiv.org/abs/2310.12036.
    """
    if kind == "ipo":
        return (margins - 1 / (2 * beta)).square()
    return -F.logsigmoid(beta * margins)


def low_variance_kl(log_probs: Tensor, ref_log_probs: Tensor) -> Tensor:
    """An estimate of the KL divergence from the reference that is never negative, per token."""
    log_ratios = ref_log_probs - log_probs
    return log_ratios.exp() - log_ratios - 1


def token_rewards(
    scores: Tensor, kl_BC: Tensor, num_tokens: Tensor, beta: float, turn_rewards_BC: Tensor | None = None
) -> Tensor:
    """[B, C]: the score at a completion's last token, and what moving away from the reference costs at each.

    What an environment gave for earlier turns is part of the score, and counts where it was given.
    """
    rewards = -beta * kl_BC
    if turn_rewards_BC is not None:
        rewards, scores = rewards + turn_rewards_BC, scores - turn_rewards_BC.sum(dim=1)
    last = (num_tokens - 1).clamp(min=0)[:, None]
    return rewards.scatter_add(1, last, scores[:, None])


def token_advantages(rewards_BC: Tensor, values_BC: Tensor, mask_BC: Tensor, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimates along each completion; nothing follows its last token, and what an environment
    wrote in between is part of where the model's next token is drawn."""
    advantages, following = torch.zeros_like(rewards_BC), torch.zeros_like(rewards_BC[:, 0])
    next_values = torch.zeros_like(following)
    for t in reversed(range(rewards_BC.shape[1])):
        inside = mask_BC[:, t]
        error = rewards_BC[:, t] + gamma * next_values - values_BC[:, t]
        following = torch.where(inside, error + gamma * lam * following, following)
        advantages[:, t] = torch.where(inside, following, 0.0)
        next_values = torch.where(inside, values_BC[:, t], next_values)
    return advantages


def whitened(x: Tensor, mask: Tensor, epsilon: float = 1e-8) -> Tensor:
    """With mean 0 and variance 1 over the masked places; 0 elsewhere."""
    chosen = x[mask]
    if not len(chosen):
        return torch.zeros_like(x)
    mean, variance = chosen.mean(), chosen.var(correction=0)
    return torch.where(mask, (x - mean) * torch.rsqrt(variance + epsilon), 0.0)
