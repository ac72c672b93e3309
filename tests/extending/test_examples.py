"""The examples run through all that the runtime does for htsrl's own parts, and touch no file of it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from helpers import Outcome, assert_same_run, run

import htsrl
from examples import success_log
from examples.learn_twice import LearnTwice
from examples.reinforce import Reinforce
from examples.success_log import SuccessLog
from htsrl import A2C, PPO, Config, ConfigError, Experiment, Placement, evaluate, load_policy, resume, train
from htsrl.cli.main import main
from htsrl.config.file import from_document, resolve_algorithm, to_json
from htsrl.export import export
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE

ROOT = Path(htsrl.__file__).parents[1]
NUM_UPDATES = 30  # ten more than the example's schedule goes without a lag
_BASE = Experiment("CartPole-v1", {"max_episode_steps": 20}, num_envs=4, sync_interval=5, total_steps=NUM_UPDATES * 20)
REINFORCE = replace(_BASE, algorithm=Reinforce.Settings(learning_rate=3e-3), gradient_shards=2)
WARM = replace(_BASE, algorithm=A2C(anneal_learning_rate=False), schedule="examples.warm_start:WarmStart", lag=2)
TWICE = replace(_BASE, algorithm=PPO(epochs=1, num_minibatches=2), schedule="examples.learn_twice:LearnTwice")
TWICE = replace(TWICE, algorithm=replace(TWICE.algorithm, anneal_learning_rate=False), total_steps=12 * 20)
EXPERIMENTS = {"reinforce": REINFORCE, "warm": WARM, "twice": TWICE}


@cache
def oracle(name: str) -> Outcome:
    """Undisturbed, in this process."""
    return run(EXPERIMENTS[name], log_every_steps=1)


def quietly(run_dir: Path, **settings: Any) -> Placement:
    defaults: dict[str, Any] = {
        "backend": "inline",
        "run_dir": run_dir,
        "tensorboard": False,
        "progress": "off",
        "log_every_steps": 1,
    }
    return Placement(**(defaults | settings))


@pytest.mark.parametrize(
    ("name", "point"),
    [("reinforce", "before a gradient answer:5"), ("warm", "before a publish:22"), ("twice", "before a publish:6")],
)
def test_in_processes_of_which_one_is_killed_the_bits_are_those_of_one_process(
    name: str, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KILL_AT, point)  # for the workers alone: this process has imported the kill points before
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    workers = {"num_executors": 1, "learner_workers": EXPERIMENTS[name].gradient_shards}
    result = train(Config(EXPERIMENTS[name], quietly(tmp_path / "run", backend="processes", **workers)))
    assert result.restarts == 1
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(name))


def test_executors_do_without_torch_whatever_the_algorithm_imports(tmp_path: Path) -> None:
    def cartpole() -> gymnasium.Env[Any, Any]:  # here, so that it travels by value: importing this module needs torch
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and spec.name == "htsrl.placements.worker" and "torch" in sys.modules:
            raise RuntimeError("torch is here")
        return gymnasium.make("CartPole-v1")

    experiment = Experiment(cartpole, algorithm=Reinforce.Settings(), num_envs=2, sync_interval=8, total_steps=32)
    result = train(Config(experiment, quietly(tmp_path / "run", backend="processes", num_executors=1)))
    assert (result.updates, result.restarts) == (2, 0)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_run_is_resumed_to_the_same_bits(name: str, tmp_path: Path) -> None:
    half = replace(EXPERIMENTS[name], total_steps=EXPERIMENTS[name].total_steps * 2 // 3 + 20)
    train(Config(half, quietly(tmp_path / "run")))
    resume(tmp_path / "run", total_steps=EXPERIMENTS[name].total_steps)
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(name))


def test_the_policy_of_an_algorithm_of_ones_own_is_evaluated_loaded_and_exported(tmp_path: Path) -> None:
    train(Config(REINFORCE, quietly(tmp_path / "run")))
    assert len(evaluate(tmp_path / "run", episodes=2).returns) == 2
    policy = load_policy(tmp_path / "run")
    assert policy.version == NUM_UPDATES
    assert policy.action_space.contains(policy.act(policy.observation_space.sample())[0])
    assert export(tmp_path / "run", format="torch").version == NUM_UPDATES


def test_a_configuration_with_plug_ins_is_read_back_from_json() -> None:
    config = Config(replace(REINFORCE, schedule=WARM.schedule))
    document = json.loads(to_json(config))
    assert document["experiment"]["algorithm"]["name"] == "examples.reinforce:Reinforce"
    again = from_document(document)
    algorithm = resolve_algorithm(again.experiment.algorithm)
    assert replace(again, experiment=replace(again.experiment, algorithm=algorithm)) == config


def test_the_command_line_has_the_settings_of_plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    flags = ("--env-arg", "max_episode_steps=20", "--num-envs", "4", "--sync-interval", "5", "--total-steps", "600")
    how = ("--gradient-shards", "2", "--placement", "inline", "--no-tensorboard", "--log-every-steps", "1")
    algorithm = ("--algo", "examples.reinforce:Reinforce", "--learning-rate", "3e-3", "--progress", "off")
    with pytest.raises(SystemExit) as ended:
        main(["train", "CartPole-v1", *flags, *how, *algorithm, "--run-dir", str(tmp_path / "run")])
    assert ended.value.code == 0
    assert_same_run(Outcome.read(tmp_path / "run"), oracle("reinforce"))


def test_the_schedule_has_no_lag_at_first_and_never_more_than_it_says() -> None:
    lags = [line["hts/lag"] for line in oracle("warm").metrics]
    assert lags == [*[0.0] * 21, 1.0, *[2.0] * 8]


def test_every_rollout_is_learned_from_twice() -> None:
    links = oracle("twice").links
    assert [link.envs for link in links[::2]] == [link.envs for link in links[1::2]]
    assert len({link.envs for link in links}) == len(links) // 2
    assert [line["hts/lag"] for line in oracle("twice").metrics] == [0.0, 1.0, *[2.0, 3.0] * 5]


class SaysTooMuch(LearnTwice):
    """Its updates do not learn from the rollouts of their numbers."""

    mixes_versions = False


def test_a_schedule_that_promises_one_rollout_for_each_update_is_held_to_it() -> None:
    with pytest.raises(ConfigError, match=r"update 1 learns from rollout 0, .* say mixes_versions = True"):
        run(replace(TWICE, schedule=f"{__name__}:SaysTooMuch"))


def test_what_a_schedule_says_of_itself_is_what_settings_follow_from() -> None:
    assert WARM.overlaps_learning
    assert not replace(WARM, lag=0).overlaps_learning
    assert not WARM.mixes_versions


def test_a_changed_plug_in_is_noticed_when_a_run_is_resumed(tmp_path: Path) -> None:
    train(Config(replace(REINFORCE, schedule=WARM.schedule, total_steps=20), quietly(tmp_path / "run")))
    modules = json.loads((tmp_path / "run" / "fingerprint.json").read_text())["own_modules"]
    assert {"examples.reinforce", "examples.warm_start"} <= modules.keys()
    changed = (tmp_path / "run" / "fingerprint.json").read_text().replace(modules["examples.reinforce"], "another")
    (tmp_path / "run" / "fingerprint.json").write_text(changed)
    with pytest.raises(ConfigError, match=r"examples\.reinforce"):
        resume(tmp_path / "run", total_steps=40)


def test_a_schedule_of_ones_own_needs_no_torch() -> None:
    """Executors make it, too."""
    script = "import sys, examples.warm_start; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, timeout=120)


class Successful(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Every episode is a success, and tells how cold it was."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "is_success": True, "degrees": -3}


def make_successful(**arguments: Any) -> gymnasium.Env[Any, Any]:
    return Successful(gymnasium.make("CartPole-v1", **arguments))


def test_the_observer_writes_a_table_of_episodes_and_stops_when_successes_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(success_log, "WINDOW", 5)
    experiment = replace(_BASE, env=make_successful, algorithm=A2C(), total_steps=100_000)
    result = train(Config(experiment, quietly(tmp_path / "run")), observers=[SuccessLog()])
    assert result.stop_reason == "5 of the last 5 episodes were successes"
    table = list(csv.DictReader((tmp_path / "run" / "episodes.csv").open()))
    assert len(table) >= 5
    assert table[0].keys() == set(success_log.COLUMNS)
    assert {row["success"] for row in table} == {"1"}
    assert all(float(row["return"]) == int(row["length"]) for row in table)


def test_the_observers_table_is_the_same_after_a_kill_and_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(Config(REINFORCE, quietly(tmp_path / "whole")), observers=[SuccessLog()])
    table = (tmp_path / "whole" / "episodes.csv").read_text()

    half = replace(REINFORCE, total_steps=REINFORCE.total_steps // 2)
    monkeypatch.setenv(KILL_AT, "before a publish:7")  # of an update that was reported already
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    placement = quietly(tmp_path / "run", backend="processes", num_executors=1)
    result = train(Config(half, placement), observers=[SuccessLog()])
    assert result.restarts == 1
    later = f"{NUM_UPDATES},600,0,1.0,1,\n{NUM_UPDATES},60"  # as of a process that was killed after the checkpoint
    (tmp_path / "run" / "episodes.csv").open("a").write(later)
    resume(tmp_path / "run", total_steps=REINFORCE.total_steps, observers=[SuccessLog()])
    assert (tmp_path / "run" / "episodes.csv").read_text() == table


def test_an_evaluation_has_the_numbers_of_info(tmp_path: Path) -> None:
    experiment = replace(_BASE, env=make_successful, algorithm=A2C(), total_steps=20)
    train(Config(experiment, quietly(tmp_path / "run", log_info=("degrees",))))
    evaluation = evaluate(tmp_path / "run", episodes=2, env=make_successful, log_info=("nobody_tells",))
    assert evaluation.success_rate == 1.0
    assert evaluation.info_means == {"is_success": 1.0, "degrees": -3.0}
