"""A3C-TD(0) (https://arxiv.org/abs/2012.15511): N workers share an actor and a critic, every transition is an update.

    delta    = r + gamma * V(s') - V(s)                          with the parameters that the worker read
    omega   <- project(omega + beta_k * delta * grad V(s))       beta_k  = c2 / (1 + k)^0.4
    theta   <- theta + alpha_k * delta * grad log pi(a | s)      alpha_k = c1 / (1 + k)^0.6

A worker is an environment, and what it read is the version that acted in it. The transitions of an interval become
updates one after another, in the order of steps and of environments. So the gradient of update k is older than the
parameters that it moves by at most N * (lag + 1) - 1 updates with one step in an interval, whoever was fast or slow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from htsrl.algorithms.algorithm import Metrics, RunFacts, Update
from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.draft import Draft
from htsrl.algorithms.objective import BatchObjective, PolicyOutputs
from htsrl.algorithms.returns import Transitions
from htsrl.algorithms.statistics import Statistics
from htsrl.errors import ConfigError
from htsrl.policies.policy import Policy

CRITIC = ("value_encoder.", "value_head.")
"""How the names of the critic's own parameters begin."""


def td_errors(steps: Transitions, discount: float) -> Tensor:
    """`[T, B]`: delta of every step; a terminated one has no future, a truncated one has."""
    has_future_TB = (~steps.terminated_TB).float()
    return steps.rewards_TB + discount * has_future_TB * steps.next_values_TB - steps.values_TB


class Steps(NamedTuple):
    """How far each transition moves the parameters along its gradients, an entry for each of the flattened steps."""

    actor: Tensor
    """alpha_k * delta: along grad log pi."""
    critic: Tensor
    """beta_k * delta: along grad V."""


class Loss(NamedTuple):
    """What descends by gradients with a learning rate of 1, and what is shown."""

    total: Tensor
    entropy: Tensor


class A3CObjective(BatchObjective[Steps]):
    """The two step sizes are in the loss, so that one plain step of descent moves actor and critic, each by its own."""

    num_parts = len(Loss._fields)

    def loss(self, seen: PolicyOutputs) -> Loss:
        rows, actions, distribution, values = seen
        actor = self.targets.actor[rows] * distribution.log_prob(actions)
        critic = self.targets.critic[rows] * values
        return Loss(-(actor + critic).mean(), distribution.entropy().mean())


class A3CTD0:
    """One update for each transition, its gradient taken where the worker read."""

    @dataclass(frozen=True)
    class Settings:
        """A3C with a TD(0) critic: an update for each transition, at two step sizes that fall at two rates."""

        name: ClassVar[str] = "a3c_td0"
        default_sync_interval: ClassVar[int] = 1
        optimizer: ClassVar[str] = "sgd"

        actor_step_size: float = 0.05
        """c1: the actor's step in the first update."""
        critic_step_size: float = 0.2
        """c2: the critic's step in the first update."""
        actor_exponent: float = 0.6
        """The actor's step in update k is c1 / (1 + k) to this power."""
        critic_exponent: float = 0.4
        """The critic's step in update k is c2 / (1 + k) to this power; below the actor's, so that the critic is the
        faster of the two."""
        critic_radius: float | None = None
        """The critic's parameters are projected onto a ball of this radius around 0. None: they are not."""
        discount: float = 0.99
        """Gamma: what a reward one step later is worth."""

    Targets = Steps
    differentiates_at_behaviour = True

    def __init__(self, settings: Settings, run: RunFacts) -> None:
        self._settings = settings
        self._run = run

    def check(self) -> None:
        settings, run = self._settings, self._run
        for name in ("actor_step_size", "critic_step_size"):
            if (size := getattr(settings, name)) <= 0:
                raise ConfigError(f"{name}={size} must be above 0")
        if not 0 <= settings.critic_exponent <= settings.actor_exponent <= 1:
            raise ConfigError(
                f"actor_exponent={settings.actor_exponent} and critic_exponent={settings.critic_exponent} must be from "
                "0 to 1, and the critic's no larger, for it has to follow the actor; use 0.6 and 0.4"
            )
        if settings.critic_radius is not None and settings.critic_radius <= 0:
            raise ConfigError(f"critic_radius={settings.critic_radius} must be above 0, or None for no projection")
        if run.mixes_versions:
            raise ConfigError(
                "a3c_td0 takes gradients at the version that a worker read, and under schedule=async nobody knows "
                "which that was; use schedule=hts, whose lag K lets workers be as far behind as you like"
            )
        if run.gradient_shards > 1:
            raise ConfigError(
                f"gradient_shards={run.gradient_shards} would cut gradients of a single transition; use 1"
            )
        if run.sequence_steps > 1:
            raise ConfigError(
                f"a3c_td0 learns from single transitions, and a recurrent policy from {run.sequence_steps} steps "
                "in a row; use backpropagation_length=1, or recurrent='none'"
            )

    def objective(self, update: Update, batch: Batch, targets: Steps) -> A3CObjective:
        return A3CObjective(batch, targets, sequence_steps=1)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> Metrics:
        read = update.behaviour
        assert read is not None, "the version that the workers read is known, or the run was refused"
        errors = flat_steps(td_errors(batch.steps, self._settings.discount))
        actor_steps, critic_steps = self.step_sizes(update.number, len(errors))
        targets = draft.targets(Steps, len(errors))
        targets.actor.copy_(actor_steps * errors)
        targets.critic.copy_(critic_steps * errors)
        objective = self.objective(update, batch, targets)
        statistics = Statistics()
        for transition in range(len(objective.sequences.starts)):
            loss = Loss(*draft.differentiate(objective, read, slice(transition, transition + 1)))
            length = draft.clip(math.inf)  # looks whether it is finite, and cuts nothing off
            draft.step(learning_rate=1.0)
            self._project(draft.policy)
            statistics.add("train/entropy_loss", -loss.entropy)
            statistics.add("train/step_length", length)
        learned = errors[batch.learned_rows()]
        return {
            "train/actor_step_size": actor_steps[0].item(),
            "train/critic_step_size": critic_steps[0].item(),
            "train/td_error": learned.square().mean().item(),
            **statistics.means(),
        }

    def step_sizes(self, update: int, num_rows: int) -> tuple[Tensor, Tensor]:
        """alpha_k and beta_k of the rows of an interval.

        k follows from the interval's number and the row's place, so that a run that is resumed has nothing to remember;
        rows of agents that took no part are counted, and change nothing.
        """
        settings = self._settings
        counted = 1.0 + update * num_rows + torch.arange(num_rows, dtype=torch.float64)
        actor = settings.actor_step_size * counted**-settings.actor_exponent
        critic = settings.critic_step_size * counted**-settings.critic_exponent
        return actor.float(), critic.float()

    @torch.no_grad()
    def _project(self, policy: Policy) -> None:
        if self._settings.critic_radius is None:
            return
        critic = [parameter for name, parameter in policy.named_parameters() if name.startswith(CRITIC)]
        length = torch.stack([parameter.square().sum() for parameter in critic]).sum().sqrt()
        scale = (self._settings.critic_radius / length).clamp(max=1.0)
        for parameter in critic:
            parameter.mul_(scale)
