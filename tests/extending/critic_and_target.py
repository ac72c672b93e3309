"""An actor-critic with four models, for tests: policy, critic, its target network and a temperature.

The critic learns by TD(0) towards the target network's values of what truly followed each step, and the entropy bonus
is weighed by a temperature that learns too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import gymnasium
import torch
from torch import Tensor, nn

from htsrl.extending import (
    Batch,
    BatchObjective,
    Chosen,
    Draft,
    Model,
    Models,
    PolicyOutputs,
    RunFacts,
    Update,
    final_observations,
    flat_steps,
    step_info,
)


class Critic(nn.Module):
    def __init__(self, num_inputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(num_inputs, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, observations: Tensor) -> Tensor:
        values: Tensor = self.layers(observations).squeeze(-1)
        return values


class Temperature(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(-3.0))


class CriticTargets(NamedTuple):
    returns: Tensor
    advantages: Tensor


class Objective(BatchObjective[CriticTargets]):
    num_parts = 2

    def __init__(self, batch: Batch, targets: CriticTargets) -> None:
        super().__init__(batch, targets, sequence_steps=1)
        self.seen = flat_steps(batch.observations["obs"])

    def loss_of(self, model: str, models: Models, chosen: Chosen) -> tuple[Tensor, ...]:
        rows = self.learned_rows(chosen)
        if model == "critic":
            error = (models["critic"](self.seen[rows]) - self.targets.returns[rows]).square().mean()
            return error, error
        outputs: PolicyOutputs = self.see(models.policy, self.sequences.choose(chosen))
        entropy, scale = outputs.distribution.entropy().mean(), cast(Temperature, models["temperature"])
        temperature = scale.log.exp()
        if model == "temperature":
            return temperature * (entropy.detach() - 0.5), entropy
        # Through the critic too, whose own gradient this must not become.
        baseline = models["critic"](self.seen[rows])
        gain = (self.targets.advantages[rows] * outputs.distribution.log_prob(outputs.actions)).mean()
        return -gain - temperature * entropy + 0 * baseline.mean(), entropy

    def loss(self, seen: PolicyOutputs) -> tuple[Tensor, ...]:
        raise AssertionError("asked for `loss_of` alone")


class CriticAndTarget:
    @dataclass(frozen=True)
    class Settings:
        """Actor-critic with a target network."""

        default_sync_interval: ClassVar[int] = 5
        learning_rate: float = 1e-2
        """Step size of all models."""
        discount: float = 0.9
        """Gamma."""
        follow_rate: float = 0.1
        """How far the target network moves towards the critic in an update."""

    Targets = CriticTargets
    differentiates_at_behaviour = False

    def __init__(self, settings: Settings, run: RunFacts) -> None:
        self.settings = settings

    def check(self) -> None: ...

    def models(self, interface: Any, network: Any) -> dict[str, Model]:
        width = interface.observations["obs"].width
        return {
            "critic": Model(lambda: Critic(width)),
            "target": Model(lambda: Critic(width), optimizer=None, copies="critic"),
            "temperature": Model(Temperature, optimizer="sgd"),
        }

    def fields(self, interface: Any) -> list[Any]:
        return [*final_observations(interface), step_info("height"), step_info("where", (2,), "int64")]

    def objective(self, update: Update, batch: Batch, targets: CriticTargets) -> Objective:
        return Objective(batch, targets)

    def improve(self, update: Update, draft: Draft, batch: Batch) -> dict[str, float]:
        steps, settings = batch.steps, self.settings
        with torch.no_grad():
            following_TB = draft.models["target"](batch.next_observations()["obs"])
            returns_TB = steps.rewards_TB + settings.discount * ~steps.terminated_TB * following_TB
            values_TB = draft.models["critic"](batch.observations["obs"])
        targets = draft.set_targets(CriticTargets(flat_steps(returns_TB), flat_steps(returns_TB - values_TB)))
        objective, metrics = self.objective(update, batch, targets), {}
        for model in ("critic", "policy", "temperature"):
            loss, _ = draft.differentiate(objective, draft.models, objective.all_sequences, of=model)
            draft.step(settings.learning_rate)
            metrics[f"train/{model}_loss"] = loss.item()
        draft.follow("target", settings.follow_rate)
        return metrics | {"train/height": batch.step_info["height"].mean().item()}


class Told(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole that tells of every step how high its pole is, and where it stands."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        told = {"height": float(abs(observation[2])), "where": [1, int(observation[0] > 0)]}
        return observation, reward, terminated, truncated, info | told


def make_told(**arguments: Any) -> gymnasium.Env[Any, Any]:
    return Told(gymnasium.make("CartPole-v1", **arguments))
