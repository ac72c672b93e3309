"""DQN (https://doi.org/10.1038/nature14236) with what came after it: double, duelling, n-step, prioritised.

    a*      = argmax Q(s', .)                     of the network that learns (double), or of Q'
    y       = r + gamma Q'(s', a*)
    Q       minimises Huber(Q(s, a) - y)
    Q'      moves towards Q by tau, every `target_period` gradient steps
    acts    argmax Q(s, .), with probability epsilon any action

The action head of the policy gives an output for each action, and its value head one more: of a duelling network
Q = V + A - mean A, of any other the outputs are Q, and nothing is made of the value.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.dqn.settings import DQN
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.minibatch_objective import NoTargets
from htsrl.algorithms.models import Model, Models
from htsrl.algorithms.off_policy import (
    ReplayObjective,
    Transitions,
    check_network,
    check_replay,
    check_single_choice,
    gradient_steps,
    mean_over_rows,
)
from htsrl.algorithms.statistics import Statistics
from htsrl.config import Network
from htsrl.policies.constants import FORBIDDEN
from htsrl.policies.distributions import Categorical, Distribution, masked
from htsrl.policies.exploration import Exploration
from htsrl.policies.policy import Policy
from htsrl.seeding import ActionNoise
from htsrl.spaces import Interface
from htsrl.spaces.observations import MASK_KEY


class GreedyOrRandom:
    """The best allowed action, or with probability epsilon any allowed one, each as likely."""

    def __init__(self, values: Tensor, mask: Tensor | None, epsilon: Tensor) -> None:
        self._best = masked(values, mask).argmax(dim=-1)
        allowed = torch.ones_like(values) if mask is None else mask.to(values.dtype)
        at_random = epsilon / allowed.sum(dim=-1, keepdim=True) * allowed
        is_best = torch.zeros_like(values).scatter(-1, self._best.unsqueeze(-1), 1.0)
        probabilities = at_random + (1 - epsilon) * is_best
        drawn = Categorical(torch.where(probabilities > 0, probabilities.log(), FORBIDDEN))
        self.sample, self.log_prob, self.entropy = drawn.sample, drawn.log_prob, drawn.entropy

    def mode(self) -> Tensor:
        return self._best


class Epsilon(nn.Module):
    """How often to act at random; a part of the policy's version."""

    holds_statistics = True
    value: Tensor

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.register_buffer("value", torch.tensor(initial, dtype=torch.float64))


class EpsilonGreedy(Exploration):
    """Outputs are action values, or differ from them by what is the same for all actions."""

    def __init__(self, initial_epsilon: float) -> None:
        super().__init__()
        self.epsilon = Epsilon(initial_epsilon)

    def choice(self, outputs: Tensor, mask: Tensor | None) -> Distribution:
        return GreedyOrRandom(outputs, mask, self.epsilon.value.to(outputs.dtype))


class DQNObjective(ReplayObjective[DQN, Transitions]):
    """The loss of the action values."""

    def _policy_loss(self, models: Models, data: Transitions) -> tuple[Tensor, ...]:
        with torch.no_grad():
            targets = data.rewards + data.discounts * self._following(models, data.next_observations)
        values = of_actions(self._values(models.policy, data.observations), data.actions)
        self.note_errors(data.numbers, (values - targets).abs())
        losses = huber_loss(values, targets, reduction="none")
        return mean_over_rows(losses, data.weights), values.mean(), targets.mean()

    def _following(self, models: Models, observations: dict[str, Tensor]) -> Tensor:
        """What the target network expects of the best action."""
        target_values = self._values(cast(Policy, models["target"]), observations)
        judged = self._values(models.policy, observations) if self._settings.double else target_values
        return of_actions(target_values, masked(judged, observations.get(MASK_KEY)).argmax(dim=-1))

    def _values(self, policy: Policy, observations: dict[str, Tensor]) -> Tensor:
        return action_values(policy.outputs(observations), self._settings.duelling)

    def _draw(self, noise: ActionNoise, device: torch.device) -> Transitions:
        return self._transitions(device)


class DQNAlgorithm:
    """Gradient steps on minibatches of the replay buffer, so many for every step of an environment."""

    Settings = DQN
    Targets = NoTargets
    differentiates_at_behaviour = False

    def __init__(self, settings: DQN, run: RunFacts) -> None:
        self._settings = settings
        self._run = run

    def check(self) -> None:
        check_replay("DQN", self._settings, self._run)

    def exploration(self, interface: Interface) -> EpsilonGreedy:
        check_single_choice("DQN", interface)
        return EpsilonGreedy(self._settings.initial_epsilon)

    def models(self, interface: Interface, network: Network) -> dict[str, Model]:
        check_network("DQN", network, own_network=True)

        def policy() -> Policy:
            return Policy(interface, network, self.exploration(interface))

        return {"target": Model(policy, optimizer=None, copies="policy")}

    def objective(self, update: Update, batch: Batch, targets: NoTargets) -> DQNObjective:
        assert batch.replay_buffer is not None
        return DQNObjective(self._settings, self._run.seed, update.number, batch.replay_buffer)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        settings, statistics, num_new = self._settings, Statistics(), batch.log_probs.numel()
        objective = self.objective(update, batch, NoTargets())
        for objective.epoch, step in enumerate(gradient_steps(settings, update.number, num_new)):
            loss, value, target = draft.differentiate(objective, draft.models, objective.everything)
            objective.revise_priorities()
            norm = draft.clip(settings.max_gradient_norm)
            draft.step(settings.learning_rate)
            if (step + 1) % settings.target_period == 0:
                draft.follow("target", settings.follow_rate)
            statistics.add("train/loss", loss)
            statistics.add("train/q_value", value)
            statistics.add("train/target_value", target)
            statistics.add("train/gradient_norm", norm)
        epsilon = epsilon_after(settings, (update.number + 1) * num_new)
        cast(EpsilonGreedy, draft.policy.exploration).epsilon.value.fill_(epsilon)
        return statistics.means() | {"train/epsilon": epsilon}


def action_values(outputs: Tensor, duelling: bool) -> Tensor:
    """From the outputs of a policy: one for each action, and the value."""
    advantages, value = outputs[:, :-1], outputs[:, -1:]
    return value + advantages - advantages.mean(dim=1, keepdim=True) if duelling else advantages


def of_actions(values: Tensor, actions: Tensor) -> Tensor:
    return values.gather(1, actions.unsqueeze(1)).squeeze(1)


def epsilon_after(settings: DQN, steps: int) -> float:
    """Of the version that has learned from so many steps."""
    progress = min(steps / settings.exploration_steps, 1.0) if settings.exploration_steps else 1.0
    return settings.initial_epsilon + progress * (settings.final_epsilon - settings.initial_epsilon)
