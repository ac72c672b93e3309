"""Discrete SAC: its losses by hand, and a run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from test_dqn import EXPERIMENT as CARTPOLE
from test_sac import trained

from htsrl import ConfigError, DiscreteSAC, Network, load_policy
from htsrl.algorithms.discrete_sac.algorithm import DiscreteSACObjective
from htsrl.algorithms.max_entropy import Temperature
from htsrl.algorithms.models import Models
from htsrl.algorithms.off_policy import Transitions
from htsrl.policies.policy import build_policy

EXPERIMENT = replace(
    CARTPOLE, algorithm=DiscreteSAC(learning_starts=0, minibatch_size=8, replay_capacity=64), total_steps=80
)


class Fixed(torch.nn.Module):
    """Critics with these values of two actions."""

    def __init__(self, first: list[float], second: list[float]) -> None:
        super().__init__()
        self.values = torch.nn.Parameter(torch.tensor([first, second]))

    def forward(self, observations: Any) -> torch.Tensor:
        return self.values[:, None].expand(-1, 1, -1)


def by_hand() -> tuple[DiscreteSACObjective, Models]:
    """A policy that takes action 1 three times as often as action 0, and alpha = 0.5."""
    network = Network(hidden_sizes=(), separate_value=False)
    policy = build_policy(spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2), network, seed=1)
    with torch.no_grad():
        policy.action_head.weight.zero_()
        policy.action_head.bias.copy_(torch.tensor([0.0, math.log(3.0)]))
    models = {
        "critics": Fixed([1.0, 4.0], [2.0, 3.0]),
        "target_critics": Fixed([10.0, 40.0], [20.0, 30.0]),
        "temperature": Temperature(0.5),
    }
    objective: Any = DiscreteSACObjective(DiscreteSAC(minibatch_size=1), 1, 0, None)  # type: ignore[arg-type]
    seen = {"obs": torch.zeros(1, 1)}
    objective._drawn = (0, Transitions(seen, torch.tensor([1]), torch.tensor([0.7]), seen, torch.tensor([0.9])))
    return objective, Models(policy, models)


ENTROPY = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))


def test_critics_aim_at_the_smaller_target_of_every_action_with_the_entropy() -> None:
    objective, models = by_hand()
    loss, mean, target = objective.loss_of("critics", models, slice(0, 1))
    aim = 0.7 + 0.9 * (0.25 * 10 + 0.75 * 30 + 0.5 * ENTROPY)
    assert target.item() == pytest.approx(aim, abs=1e-4)
    assert mean.item() == pytest.approx(3.5)
    assert loss.item() == pytest.approx((4 - aim) ** 2 + (3 - aim) ** 2, rel=1e-5)


def test_the_policy_weighs_the_smaller_value_of_every_action_against_its_entropy() -> None:
    objective, models = by_hand()
    loss, entropy, _ = objective.loss_of("policy", models, slice(0, 1))
    assert entropy.item() == pytest.approx(ENTROPY, abs=1e-6)
    assert loss.item() == pytest.approx(-(0.25 * 1 + 0.75 * 3 + 0.5 * ENTROPY), abs=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    # d/d logit_1 of -sum p (q - alpha log p) = -p1 ((q1 - alpha log p1) - V).
    value = 0.25 * (1 - 0.5 * math.log(0.25)) + 0.75 * (3 - 0.5 * math.log(0.75))
    bias = models.policy.action_head.bias
    assert bias.grad is not None
    assert bias.grad[1].item() == pytest.approx(-0.75 * ((3 - 0.5 * math.log(0.75)) - value), abs=1e-5)


def test_the_temperature_goes_down_where_the_entropy_is_above_its_target() -> None:
    objective, models = by_hand()
    loss, alpha, _ = objective.loss_of("temperature", models, slice(0, 1))
    assert alpha.item() == pytest.approx(0.5)
    assert loss.item() == pytest.approx(math.log(0.5) * (ENTROPY - 0.5 * math.log(2)), abs=1e-6)
    loss.backward()  # type: ignore[no-untyped-call]
    log: Any = models["temperature"].log
    assert log.grad.item() > 0, "so a step lowers it"


def test_it_learns_from_a_run_and_its_policy_is_loaded(tmp_path: Path) -> None:
    trained(EXPERIMENT, tmp_path / "run")
    policy = load_policy(tmp_path / "run")
    assert policy.version == 10
    assert policy.act(np.zeros(4, np.float32))[0] in (0, 1)


def test_a_box_of_actions_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"discrete SAC needs one choice among actions.*SAC for a Box"):
        trained(replace(EXPERIMENT, env="Pendulum-v1", env_args={}), tmp_path / "run")
