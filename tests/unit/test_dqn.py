"""DQN: its losses and probabilities by hand, and fifty updates against a plain implementation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from off_policy_reference import PlainDqn
from test_sac import trained

from htsrl import DQN, ConfigError, Experiment, Network, evaluate, load_policy
from htsrl.algorithms.dqn.algorithm import DQNObjective, EpsilonGreedy, GreedyOrRandom, epsilon_after
from htsrl.algorithms.models import Models
from htsrl.algorithms.off_policy import Transitions
from htsrl.policies.policy import Policy
from htsrl.spaces import Interface
from htsrl.spaces.observations import MASK_KEY

NUM_UPDATES = 50
EXPERIMENT = Experiment(
    "CartPole-v1",
    {"max_episode_steps": 11},
    algorithm=DQN(
        learning_starts=24,
        minibatch_size=8,
        n_step=3,
        learning_rate=3e-3,
        update_to_data=0.3,
        target_period=7,
        exploration_steps=200,
        replay_capacity=64,
        max_gradient_norm=10.0,
    ),
    network=Network(hidden_sizes=(16, 16), activation="relu"),
    schedule="sync",
    num_envs=2,
    sync_interval=4,
    total_steps=NUM_UPDATES * 8,
)
VARIANTS: dict[str, dict[str, Any]] = {
    "double": {},
    "plain": {"double": False},
    "duelling": {"duelling": True, "target_period": 1, "follow_rate": 0.1},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_fifty_updates_are_those_of_a_plain_implementation(variant: str, tmp_path: Path) -> None:
    settings = replace(EXPERIMENT.algorithm, **VARIANTS[variant])
    network = replace(EXPERIMENT.network, separate_value=False)
    experiment = replace(EXPERIMENT, algorithm=settings, network=network)
    trained(experiment, tmp_path / "run")
    plain = PlainDqn(experiment)
    before = plain.online.vector.clone()
    for update in range(NUM_UPDATES):
        plain.update(update)
    policy = load_policy(tmp_path / "run").policy
    for mine, theirs in zip(policy.parameters(), plain.network.parameters(), strict=True):
        if variant == "duelling":  # two heads send gradients back, whose sum is taken in another order
            torch.testing.assert_close(mine, theirs.detach(), rtol=1e-4, atol=1e-5)
        else:
            assert torch.equal(mine, theirs.detach())
    assert (plain.online.vector - before).abs().max() > 0.02, "it has learned"


def two_actions(mask: bool = False) -> Interface:
    seen: Any = spaces.Box(-1, 1, (1,), np.float32)
    if mask:
        seen = spaces.Dict({"at": seen, MASK_KEY: spaces.MultiBinary(3)})
    return Interface(seen, spaces.Discrete(3))


def constant(values: list[float], value: float, mask: bool = False) -> Policy:
    """A policy with these outputs, whatever it sees."""
    policy = Policy(two_actions(mask), Network(hidden_sizes=(), separate_value=False), EpsilonGreedy(0.3))
    with torch.no_grad():
        for head, outputs in ((policy.action_head, values), (policy.value_head, [value])):
            head.weight.zero_()
            head.bias.copy_(torch.tensor(outputs))
    return policy


def objective(data: Transitions, **settings: Any) -> DQNObjective:
    made: Any = DQNObjective(DQN(minibatch_size=len(data.rewards), **settings), 1, 0, None)  # type: ignore[arg-type]
    made._drawn = (0, data)
    return made  # type: ignore[no-any-return]


def two_rows(weights: torch.Tensor | None = None) -> Transitions:
    seen = {"obs": torch.zeros(2, 1)}
    actions, rewards, discounts = torch.tensor([0, 2]), torch.tensor([0.5, 5.0]), torch.tensor([0.9, 0.0])
    return Transitions(seen, actions, rewards, seen, discounts, weights)


def huber(error: float) -> float:
    return 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5


@pytest.mark.parametrize(
    ("settings", "following", "values"),
    [
        # Online prefers action 1, the target action 2.
        ({"double": True}, 20.0, (1.0, 2.0)),
        ({"double": False}, 30.0, (1.0, 2.0)),
        # Values less their mean of 2 (online) and 20 (target), and the value: 7 and 70.
        ({"double": True, "duelling": True}, 70.0, (6.0, 7.0)),
        ({"double": False, "duelling": True}, 80.0, (6.0, 7.0)),
    ],
)
def test_values_aim_at_what_the_target_expects_of_the_action_that_was_chosen(
    settings: dict[str, Any], following: float, values: tuple[float, float]
) -> None:
    online, target = constant([1.0, 3.0, 2.0], 7.0), constant([10.0, 20.0, 30.0], 70.0)
    loss, mean, aim = objective(two_rows(), **settings).loss_of(
        "policy", Models(online, {"target": target}), slice(0, 2)
    )
    aims = (0.5 + 0.9 * following, 5.0)
    assert aim.item() == pytest.approx(np.mean(aims), rel=1e-6)
    assert mean.item() == pytest.approx(np.mean(values), rel=1e-6)
    errors = [huber(value - goal) for value, goal in zip(values, aims, strict=True)]
    assert loss.item() == pytest.approx(np.mean(errors), rel=1e-6)


def test_importance_weights_scale_the_loss_of_their_rows() -> None:
    online, target = constant([1.0, 3.0, 2.0], 0.0), constant([10.0, 20.0, 30.0], 0.0)
    data = two_rows(weights=torch.tensor([0.25, 1.0]))
    loss, _, _ = objective(data).loss_of("policy", Models(online, {"target": target}), slice(0, 2))
    assert loss.item() == pytest.approx((0.25 * huber(1.0 - 18.5) + huber(2.0 - 5.0)) / 2, rel=1e-6)


def test_what_the_mask_forbids_is_neither_chosen_nor_aimed_at() -> None:
    online, target = constant([1.0, 3.0, 2.0], 0.0, mask=True), constant([10.0, 20.0, 30.0], 0.0, mask=True)
    allowed = torch.tensor([[True, False, True]])
    seen = {"obs/at": torch.zeros(1, 1), MASK_KEY: allowed}
    row = Transitions(seen, torch.tensor([0]), torch.tensor([0.0]), seen, torch.tensor([1.0]))
    _, _, aim = objective(row).loss_of("policy", Models(online, {"target": target}), slice(0, 1))
    assert aim.item() == 30.0, "of action 2, not of action 1, which would be better"
    distribution = online(seen)[0]
    assert distribution.mode().item() == 2
    assert distribution.log_prob(torch.tensor([2])).exp().item() == pytest.approx(0.85)
    assert distribution.log_prob(torch.tensor([0])).exp().item() == pytest.approx(0.15)
    assert distribution.log_prob(torch.tensor([1])).exp().item() == 0.0


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 1.0])
def test_the_best_action_is_taken_but_for_epsilon(epsilon: float) -> None:
    values = torch.tensor([[0.0, 5.0, 1.0, 2.0]]).expand(20_000, 4)
    distribution = GreedyOrRandom(values, None, torch.tensor(epsilon))
    noise = -torch.log(-torch.log(torch.rand(20_000, 4, generator=torch.Generator().manual_seed(1))))
    shares = torch.bincount(distribution.sample(noise), minlength=4) / 20_000
    expected = torch.tensor([epsilon / 4, 1 - 3 * epsilon / 4, epsilon / 4, epsilon / 4])
    torch.testing.assert_close(shares, expected, atol=0.015, rtol=0)
    assert (distribution.mode() == 1).all(), "also where all are as likely"
    assert torch.isfinite(distribution.entropy()).all()


def test_epsilon_goes_down_in_a_straight_line_and_stays() -> None:
    settings = DQN(initial_epsilon=1.0, final_epsilon=0.1, exploration_steps=100)
    assert [epsilon_after(settings, steps) for steps in (0, 50, 100, 1000)] == pytest.approx([1.0, 0.55, 0.1, 0.1])


def test_a_saved_policy_knows_its_epsilon_and_is_evaluated_without_it(tmp_path: Path) -> None:
    trained(replace(EXPERIMENT, total_steps=80), tmp_path / "run")
    policy = load_policy(tmp_path / "run").policy
    assert isinstance(policy.exploration, EpsilonGreedy)
    assert policy.exploration.epsilon.value.item() == pytest.approx(epsilon_after(EXPERIMENT.algorithm, 80))
    observation = np.array([0.01, 0.02, 0.03, 0.04], np.float32)
    outputs = policy.outputs({"obs": torch.from_numpy(observation)[None]})[0, :2]
    assert load_policy(tmp_path / "run").act(observation)[0] == outputs.argmax().item()
    assert len(evaluate(tmp_path / "run", episodes=2).returns) == 2


class Pictures(gymnasium.Env[Any, Any]):
    """Images of 36 x 36 and two actions."""

    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._seen(), float(action), self.steps == 3, False, {}

    def _seen(self) -> Any:
        return np.full((36, 36, 1), 20 * self.steps, np.uint8)


def test_images_are_learned_from(tmp_path: Path) -> None:
    settings = replace(EXPERIMENT.algorithm, learning_starts=0, duelling=True)
    small = replace(EXPERIMENT, env=Pictures, env_args={}, algorithm=settings, network=Network(), total_steps=16)
    trained(small, tmp_path / "run")
    assert load_policy(tmp_path / "run", env=Pictures).version == 2


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"env": "Pendulum-v1", "env_args": {}}, "DQN needs one choice among actions"),
        ({"network": Network(recurrent="gru")}, "DQN learns from single transitions, and recurrent=gru"),
        ({"schedule": "async"}, "use --schedule hts or sync"),
        ({"algorithm": DQN(final_epsilon=1.5)}, "final_epsilon=1.5 must be from 0 to 1"),
        ({"algorithm": DQN(target_period=0)}, "target_period=0 must be at least 1"),
        ({"algorithm": DQN(priority_exponent=-1.0)}, "priority_exponent=-1.0 must be from 0 to 1"),
    ],
)
def test_what_dqn_cannot_do_is_refused_with_the_way_out(changes: Any, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        trained(replace(EXPERIMENT, **changes), tmp_path / "run")
