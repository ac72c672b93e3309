"""Runs in bfloat16: placements, shards, kills and resumes change no bit, and precision is said by name."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import Outcome, assert_same_run, run
from interrupted_runs import interrupted

import htsrl
from htsrl import A2C, DQN, PPO, Config, ConfigError, Experiment, Network, Placement, numerics, resume
from htsrl.digest import first_difference
from htsrl.policies import half_precision
from htsrl.policies.policy import Policy
from htsrl.roles import torch_answers
from htsrl.train import resume_or_start

HALF = Network(precision="bfloat16")
PIXELS = Experiment(
    "htsrl/PixelCatch-v0", {"step_limit": 17}, algorithm=A2C(), network=HALF, num_envs=8, total_steps=320
)
EXPERIMENTS = {
    "a2c": PIXELS,
    "ppo": replace(PIXELS, algorithm=PPO(epochs=2, num_minibatches=4), sync_interval=16, gradient_shards=4),
    "lstm": replace(PIXELS, network=replace(HALF, recurrent="lstm", recurrent_size=8), gradient_shards=3),
    "impala": replace(
        PIXELS, algorithm=PPO(epochs=1, num_minibatches=2), sync_interval=8, network=replace(HALF, encoder="impala")
    ),
    "dqn": replace(
        PIXELS,
        algorithm=DQN(learning_starts=40, replay_capacity=200, minibatch_size=8, target_period=5, update_to_data=0.2),
        sync_interval=5,
        total_steps=200,
    ),
}
PROCESSES: list[tuple[str, dict[str, Any]]] = [
    ("a2c", {"num_executors": 4, "num_actors": 2, "jitter_seconds": 1e-3}),
    ("ppo", {"num_executors": 2, "num_actors": 1, "learner_workers": 2, "verify_storages": True}),
    ("lstm", {"num_executors": 2, "num_actors": 0, "learner_workers": 3}),
    ("dqn", {"num_executors": 2, "num_actors": 0}),
]


@cache
def oracle(name: str) -> Outcome:
    return run(EXPERIMENTS[name], num_executors=1, num_actors=0)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_executors_and_actors_change_no_bit(name: str) -> None:
    assert_same_run(run(EXPERIMENTS[name], num_executors=4, num_actors=2, jitter_seconds=2e-4), oracle(name))


@pytest.mark.parametrize(("name", "placement"), PROCESSES, ids=[name for name, _ in PROCESSES])
def test_processes_and_those_who_share_gradients_change_no_bit(name: str, placement: dict[str, Any]) -> None:
    assert_same_run(run(EXPERIMENTS[name], backend="processes", **placement), oracle(name))


@pytest.mark.parametrize("name", ["a2c", "ppo"])
def test_a_resumed_run_ends_as_one_that_was_never_interrupted(name: str, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    interrupted(experiment, experiment.num_intervals - 2, num_executors=2, run_dir=tmp_path / "run")
    resume(tmp_path / "run")
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(name))


def test_it_is_another_run_than_in_float32() -> None:
    float32 = run(replace(PIXELS, network=Network()))
    assert first_difference(float32.links, oracle("a2c").links) is not None


def test_actors_that_go_on_with_the_copies_of_an_old_version_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests above can fail."""
    of = torch_answers.CopiesByVersion.of

    def of_an_old_one(self: torch_answers.CopiesByVersion, version: int, policy: Policy) -> Any:
        held = self._held.get(self._slot_of(version))
        return of(self, held[0] if held else version, policy)

    monkeypatch.setattr(torch_answers.CopiesByVersion, "of", of_an_old_one)
    stale = run(EXPERIMENTS["a2c"], num_executors=1, num_actors=0)
    assert first_difference(stale.links, oracle("a2c").links) is not None


def test_what_auto_has_chosen_is_written_down_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    auto = replace(PIXELS, network=Network(precision="auto"))
    placement = Placement("inline", tensorboard=False, progress="off", run_dir=tmp_path / "run")
    result = htsrl.train(Config(auto, placement))
    assert result.digest == oracle("a2c").digest
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    assert written["experiment"]["network"]["precision"] == "bfloat16"
    assert resume_or_start(Config(auto, placement)).digest == result.digest


def test_a_resume_with_other_instructions_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(PIXELS, PIXELS.num_intervals - 2, num_executors=2, run_dir=tmp_path / "run")
    here = numerics.bfloat16_instructions() or "no instructions"
    monkeypatch.setattr(numerics, "bfloat16_instructions", lambda: "instructions_of_another_cpu")
    with pytest.raises(ConfigError, match=f"bfloat16: {here}, .* / instructions_of_another_cpu"):
        resume(tmp_path / "run")


def test_a_policy_is_loaded_evaluated_and_exported(tmp_path: Path) -> None:
    placement = Placement("inline", tensorboard=False, progress="off", run_dir=tmp_path / "run")
    htsrl.train(Config(EXPERIMENTS["a2c"], placement))
    trained = htsrl.load_policy(tmp_path / "run")
    assert half_precision.half_encoders(trained.policy)
    one, other = (htsrl.evaluate(tmp_path / "run", episodes=4, seed=3).returns for _ in range(2))
    assert one == other
    assert max(htsrl.export(tmp_path / "run", format="torch").differences.values()) < 1e-4
