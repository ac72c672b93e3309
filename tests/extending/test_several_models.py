"""An algorithm with several models runs through all that the runtime does for one with a policy alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from critic_and_target import Critic, CriticAndTarget, Temperature, make_told
from gymnasium import spaces
from helpers import Outcome, assert_same_run, run

from htsrl import PPO, Config, ConfigError, Experiment, Placement, evaluate, load_policy, resume, train
from htsrl.algorithms.gradient import GradientShards
from htsrl.algorithms.models import Model, Models, declared_models
from htsrl.checkpoint.files import newest_valid
from htsrl.dataflow.gradient_orders import MAX_PARTS
from htsrl.dataflow.parameters import FlatLayout
from htsrl.errors import EnvironmentFailure, TrainingDiverged
from htsrl.export import export
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE
from htsrl.runs.folder import RunFolder

NUM_UPDATES = 12
EXPERIMENT = Experiment(
    make_told,
    {"max_episode_steps": 13},
    algorithm=CriticAndTarget.Settings(),
    num_envs=4,
    sync_interval=5,
    total_steps=NUM_UPDATES * 20,
    gradient_shards=2,
)


def quietly(run_dir: Path, **settings: Any) -> Placement:
    defaults: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off", "log_every_steps": 1}
    return Placement(**(defaults | {"run_dir": run_dir, "check_env": False} | settings))


@cache
def oracle() -> Outcome:
    """Undisturbed, in this process."""
    return run(EXPERIMENT, log_every_steps=1)


def test_in_processes_of_which_one_is_killed_the_bits_are_those_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KILL_AT, "optimizer step:14")  # of the critic: policy and temperature have not moved yet
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    placement = quietly(tmp_path / "run", backend="processes", num_executors=2, learner_workers=2)
    assert train(Config(EXPERIMENT, placement)).restarts == 1
    assert_same_run(Outcome.read(tmp_path / "run"), oracle())


def test_a_run_is_resumed_to_the_same_bits_with_all_its_models(tmp_path: Path) -> None:
    train(Config(replace(EXPERIMENT, total_steps=140), quietly(tmp_path / "run")))
    resume(tmp_path / "run", total_steps=EXPERIMENT.total_steps)
    assert_same_run(Outcome.read(tmp_path / "run"), oracle())


def test_the_digest_knows_every_model(tmp_path: Path) -> None:
    assert {"model critic", "model target", "model temperature"} <= oracle().links[0].learner.keys()
    lazy = replace(EXPERIMENT, algorithm=CriticAndTarget.Settings(follow_rate=0.2), total_steps=20)
    ours, other = oracle().links[0], run(lazy).links[0]
    assert [name for name in ours.learner if ours.learner[name] != other.learner[name]] == ["model target"]


def test_policies_of_several_models_are_evaluated_loaded_and_exported(tmp_path: Path) -> None:
    train(Config(EXPERIMENT, quietly(tmp_path / "run")))
    assert len(evaluate(tmp_path / "run", episodes=2, env=make_told).returns) == 2
    assert load_policy(tmp_path / "run").version == NUM_UPDATES
    assert export(tmp_path / "run", format="torch").version == NUM_UPDATES


def models_of(run_dir: Path, version: int) -> dict[str, np.ndarray[Any, Any]]:
    found = newest_valid(RunFolder.existing(run_dir).checkpoints_dir, print)
    assert found is not None
    names = ("critic", "target", "temperature")
    return {name: found[1].arrays[f"version {version}/model {name}/parameter_slots"] for name in names}


def test_targets_begin_equal_and_follow_at_their_rate_and_models_begin_by_seed_and_name(tmp_path: Path) -> None:
    train(Config(replace(EXPERIMENT, total_steps=20), quietly(tmp_path / "run")))
    before, after = models_of(tmp_path / "run", 0), models_of(tmp_path / "run", 1)
    assert np.array_equal(before["target"][0], before["critic"][0])
    assert len(before["target"]) == 1, "it has no optimizer"
    assert not np.array_equal(after["critic"][0], before["critic"][0])
    followed = before["target"][0] + np.float32(0.1) * (after["critic"][0] - before["target"][0])
    np.testing.assert_allclose(after["target"][0], followed, rtol=1e-6, atol=1e-7)
    train(Config(replace(EXPERIMENT, total_steps=20, seed=2), quietly(tmp_path / "other")))
    assert not np.array_equal(models_of(tmp_path / "other", 0)["critic"], before["critic"])


def test_a_model_is_moved_by_its_own_gradient_alone(tmp_path: Path) -> None:
    """The policy's loss goes through the critic and the temperature, whose parameters it must leave alone."""
    train(Config(replace(EXPERIMENT, total_steps=20), quietly(tmp_path / "run")))
    entropy = np.log(2)  # of the two actions, nearly uniform at first
    before, after = (models_of(tmp_path / "run", version)["temperature"][0, 0] for version in (0, 1))
    assert before == -3.0
    expected = before - 1e-2 * np.exp(before) * (entropy - 0.5)
    assert after == pytest.approx(expected, rel=1e-5)


class Product:
    """The loss of each of two models goes through the other."""

    num_parts, epoch = 1, 0

    def learned_rows(self, chosen: Any) -> Any:
        return chosen

    def loss_of(self, model: str, models: Any, chosen: Any) -> tuple[torch.Tensor, ...]:
        x = torch.ones(chosen.stop - chosen.start, 3)
        return ((models["policy"](x) * models["critic"](x)).mean(),)


def test_a_gradient_holds_nothing_of_the_other_models_that_its_loss_goes_through() -> None:
    policy, critic = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
    models: Any = Models(policy, {"critic": critic})  # type: ignore[arg-type]
    rows, losses = torch.zeros(2, 64), torch.zeros(2, MAX_PARTS)
    shards = GradientShards(rows, losses, policy, further={"critic": critic})
    x = torch.ones(1, 3)
    for name, differentiated, other in (
        ("critic", critic, policy),
        ("policy", policy, critic),
        ("critic", critic, policy),
    ):
        shards.take((0, 1), Product(), models, slice(0, 4), 4, name)
        shards.add_up()
        weights = other(x).item() * torch.ones(3)
        found = FlatLayout.of(differentiated).views(shards.sum_of(name), differentiated)
        torch.testing.assert_close(found[0][0], weights)
        torch.testing.assert_close(found[1], weights[:1])


class Broken(CriticAndTarget):
    class Settings(CriticAndTarget.Settings):
        """Its temperature begins with what is not finite."""

    def models(self, interface: Any, network: Any) -> dict[str, Model]:
        def infinite() -> Temperature:
            temperature = Temperature()
            torch.nn.init.constant_(temperature.log, float("inf"))
            return temperature

        return {**super().models(interface, network), "temperature": Model(infinite, optimizer="sgd")}


def test_what_is_not_finite_moves_no_model(tmp_path: Path) -> None:
    with pytest.raises(TrainingDiverged, match="in update 0"):
        train(Config(replace(EXPERIMENT, algorithm=Broken.Settings()), quietly(tmp_path / "run")))


class Wrong(CriticAndTarget):
    declared: dict[str, Model]

    class Settings(CriticAndTarget.Settings):
        """Declares whatever a test asks for."""

    def models(self, interface: Any, network: Any) -> dict[str, Model]:
        return self.declared


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ({"policy": Model(lambda: Critic(4))}, "other than policy"),
        ({"target": Model(lambda: Critic(4), copies="critic")}, "declare that before it"),
        ({"a": Model(lambda: Critic(4)), "b": Model(lambda: Critic(5), copies="a")}, "which has other parameters"),
        ({"a": Model(lambda: Critic(4).double())}, "float64"),
        ({"a": Model(torch.nn.ReLU)}, "no parameters"),
    ],
)
def test_models_that_cannot_work_are_refused_before_anything_starts(
    models: dict[str, Model], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wrong, "declared", models, raising=False)
    with pytest.raises(ConfigError, match=problem):
        train(Config(replace(EXPERIMENT, algorithm=Wrong.Settings()), quietly(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_an_algorithm_without_models_has_none() -> None:
    interface: Any = None
    assert declared_models(Experiment("CartPole-v1", algorithm=PPO()), interface) == {}


def test_the_number_that_an_algorithm_asks_for_must_be_told(tmp_path: Path) -> None:
    silent = replace(EXPERIMENT, env="CartPole-v1")
    with pytest.raises(EnvironmentFailure, match=r"needs info\['height'\] at every step"):
        train(Config(silent, quietly(tmp_path / "run")))


class Counter(gymnasium.Env[Any, Any]):
    """Sees its own number of steps and episodes, of a nested space; ends or is cut as its episode says."""

    observation_space = spaces.Dict({"at": spaces.Box(-1, 99, (2,), np.float32), "parity": spaces.Discrete(2)})
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.episode = -1
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode, self.t = self.episode + 1, 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        is_over = self.t == 3 + self.episode % 2
        return self._seen(), 1.0, is_over and self.episode % 2 == 0, is_over and self.episode % 2 == 1, {}

    def _seen(self) -> Any:
        return {"at": np.array([self.episode, self.t], np.float32), "parity": self.t % 2}


SEEN: list[Any] = []


class Watches(CriticAndTarget):
    class Settings(CriticAndTarget.Settings):
        """Keeps what batches say of what followed."""

    def models(self, interface: Any, network: Any) -> dict[str, Model]:
        return {}

    def fields(self, interface: Any) -> list[Any]:
        return super().fields(interface)[:2]

    def improve(self, update: Any, draft: Any, batch: Any) -> dict[str, float]:
        steps, final = batch.steps, {name: x.clone() for name, x in batch.final.items()}  # views, gone with the run
        ends = steps.terminated_TB.clone(), steps.truncated_TB.clone()
        SEEN.append((batch.observations["obs/at"].clone(), batch.next_observations(), ends, final))
        return {}


@pytest.mark.parametrize("alter", [lambda e: e, lambda e: replace(e, schedule="async")], ids=["hts", "async"])
def test_final_observations_are_true_at_terminations_time_limits_and_rollout_borders(
    alter: Callable[[Experiment], Experiment],
) -> None:
    SEEN.clear()
    experiment = Experiment(Counter, algorithm=Watches.Settings(), num_envs=2, sync_interval=5, total_steps=100)
    run(alter(experiment), check_env=False)
    ends = {"terminated": 0, "truncated": 0, "border": 0, "border end": 0}
    for at, following, (terminated, truncated), final in SEEN:
        for t, b in np.ndindex(5, 2):
            (episode, step), (then_episode, then_step) = at[t, b].tolist(), following["obs/at"][t, b].tolist()
            assert (then_episode, then_step) == (episode, step + 1)
            assert following["obs/parity"][t, b] == (step + 1) % 2
            ended = bool(terminated[t, b] or truncated[t, b])
            ends["terminated"] += int(terminated[t, b])
            ends["truncated"] += int(truncated[t, b])
            ends["border end" if ended else "border"] += int(t == 4)
            if not ended and t < 4:
                assert not final["obs/at"][t, b].any(), "stored where it is needed alone"
    assert all(ends.values()), ends


def test_what_an_algorithm_asks_for_is_in_the_digest() -> None:
    fields = oracle().links[0].tensors.keys()
    assert {"final/obs", "step_info/height", "step_info/where"} <= fields


def test_a_field_that_nobody_writes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from htsrl.extending import Field

    monkeypatch.setattr(CriticAndTarget, "fields", lambda self, interface: [Field("mine", (), "float32")])
    with pytest.raises(ConfigError, match="'mine' that nobody writes"):
        train(Config(EXPERIMENT, quietly(tmp_path / "run")))


def test_the_configuration_of_several_models_names_the_algorithm(tmp_path: Path) -> None:
    train(Config(replace(EXPERIMENT, total_steps=20), quietly(tmp_path / "run")))
    document = json.loads((tmp_path / "run" / "config.json").read_text())
    assert document["experiment"]["algorithm"]["name"].endswith("critic_and_target:CriticAndTarget")
