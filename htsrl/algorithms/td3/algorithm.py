"""TD3: twin delayed deep deterministic policy gradient (https://arxiv.org/abs/1802.09477).

    y        = r + gamma min Q'(s', pi'(s') + e),   e ~ N(0, target noise), cut off
    critics  minimise (Q(s, a) - y)^2, each of the two
    policy   minimises -Q1(s, pi(s)), and target networks move by tau: every `policy_delay` gradient steps
    acts     pi(s) + e,                             e ~ N(0, exploration noise)

Noise is that of actions in [-1, 1]. What is stored is an action as it was drawn, in the environment's numbers; it is
cut off at the bounds on its way to the environment and before critics see it.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.critics import Critics
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.minibatch_objective import NoTargets
from htsrl.algorithms.models import Model, Models, with_target
from htsrl.algorithms.off_policy import (
    ReplayObjective,
    check_bounded_box,
    check_network,
    check_replay,
    check_vectors,
    gradient_steps,
    mean_over_rows,
    scaled,
)
from htsrl.algorithms.statistics import Statistics
from htsrl.algorithms.td3.settings import TD3
from htsrl.config import Network
from htsrl.policies.exploration import Exploration
from htsrl.policies.policy import Policy
from htsrl.seeding import ActionNoise
from htsrl.spaces import Interface


class Bounds(nn.Module):
    """The box of actions as [-1, 1] in every dimension."""

    centre: Tensor
    half_range: Tensor

    def __init__(self, interface: Interface) -> None:
        super().__init__()
        low, high = (torch.from_numpy(x) for x in (interface.actions.low, interface.actions.high))
        self.register_buffer("centre", (high / 2 + low / 2).float(), persistent=False)
        self.register_buffer("half_range", (high / 2 - low / 2).float(), persistent=False)

    def forward(self, actions: Tensor) -> Tensor:
        """From the environment's numbers to [-1, 1], at whose ends they are cut off."""
        return ((actions - self.centre) / self.half_range).clamp(-1, 1)

    def from_unit(self, actions: Tensor) -> Tensor:
        """The way back."""
        return self.centre + self.half_range * actions


class Deviation(nn.Module):
    """Of the noise on actions in [-1, 1]; a part of the policy's version."""

    holds_statistics = True
    value: Tensor

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.register_buffer("value", torch.tensor(initial, dtype=torch.float64))


class NoisyActions(Exploration):
    """What the policy means to do, within the bounds, and normal noise around it."""

    def __init__(self, interface: Interface, initial_deviation: float) -> None:
        super().__init__()
        self.bounds = Bounds(interface)
        self.deviation = Deviation(initial_deviation)

    def means_and_log_stds(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        means = self.bounds.from_unit(outputs.tanh())
        return means, (self.deviation.value.to(outputs.dtype) * self.bounds.half_range).log()


class Minibatch(NamedTuple):
    """Transitions drawn from the replay buffer, and noise for what the target policy does behind them."""

    observations: dict[str, Tensor]
    actions: Tensor
    rewards: Tensor
    next_observations: dict[str, Tensor]
    discounts: Tensor
    next_noise: Tensor
    weights: Tensor | None = None
    numbers: Tensor | None = None


class TD3Objective(ReplayObjective[TD3, Minibatch]):
    """The losses of critics and policy."""

    def _critics_loss(self, models: Models, data: Minibatch) -> tuple[Tensor, ...]:
        with torch.no_grad():
            actions = self._smoothed(cast(Policy, models["target_policy"]), data)
            following = models["target_critics"](scaled(models.policy, data.next_observations), actions).amin(dim=0)
            targets = data.rewards + data.discounts * following
        values = models["critics"](scaled(models.policy, data.observations), data.actions)
        self.note_errors(data.numbers, (values - targets).abs().mean(dim=0))
        return mean_over_rows((values - targets).square(), data.weights).sum(), values.mean(), targets.mean()

    def _policy_loss(self, models: Models, data: Minibatch) -> tuple[Tensor, ...]:
        actions = intended(models.policy, data.observations)
        values = models["critics"](scaled(models.policy, data.observations), actions)[0]
        return -values.mean(), values.mean(), values.mean()

    def _smoothed(self, target_policy: Policy, data: Minibatch) -> Tensor:
        """What the target policy does next, and some noise, so that no sharp peak of a critic is aimed at."""
        settings, bounds = self._settings, exploration_in(target_policy).bounds
        noise = (data.next_noise * settings.target_noise).clamp(-settings.target_noise_clip, settings.target_noise_clip)
        return intended(target_policy, data.next_observations) + noise * bounds.half_range

    def _draw(self, noise: ActionNoise, device: torch.device) -> Minibatch:
        found = self._transitions(device)
        return Minibatch(*found[:5], self._noise(noise, 0, 1, device), found.weights, found.numbers)


class TD3Algorithm:
    """Gradient steps on minibatches of the replay buffer, so many for every step of an environment."""

    Settings = TD3
    Targets = NoTargets
    differentiates_at_behaviour = False

    def __init__(self, settings: TD3, run: RunFacts) -> None:
        self._settings = settings
        self._run = run

    def check(self) -> None:
        check_replay("TD3", self._settings, self._run)

    def exploration(self, interface: Interface) -> NoisyActions:
        check_bounded_box("TD3", interface)
        settings = self._settings
        starts_at_once = settings.learning_starts == 0
        return NoisyActions(
            interface, settings.exploration_noise if starts_at_once else settings.initial_exploration_noise
        )

    def models(self, interface: Interface, network: Network) -> dict[str, Model]:
        check_vectors("TD3", interface)
        check_network("TD3", network)

        def critics() -> Critics:
            return Critics(interface, network, Bounds(interface))

        def policy() -> Policy:
            return Policy(interface, network, self.exploration(interface))

        return {
            **with_target("critics", critics),
            "target_policy": Model(policy, optimizer=None, copies="policy"),
        }

    def objective(self, update: Update, batch: Batch, targets: NoTargets) -> TD3Objective:
        assert batch.replay_buffer is not None
        return TD3Objective(self._settings, self._run.seed, update.number, batch.replay_buffer)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        settings, statistics = self._settings, Statistics()
        objective = self.objective(update, batch, NoTargets())
        steps = gradient_steps(settings, update.number, batch.log_probs.numel())
        for objective.epoch, step in enumerate(steps):
            critics = objective.minimise("critics", draft, settings.learning_rate)
            objective.revise_priorities()
            statistics.add("train/critic_loss", critics[0])
            statistics.add("train/q_value", critics[1])
            if (step + 1) % settings.policy_delay == 0:
                policy = objective.minimise("policy", draft, settings.learning_rate)
                draft.follow("target_critics", settings.follow_rate)
                draft.follow("target_policy", settings.follow_rate)
                statistics.add("train/policy_loss", policy[0])
        deviation = exploration_in(draft.policy).deviation.value
        if (update.number + 1) * batch.log_probs.numel() >= settings.learning_starts:
            deviation.fill_(settings.exploration_noise)
        return statistics.means() | {"train/exploration_noise": deviation.item()}


def intended(policy: Policy, observations: dict[str, Tensor]) -> Tensor:
    """What the policy does without noise, differentiable."""
    distribution, _ = policy.forward(observations)
    return distribution.mode()


def exploration_in(policy: Policy) -> NoisyActions:
    return cast(NoisyActions, policy.exploration)
