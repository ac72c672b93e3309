"""TD3: its losses by hand, and fifty updates against a plain implementation."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from off_policy_reference import PlainTd3, checkpointed, parameters_of
from test_sac import assert_same_parameters, trained

from htsrl import TD3, ConfigError, Experiment, Network, load_policy
from htsrl.algorithms.models import Models
from htsrl.algorithms.td3.algorithm import Bounds, Minibatch, NoisyActions, TD3Objective
from htsrl.policies.policy import Policy
from htsrl.spaces import Interface

NUM_UPDATES = 50
EXPERIMENT = Experiment(
    "Pendulum-v1",
    {"max_episode_steps": 7},
    algorithm=TD3(
        learning_starts=16,
        minibatch_size=8,
        n_step=2,
        learning_rate=3e-3,
        update_to_data=0.4,
        follow_rate=0.1,
        replay_capacity=64,
    ),
    network=Network(hidden_sizes=(16, 16), activation="relu"),
    schedule="sync",
    num_envs=2,
    sync_interval=4,
    total_steps=NUM_UPDATES * 8,
)


def test_fifty_updates_are_those_of_a_plain_implementation(tmp_path: Path) -> None:
    trained(EXPERIMENT, tmp_path / "run")
    required = replace(EXPERIMENT.network, separate_value=False)
    plain = PlainTd3(replace(EXPERIMENT, network=required))
    before = plain.of_actor.vector.clone()
    for update in range(NUM_UPDATES):
        plain.update(update)
    policy = load_policy(tmp_path / "run").policy
    assert_same_parameters([*policy.encoder.parameters(), *policy.action_head.parameters()], plain.actor.parameters())
    for name, networks in {"critics": plain.critics, "target_critics": plain.targets}.items():
        assert_same_parameters(checkpointed(tmp_path / "run", name, plain.built(name)), parameters_of(networks))
    assert (plain.of_actor.vector - before).abs().max() > 0.02, "it has learned"


class Fixed(torch.nn.Module):
    """Critics whose values are given: the first and the second, each plus the action in [-1, 1]."""

    def __init__(self, first: float, second: float, bounds: Bounds) -> None:
        super().__init__()
        self.offsets = torch.nn.Parameter(torch.tensor([first, second]))
        self.bounds = bounds

    def forward(self, observations: Any, actions: torch.Tensor) -> torch.Tensor:
        return self.offsets[:, None] + self.bounds.forward(actions).sum(dim=1)


INTERFACE = Interface(spaces.Box(-1, 1, (1,), np.float32), spaces.Box(1, 5, (1,), np.float32))  # so 3 +- 2


def policy_that_means(output: float) -> Policy:
    network = Network(hidden_sizes=(), separate_value=False)
    policy = Policy(INTERFACE, network, NoisyActions(INTERFACE, 0.25))
    with torch.no_grad():
        policy.action_head.weight.zero_()
        policy.action_head.bias.fill_(output)
    return policy


def by_hand(next_noise: float, target_output: float = 0.4) -> tuple[TD3Objective, Models]:
    bounds = Bounds(INTERFACE)
    models = {
        "critics": Fixed(2.0, 1.0, bounds),
        "target_critics": Fixed(5.0, 3.0, bounds),
        "target_policy": policy_that_means(target_output),
    }
    objective: Any = TD3Objective(TD3(minibatch_size=1), 1, 0, None)  # type: ignore[arg-type]
    seen = {"obs": torch.zeros(1, 1)}
    row = Minibatch(
        observations=seen,
        actions=torch.tensor([[3.6]]),  # 0.3 in [-1, 1]
        rewards=torch.tensor([0.7]),
        next_observations=seen,
        discounts=torch.tensor([0.9]),
        next_noise=torch.tensor([[next_noise]]),
    )
    objective._drawn = (0, row)
    return objective, Models(policy_that_means(-0.8), models)


@pytest.mark.parametrize(
    ("next_noise", "output", "next_action"),
    [
        (1.5, 0.4, math.tanh(0.4) + 0.3),
        (-4.0, 0.4, math.tanh(0.4) - 0.5),  # the noise is cut off
        (2.0, 2.0, 1.0),  # and so is the action
    ],
)
def test_critics_aim_at_the_smaller_target_of_a_smoothed_action(
    next_noise: float, output: float, next_action: float
) -> None:
    objective, models = by_hand(next_noise, output)
    loss, mean, target = objective.loss_of("critics", models, slice(0, 1))
    aim = 0.7 + 0.9 * (3.0 + next_action)
    assert target.item() == pytest.approx(aim, abs=1e-5)
    assert mean.item() == pytest.approx(1.8, abs=1e-5)
    assert loss.item() == pytest.approx((2.3 - aim) ** 2 + (1.3 - aim) ** 2, abs=1e-4)


def test_the_policy_climbs_the_first_critic() -> None:
    objective, models = by_hand(0.0)
    loss, _, _ = objective.loss_of("policy", models, slice(0, 1))
    assert loss.item() == pytest.approx(-(2.0 + math.tanh(-0.8)), abs=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    bias = models.policy.action_head.bias
    assert bias.grad is not None
    assert bias.grad.item() == pytest.approx(-(1 - math.tanh(0.8) ** 2), abs=1e-5)


def test_actions_are_drawn_around_what_is_meant_and_the_mode_is_without_noise() -> None:
    distribution, _ = policy_that_means(0.5)({"obs": torch.zeros(3, 1)})
    meant = 3 + 2 * math.tanh(0.5)
    assert distribution.mode().flatten().tolist() == pytest.approx([meant] * 3)
    drawn = distribution.sample(torch.tensor([[0.0], [1.0], [-2.0]]))
    assert drawn.flatten().tolist() == pytest.approx([meant, meant + 0.5, meant - 1.0])


def test_the_noise_is_wide_until_learning_begins(tmp_path: Path) -> None:
    for name, total, noise in (("before", 8, 1.0), ("after", 16, 0.1)):
        trained(replace(EXPERIMENT, total_steps=total), tmp_path / name)
        exploration = load_policy(tmp_path / name).policy.exploration
        assert isinstance(exploration, NoisyActions)
        assert exploration.deviation.value.item() == noise


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"env": "CartPole-v1", "env_args": {}}, "TD3 needs a Box of actions with two bounds"),
        ({"network": Network(recurrent="lstm")}, "recurrent=lstm"),
        ({"schedule": "async"}, "use --schedule hts or sync"),
        ({"algorithm": TD3(policy_delay=0)}, "policy_delay=0 must be at least 1"),
        ({"algorithm": TD3(exploration_noise=0.0)}, "exploration_noise=0.0 must be above 0"),
    ],
)
def test_what_td3_cannot_do_is_refused_with_the_way_out(changes: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        trained(replace(EXPERIMENT, **changes), tmp_path / "run")
