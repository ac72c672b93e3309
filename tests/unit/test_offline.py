"""Learning from datasets: returns and losses by hand, fifty updates against plain implementations, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from off_policy_reference import checkpointed, parameters_of
from offline_data import small_dataset, written
from offline_reference import Plain, PlainBC, PlainCQL, PlainIQL

from htsrl import (
    BC,
    CQL,
    IQL,
    PPO,
    Config,
    ConfigError,
    Experiment,
    Network,
    Placement,
    evaluate,
    load_policy,
    train,
)
from htsrl.algorithms.bc.algorithm import BCObjective
from htsrl.algorithms.cql.algorithm import CQLObjective
from htsrl.algorithms.iql.algorithm import IQLObjective
from htsrl.algorithms.max_entropy import Temperature
from htsrl.algorithms.models import Models
from htsrl.algorithms.offline import Transitions
from htsrl.datasets.dataset import read_dataset
from htsrl.datasets.write import write_dataset
from htsrl.policies.policy import build_policy
from htsrl.runs.folder import RunFolder
from htsrl.runs.trust import NOTHING, strange_code
from htsrl.sources.dataset import DatasetSampler
from htsrl.spaces import Interface

NUM_UPDATES = 50
NETWORK = Network(hidden_sizes=(16, 16), activation="relu")
ALGORITHMS: dict[str, tuple[Any, type[Plain]]] = {
    "bc": (BC(minibatch_size=8, learning_rate=3e-3), PlainBC),
    "cql": (
        CQL(
            minibatch_size=8,
            learning_rate=3e-3,
            critic_learning_rate=2e-3,
            temperature_learning_rate=1e-2,
            n_step=2,
            follow_rate=0.1,
            sampled_actions=3,
        ),
        PlainCQL,
    ),
    "iql": (IQL(minibatch_size=8, learning_rate=3e-3, n_step=3, follow_rate=0.1), PlainIQL),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("datasets") / "small")


def experiment_of(folder: Path, algorithm: Any, **settings: Any) -> Experiment:
    squashed = Network(hidden_sizes=(16, 16), activation="relu", bounded_actions="squash", state_dependent_std=True)
    network = squashed if isinstance(algorithm, BC) else NETWORK
    usual: dict[str, Any] = {"sync_interval": 1, "total_steps": NUM_UPDATES, "source": str(folder)}
    return Experiment("", algorithm=algorithm, network=network, **(usual | settings))


def trained(experiment: Experiment, run_dir: Path, **settings: Any) -> None:
    quietly: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off", "run_dir": run_dir}
    train(Config(experiment, Placement(**(quietly | settings))))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_fifty_updates_are_those_of_a_plain_implementation(folder: Path, tmp_path: Path, name: str) -> None:
    algorithm, reference = ALGORITHMS[name]
    experiment = experiment_of(folder, algorithm)
    trained(experiment, tmp_path / "run")
    network = RunFolder.existing(tmp_path / "run").load_config().experiment.network
    plain = reference(replace(experiment, network=network), read_dataset(folder))
    first = [parameter.detach().clone() for parameter in plain.actor.parameters()]
    for update in range(NUM_UPDATES):
        plain.update(update)
    policy = load_policy(tmp_path / "run").policy
    ours = [*policy.encoder.parameters(), *policy.action_head.parameters()]
    assert sum((mine - was).abs().max().item() for mine, was in zip(ours, first, strict=True)) > 0.1, "it has learned"
    assert all(map(torch.equal, ours, plain.actor.parameters()))
    for model, networks in {} if name == "bc" else {"critics": plain.critics, "target_critics": plain.targets}.items():
        assert all(map(torch.equal, checkpointed(tmp_path / "run", model, plain.built(model)), parameters_of(networks)))


def sampler(**settings: Any) -> DatasetSampler:
    dataset = small_dataset(**settings)
    return DatasetSampler(dataset, replace(dataset.interface, squashes=True).actions)


def test_returns_end_with_their_episode_and_are_worth_nothing_after_a_termination() -> None:
    data = sampler(lengths=(3, 2))  # the first terminates, the second is truncated
    r = data.dataset.arrays["rewards"]
    found = data.transitions(np.array([0, 1, 2, 3]), np.full(4, 0.5, np.float32), np.full(4, 2))
    expected = [r[0] + 0.5 * r[1], r[1] + 0.5 * r[2], r[2], r[3] + 0.5 * r[4]]
    np.testing.assert_allclose(found.rewards, expected, rtol=1e-6)
    assert found.discounts.tolist() == [0.25, 0.0, 0.0, 0.25]
    rows = data.dataset.arrays["obs"]
    np.testing.assert_array_equal(found.next_observations["obs"], rows[[2, 3, 3, 6]])


def test_every_transition_may_have_its_own_length_and_discount() -> None:
    data = sampler(lengths=(9,))
    r = data.dataset.arrays["rewards"].astype(np.float64)
    found = data.transitions(np.array([0, 1]), np.array([0.5, 0.9], np.float32), np.array([1, 4]))
    np.testing.assert_allclose(found.rewards, [r[0], r[1] + 0.9 * r[2] + 0.81 * r[3] + 0.729 * r[4]], rtol=1e-5)
    np.testing.assert_allclose(found.discounts, [0.5, 0.9**4], rtol=1e-5)


def test_what_is_drawn_is_a_function_of_seed_update_and_gradient_step() -> None:
    data = sampler()
    drawn = data.draw(1, 2, 3, 300)
    assert drawn.tolist() == data.draw(1, 2, 3, 300).tolist()
    assert set(drawn.tolist()) == set(range(17)), "all of it"
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert drawn.tolist() != data.draw(*other, 300).tolist()


class Fixed(torch.nn.Module):
    """Critics whose values are given: the first and the second, each plus the tangent of the action."""

    def __init__(self, first: float, second: float) -> None:
        super().__init__()
        self.offsets = torch.nn.Parameter(torch.tensor([first, second]))

    def forward(self, observations: Any, actions: torch.Tensor) -> torch.Tensor:
        return self.offsets[:, None] + actions.tanh().sum(dim=1)


class FixedValue(torch.nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = torch.nn.Parameter(torch.tensor(value))

    def forward(self, observations: Any) -> torch.Tensor:
        return self.value.expand(len(observations["obs"]))


def by_hand(objective: Any, noise: tuple[float, ...] = ()) -> Models:
    """A policy with mean 0 and deviation 1, in one dimension from -2 to 2, and a single transition."""
    network = Network(hidden_sizes=(), bounded_actions="squash", state_dependent_std=True, separate_value=False)
    box = spaces.Box(-2, 2, (1,), np.float32)
    policy = build_policy(spaces.Box(-1, 1, (1,), np.float32), box, network, seed=1)
    with torch.no_grad():
        policy.action_head.weight.zero_()
        policy.action_head.bias.zero_()
    seen = {"obs": torch.zeros(1, 1)}
    noises = tuple(torch.full((1, 1, 1), x) for x in noise)
    actions, rewards, discounts = torch.tensor([[0.3]]), torch.tensor([0.7]), torch.tensor([0.9])
    objective._drawn = (0, Transitions(seen, actions, rewards, seen, discounts, noises))
    models = {"critics": Fixed(1.0, 2.0), "target_critics": Fixed(5.0, 3.0), "temperature": Temperature(0.5)}
    return Models(policy, {**models, "value": FixedValue(2.5)})


def log_density(drawn: float) -> float:
    return -0.5 * drawn**2 - 0.5 * math.log(2 * math.pi) - math.log(1 - math.tanh(drawn) ** 2)


def cql_by_hand() -> tuple[CQLObjective, Models]:
    objective: Any = CQLObjective(CQL(minibatch_size=1, sampled_actions=1), 1, 0, None)  # type: ignore[arg-type]
    return objective, by_hand(objective, noise=(0.4, -0.2, 0.6, -0.5, 0.8))


def test_cqls_critics_aim_without_entropy_and_pay_for_the_soft_maximum_over_their_value() -> None:
    objective, models = cql_by_hand()
    loss, mean, target, excess = objective.loss_of("critics", models, slice(0, 1))
    aim = 0.7 + 0.9 * (3.0 + math.tanh(-0.2))
    uniform = math.erf(0.8 / math.sqrt(2))  # in [-1, 1]
    weighed = [uniform - math.log(0.5), math.tanh(0.6) - log_density(0.6), math.tanh(-0.5) - log_density(-0.5)]
    soft = math.log(sum(map(math.exp, weighed)) / 3)  # beside the offset of either critic, which cancels
    q1, q2 = 1.0 + math.tanh(0.3), 2.0 + math.tanh(0.3)
    assert target.item() == pytest.approx(aim, abs=1e-5)
    assert mean.item() == pytest.approx((q1 + q2) / 2, abs=1e-5)
    assert excess.item() == pytest.approx(2 * (soft - math.tanh(0.3)), abs=1e-4)
    assert loss.item() == pytest.approx((q1 - aim) ** 2 + (q2 - aim) ** 2 + 5.0 * excess.item(), abs=1e-4)


def test_cqls_policy_and_temperature_are_those_of_sac() -> None:
    objective, models = cql_by_hand()
    loss, entropy, *_ = objective.loss_of("policy", models, slice(0, 1))
    assert entropy.item() == pytest.approx(-log_density(0.4), abs=1e-5)
    assert loss.item() == pytest.approx(0.5 * log_density(0.4) - (1.0 + math.tanh(0.4)), abs=1e-5)
    loss, alpha, *_ = objective.loss_of("temperature", models, slice(0, 1))
    assert alpha.item() == pytest.approx(0.5)
    assert loss.item() == pytest.approx(-math.log(0.5) * (log_density(0.4) - 1.0), abs=1e-5)


def test_iqls_losses_are_an_expectile_a_target_and_a_weighted_likelihood() -> None:
    objective: Any = IQLObjective(IQL(minibatch_size=1), 1, 0, None)  # type: ignore[arg-type]
    models = by_hand(objective)
    off = 3.0 + math.tanh(0.3) - 2.5
    loss, value, advantage = objective.loss_of("value", models, slice(0, 1))
    assert value.item() == 2.5
    assert advantage.item() == pytest.approx(off, abs=1e-5)
    assert loss.item() == pytest.approx(0.7 * off**2, abs=1e-5)
    loss, _, target = objective.loss_of("critics", models, slice(0, 1))
    aim = 0.7 + 0.9 * 2.5
    assert target.item() == pytest.approx(aim, abs=1e-5)
    expected = (1.0 + math.tanh(0.3) - aim) ** 2 + (2.0 + math.tanh(0.3) - aim) ** 2
    assert loss.item() == pytest.approx(expected, abs=1e-4)
    loss, _, weight = objective.loss_of("policy", models, slice(0, 1))
    assert weight.item() == pytest.approx(math.exp(3 * off), rel=1e-4)
    assert loss.item() == pytest.approx(-math.exp(3 * off) * (log_density(0.3) - math.log(2.0)), rel=1e-4)
    models["value"].value.data.fill_(9.0)  # type: ignore[operator]
    off = 3.0 + math.tanh(0.3) - 9.0
    assert objective.loss_of("value", models, slice(0, 1))[0].item() == pytest.approx(0.3 * off**2, rel=1e-4)


def test_behaviour_cloning_maximises_the_likelihood() -> None:
    objective: Any = BCObjective(BC(minibatch_size=1), 1, 0, None)  # type: ignore[arg-type]
    models = by_hand(objective)
    assert objective(models.policy, slice(0, 1))[0].item() == pytest.approx(-log_density(0.3) + math.log(2.0), abs=1e-5)


def test_a_run_needs_no_environment_and_is_evaluated_in_one_that_is_named_later(tmp_path: Path) -> None:
    pendulum = spaces.Box(np.array([-1, -1, -8]), np.array([1, 1, 8]), dtype=np.float32)
    data = small_dataset()
    other = replace(data, manifest=replace(data.manifest, interface=Interface(pendulum, data.interface.action_space)))
    write_dataset(other, tmp_path / "data")
    trained(experiment_of(tmp_path / "data", BC(minibatch_size=4), total_steps=2), tmp_path / "run")
    with pytest.raises(ConfigError, match="no environment to play in"):
        evaluate(tmp_path / "run", episodes=1)
    found = evaluate(tmp_path / "run", episodes=2, env="Pendulum-v1", env_args={"max_episode_steps": 5})
    assert found.lengths == (5, 5)


def test_a_configuration_without_an_environment_names_no_code_to_run() -> None:
    assert not list(strange_code(Experiment("", source="data", algorithm=BC()), NOTHING))


def test_discrete_actions_can_be_cloned(tmp_path: Path) -> None:
    folder = written(tmp_path / "data", action_space=spaces.Discrete(3))
    trained(replace(experiment_of(folder, BC(minibatch_size=4), total_steps=4), network=NETWORK), tmp_path / "run")
    assert load_policy(tmp_path / "run").act(np.zeros(3, np.float32))[0] in (0, 1, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": PPO()}, "ppo learns from environments"),
        ({"source": None, "env": "Pendulum-v1"}, "cql learns from a dataset"),
        ({"schedule": "sync"}, "schedule=sync says who acts when"),
        ({"stop_at_return": 1.0}, "stop_at_return looks at training episodes"),
        ({"network": Network(normalize_observations=True)}, "turn normalisation off"),
        ({"network": Network(recurrent="gru")}, "learns from single transitions"),
        ({"gradient_shards": 9}, "gradient_shards=9 is more than minibatch_size=8"),
        ({"env": "CartPole-v1"}, "the environment has the observation_space"),
        ({"source": "nowhere"}, "is not a dataset"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    folder: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    experiment = replace(experiment_of(folder, ALGORITHMS["cql"][0]), **settings)
    with pytest.raises(ConfigError, match=message):
        trained(experiment, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_critics_need_a_box_and_evaluations_an_environment(folder: Path, tmp_path: Path) -> None:
    discrete = written(tmp_path / "data", action_space=spaces.Discrete(3))
    with pytest.raises(ConfigError, match="cql needs a Box of actions"):
        trained(experiment_of(discrete, ALGORITHMS["cql"][0]), tmp_path / "run")
    with pytest.raises(ConfigError, match="need an environment to play in"):
        trained(experiment_of(folder, ALGORITHMS["cql"][0]), tmp_path / "run", eval_every=10)
