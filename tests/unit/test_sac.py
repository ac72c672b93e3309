"""SAC: its losses by hand, and fifty updates against a plain implementation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from off_policy_reference import checkpointed, parameters_of
from sac_reference import PlainSac
from teams import Pair

from htsrl import SAC, Config, ConfigError, Experiment, Network, Placement, load_policy, train
from htsrl.algorithms.max_entropy import Temperature
from htsrl.algorithms.models import Models
from htsrl.algorithms.off_policy import num_gradient_steps
from htsrl.algorithms.sac.algorithm import Minibatch, SACObjective
from htsrl.policies.policy import build_policy
from htsrl.runs.folder import RunFolder

NUM_UPDATES = 50
EXPERIMENT = Experiment(
    "Pendulum-v1",
    {"max_episode_steps": 7},
    algorithm=SAC(
        learning_starts=0,
        minibatch_size=8,
        n_step=2,
        update_to_data=0.5,
        learning_rate=3e-3,
        follow_rate=0.1,
        replay_capacity=64,
    ),
    network=Network(hidden_sizes=(16, 16), activation="relu"),
    schedule="sync",
    num_envs=2,
    sync_interval=4,
    total_steps=NUM_UPDATES * 8,
)


def trained(experiment: Experiment, run_dir: Path, **settings: Any) -> None:
    quietly: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off", "check_env": False}
    train(Config(experiment, Placement(**(quietly | {"run_dir": run_dir} | settings))))


def test_fifty_updates_are_those_of_a_plain_implementation(tmp_path: Path) -> None:
    trained(EXPERIMENT, tmp_path / "run")
    plain = PlainSac(replace(EXPERIMENT, network=load_network(tmp_path / "run")))
    for update in range(NUM_UPDATES):
        plain.update(update)
    policy = load_policy(tmp_path / "run").policy
    assert_same_parameters([*policy.encoder.parameters(), *policy.action_head.parameters()], plain.actor.parameters())
    for name, networks in {"critics": plain.critics, "target_critics": plain.targets}.items():
        assert_same_parameters(checkpointed(tmp_path / "run", name, plain.built(name)), parameters_of(networks))
    (log_alpha,) = checkpointed(tmp_path / "run", "temperature", Temperature(1.0))
    assert_same_parameters([log_alpha], plain.alpha)
    assert abs(log_alpha) > 0.01, "it has learned"


def assert_same_parameters(ours: Iterable[torch.Tensor], theirs: Iterable[torch.Tensor]) -> None:
    for mine, their in zip(ours, theirs, strict=True):
        assert torch.equal(mine.detach(), their.detach())


def load_network(run_dir: Path) -> Network:
    """As the run has it: SAC asks for some of its settings."""
    network = RunFolder.existing(run_dir).load_config().experiment.network
    assert network.state_dependent_std
    assert network.bounded_actions == "squash"
    return network


class Fixed(torch.nn.Module):
    """Critics whose values are given: the first and the second, each plus the sum of the tangents of the action."""

    def __init__(self, first: float, second: float) -> None:
        super().__init__()
        self.offsets = torch.nn.Parameter(torch.tensor([first, second]))

    def forward(self, observations: Any, actions: torch.Tensor) -> torch.Tensor:
        return self.offsets[:, None] + actions.tanh().sum(dim=1)


def by_hand() -> tuple[SACObjective, Models]:
    """A policy that draws its noise (mean 0, deviation 1), in one dimension from -2 to 2, and alpha = 0.5."""
    network = Network(hidden_sizes=(), bounded_actions="squash", state_dependent_std=True, separate_value=False)
    box = spaces.Box(-2, 2, (1,), np.float32)
    policy = build_policy(spaces.Box(-1, 1, (1,), np.float32), box, network, seed=1)
    with torch.no_grad():
        policy.action_head.weight.zero_()
        policy.action_head.bias.zero_()
    models = {"critics": Fixed(1.0, 2.0), "target_critics": Fixed(5.0, 3.0), "temperature": Temperature(0.5)}
    objective: Any = SACObjective(SAC(minibatch_size=1), 1, 0, None)  # type: ignore[arg-type]
    seen = {"obs": torch.zeros(1, 1)}
    row = Minibatch(
        observations=seen,
        actions=torch.tensor([[0.3]]),
        rewards=torch.tensor([0.7]),
        next_observations=seen,
        discounts=torch.tensor([0.9]),
        noise=torch.tensor([[0.4]]),
        next_noise=torch.tensor([[-0.2]]),
    )
    objective._drawn = (0, row)
    return objective, Models(policy, models)


def log_density(drawn: float) -> float:
    return -0.5 * drawn**2 - 0.5 * math.log(2 * math.pi) - math.log(1 - math.tanh(drawn) ** 2)


def test_critics_aim_at_the_smaller_target_with_its_entropy() -> None:
    objective, models = by_hand()
    loss, mean, target = objective.loss_of("critics", models, slice(0, 1))
    aim = 0.7 + 0.9 * (3.0 + math.tanh(-0.2) - 0.5 * log_density(-0.2))
    q1, q2 = 1.0 + math.tanh(0.3), 2.0 + math.tanh(0.3)
    assert target.item() == pytest.approx(aim, abs=1e-5)
    assert mean.item() == pytest.approx((q1 + q2) / 2, abs=1e-5)
    assert loss.item() == pytest.approx((q1 - aim) ** 2 + (q2 - aim) ** 2, abs=1e-4)


def test_the_policy_weighs_the_smaller_value_against_its_entropy_and_is_differentiated_through_its_action() -> None:
    objective, models = by_hand()
    loss, entropy, _ = objective.loss_of("policy", models, slice(0, 1))
    assert entropy.item() == pytest.approx(-log_density(0.4), abs=1e-5)
    assert loss.item() == pytest.approx(0.5 * log_density(0.4) - (1.0 + math.tanh(0.4)), abs=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    # By the mean u = 0.4: d log(1 - tanh^2)/du = -2 tanh u, so alpha 2 tanh u - (1 - tanh^2 u).
    expected = 0.5 * 2 * math.tanh(0.4) - (1 - math.tanh(0.4) ** 2)
    bias = models.policy.action_head.bias
    assert bias.grad is not None
    assert bias.grad[0].item() == pytest.approx(expected, abs=1e-5)


def test_the_temperature_is_pushed_up_where_the_entropy_is_below_its_target(tmp_path: Path) -> None:
    """By Adam's first step, which is the learning rate whatever the gradient's length."""
    once = replace(EXPERIMENT, num_envs=1, sync_interval=8, total_steps=8)
    few = replace(EXPERIMENT.algorithm, update_to_data=0.125, temperature_learning_rate=0.25)
    for target, step in ((-100.0, -0.25), (100.0, 0.25)):
        trained(replace(once, algorithm=replace(few, target_entropy=target)), tmp_path / f"{target}")
        (log_alpha,) = checkpointed(tmp_path / f"{target}", "temperature", Temperature(1.0))
        assert log_alpha.item() == pytest.approx(step, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"env": "CartPole-v1", "env_args": {}}, "needs a Box of actions with two bounds"),
        ({"network": Network(recurrent="lstm")}, "recurrent=lstm"),
        ({"schedule": "async"}, "use --schedule hts or sync"),
        ({"algorithm": SAC(replay_capacity=7)}, "replay_capacity=7 is less than the 8 steps"),
        ({"gradient_shards": 9}, "gradient_shards=9"),
        ({"algorithm": SAC(update_to_data=0.0)}, "update_to_data=0.0 must be above 0"),
    ],
)
def test_what_sac_cannot_do_is_refused_with_the_way_out(changes: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        trained(replace(EXPERIMENT, **changes), tmp_path / "run")


class PushingPair(Pair):
    """A team with actions that SAC could take; its first agent leaves early."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-1.0, 1.0, (1,))


def test_a_team_is_refused_because_the_replay_buffer_does_not_know_who_took_part(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sac has a replay buffer, .* team of 2 agents; use PPO or A2C"):
        trained(replace(EXPERIMENT, env=PushingPair, env_args={}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("update_to_data", "counts"), [(1.0, [8, 8, 8, 8]), (0.05, [0, 0, 1, 0, 1]), (0.3, [2, 2, 3])])
def test_gradient_steps_add_up_to_their_share_of_the_data(update_to_data: float, counts: list[int]) -> None:
    assert [num_gradient_steps(update_to_data, update, 8) for update in range(len(counts))] == counts


def test_an_update_without_a_gradient_step_leaves_the_policy_as_it_was(tmp_path: Path) -> None:
    for name, total in (("two", 16), ("one", 8)):
        few = replace(EXPERIMENT.algorithm, update_to_data=0.05)
        trained(replace(EXPERIMENT, algorithm=few, total_steps=total), tmp_path / name)
    two, one = (load_policy(tmp_path / name).policy.state_dict() for name in ("two", "one"))
    assert all(torch.equal(two[name], one[name]) for name in one)
