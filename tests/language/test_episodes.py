"""Completions of several turns, which barriers find unfinished: the same bits, nothing dropped or learned twice."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_folder, only_where_products_agree, write_prompts

import htsrl
from htsrl import Placement
from htsrl.cli.main import main
from htsrl.digest import read_links
from htsrl.errors import HtsrlError
from htsrl.language.fields import ENVIRONMENT, check_versions
from htsrl.language.rlhf import rlhf
from htsrl.metrics.result import RunResult
from htsrl.runs.comparison import compare

UPDATES = 6
BATCH = 16
QUIET: dict[str, Any] = {"tensorboard": False, "progress": "off", "log_every_steps": BATCH, "timeline": False}
SETTINGS: dict[str, Any] = {
    "total_episodes": UPDATES * BATCH,
    "generation_batch_size": BATCH,
    "num_generations": 2,
    "max_completion_length": 24,
    "temperature": 0.9,
    "learning_rate": 1e-2,
    "seed": 5,
}
DIALOGUE: dict[str, Any] = {"environment": "text_environments:Dialogue", "max_turns": 4, "max_turn_length": 5}
CARRIED = {**DIALOGUE, "turns_per_rollout": 1}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("task")
    return {"model": make_folder(folder / "model"), "prompts": write_prompts(folder / "prompts.jsonl")}


def run(task: dict[str, Any], run_dir: Path, backend: Any = "inline", **settings: Any) -> RunResult:
    """Every log-probability is verified in the rollout that drew it."""
    placement = {name: settings.pop(name) for name in list(settings) if name in Placement.__dataclass_fields__}
    return rlhf(
        **{**task, **SETTINGS, **settings},
        placement=Placement(backend=backend, run_dir=run_dir, **{**QUIET, "verify_storages": True, **placement}),
    )


@pytest.fixture(scope="module")
def oracle(task: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """RLOO with one turn in a rollout, all in this process."""
    return run(task, tmp_path_factory.mktemp("runs") / "oracle", **CARRIED)


def metrics_of(result: RunResult) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(result.run_dir) / "metrics.jsonl").read_text().splitlines()]


def parameters_of(result: RunResult) -> list[str]:
    return [link.parameters for link in read_links(Path(result.run_dir))]


def test_an_environment_of_one_turn_is_a_reward_function(task: dict[str, Any], tmp_path: Path) -> None:
    rewards = run({**task, "reward_funcs": "text_rewards:vowels"}, tmp_path / "reward")
    environment = run(task, tmp_path / "environment", environment="text_environments:OneTurn")
    assert parameters_of(environment) == parameters_of(rewards)
    assert len(set(parameters_of(rewards))) == UPDATES


def test_unfinished_episodes_are_carried_with_the_version_of_every_token(oracle: RunResult) -> None:
    lines = metrics_of(oracle)
    assert lines[0]["episodes/carried"] == BATCH  # nobody ends in one turn with this model
    assert max(line["episodes/mean_turns"] or 0 for line in lines) > 2
    # Three rollouts after the version that drew its first turn, at most: one for each turn, and the lag.
    assert max(line["episodes/max_token_lag"] or 0 for line in lines) == 3
    assert [line["hts/lag"] for line in lines] == [0, *[1] * (UPDATES - 1)]
    samples = [json.loads(line) for line in (Path(oracle.run_dir) / "samples.jsonl").read_text().splitlines()]
    assert samples[0]["turns"] == 1
    assert samples[0]["drawn_by"] == [0]


def test_processes_that_are_killed_within_episodes_have_the_bits_of_one_process(
    task: dict[str, Any], oracle: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = "inside an episode:9, before a block counts:5, after a block counts:3, optimizer step:2"
    monkeypatch.setenv("HTSRL_KILL_AT", kills)
    monkeypatch.setenv("HTSRL_KILL_ONCE", str(tmp_path / "killed"))
    other = run(task, tmp_path / "other", "processes", num_executors=2, jitter_seconds=0.01, timeline=True, **CARRIED)
    assert other.restarts == 4
    assert compare(Path(oracle.run_dir), Path(other.run_dir)).lines == ["identical"]


def test_a_slow_environment_and_one_that_works_at_the_second_attempt_change_no_bit(
    task: dict[str, Any], oracle: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS_ONCE", str(tmp_path / "failed"))
    for name in ("SlowDialogue", "FailsOnce"):
        assert run(task, tmp_path / name, **{**CARRIED, "environment": f"text_environments:{name}"}).digest == (
            oracle.digest
        )
    assert (tmp_path / "failed").is_dir()


@pytest.mark.parametrize(
    "updates", [2, *(pytest.param(updates, marks=pytest.mark.slow) for updates in range(1, UPDATES) if updates != 2)]
)
def test_a_run_resumed_from_any_barrier_goes_on_with_its_episodes(
    updates: int, task: dict[str, Any], oracle: RunResult, tmp_path: Path
) -> None:
    run(task, tmp_path / "run", total_episodes=updates * BATCH, **CARRIED)
    quiet = Placement(backend="inline", **QUIET)
    assert htsrl.resume(tmp_path / "run", total_steps=UPDATES * BATCH, placement=quiet).digest == oracle.digest


@pytest.mark.parametrize("budget", [{"turns_per_rollout": 1}, {"tokens_per_rollout": 3}])
def test_a_budget_changes_when_episodes_are_learned_from_and_not_what_they_are(
    budget: dict[str, int], task: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a model that stays as it is: then versions do not matter."""
    task, noted = {**task, "reward_funcs": "text_rewards:notes"}, []
    for name, limits in (("whole", {}), ("carried", budget)):
        monkeypatch.setenv("NOTES", str(tmp_path / name))
        settings = {**DIALOGUE, "learning_rate": 1e-30, "total_episodes": 12 * BATCH, **limits}
        run(task, tmp_path / f"run {name}", **settings)
        lines = (tmp_path / name).read_text().splitlines()[2:]  # the first two were asked about before the run
        noted.append([(prompt, text) for prompt, text in map(json.loads, lines)])
    whole, carried = noted
    assert max(len(text) for _, text in carried) > 15
    assert BATCH < len(carried) < len(whole)
    assert Counter(carried) - Counter(whole) == Counter()  # nothing else, and nothing twice
    assert Counter(whole[:BATCH]) - Counter(carried) == Counter()  # nothing dropped, however long it takes


def test_tokens_per_rollout_carries_long_completions_without_an_environment(
    task: dict[str, Any], tmp_path: Path
) -> None:
    budget = {"tokens_per_rollout": 7, "reward_funcs": "text_rewards:vowels", "schedule": "sync"}
    lines = metrics_of(run(task, tmp_path / "run", **budget))
    assert max(line["episodes/max_token_lag"] or 0 for line in lines) == 3  # 24 tokens are four parts
    assert lines[0]["episodes/carried"] == BATCH


@pytest.mark.parametrize("algorithm", ["grpo", "ppo", "online_dpo", "best_of_k"])
def test_every_algorithm_learns_from_episodes(algorithm: str, task: dict[str, Any], tmp_path: Path) -> None:
    both = {"reward_funcs": "text_rewards:vowels", "gradient_shards": 2, **CARRIED}
    beta = {} if algorithm == "best_of_k" else {"beta": 0.1}
    result = run(task, tmp_path / "run", algorithm=algorithm, **beta, **both)
    # Nothing has ended in the first rollout, and so nothing moves.
    begun = parameters_of(result)
    assert len(set(begun)) > 2
    assert metrics_of(result)[-1]["train/gradient_norm"] > 0


@only_where_products_agree
def test_log_probabilities_that_are_computed_again_are_those_of_the_version_that_drew(
    task: dict[str, Any], oracle: RunResult, tmp_path: Path
) -> None:
    result = run(task, tmp_path / "run", recompute_log_probs=True, num_executors=2, **CARRIED)
    assert {line["sampling/log_prob_difference"] for line in metrics_of(result)} == {0}
    assert parameters_of(result) == parameters_of(oracle)


def test_episodes_whose_environment_fails_are_counted_and_left_out(
    task: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failing = {**DIALOGUE, "environment": "text_environments:FailsForSome"}
    lines = metrics_of(run(task, tmp_path / "run", **failing))
    assert sum(line["reward/failed"] for line in lines) > 0
    assert all(line["reward/failed"] < BATCH for line in lines)
    assert capfd.readouterr().err.count("raised RuntimeError: the tool is broken") == 1


@pytest.mark.parametrize("name", ["HangsLater", "HangsInSilence"])
def test_an_environment_that_hangs_has_failed(name: str, task: dict[str, Any], tmp_path: Path) -> None:
    hanging = {**DIALOGUE, "environment": f"text_environments:{name}"}
    limits = {"environment_seconds": 1.0, "environment_attempts": 1, "total_episodes": 2 * BATCH}
    lines = metrics_of(run(task, tmp_path / "run", **{**hanging, **limits}))
    assert sum(line["reward/failed"] for line in lines) > 0


def test_an_environment_that_fails_for_all_ends_the_run(
    task: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from text_environments import Dialogue

    def step(self: Dialogue, text: str) -> Any:
        if os.environ.get("BROKEN"):
            raise RuntimeError("gone")
        os.environ["BROKEN"] = "yes"  # it was looked at before the run
        return "", 0.0, True

    monkeypatch.delenv("BROKEN", raising=False)
    monkeypatch.setattr(Dialogue, "step", step)
    with pytest.raises(HtsrlError, match="answered none of 16 episodes; the last time it raised RuntimeError: gone"):
        run(task, tmp_path / "run", **DIALOGUE)
    monkeypatch.delenv("BROKEN")


def test_an_evaluation_plays_episodes_to_their_end(oracle: RunResult, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["eval", str(oracle.run_dir), "--episodes=5", "--sampled"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "over 5 prompts" in shown
    assert "so" in shown  # the environment's words


def test_the_command_takes_an_environment(
    task: dict[str, Any], oracle: RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**task, **SETTINGS, **CARRIED, "run_dir": tmp_path / "run", "placement": "inline"}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    with pytest.raises(SystemExit) as ended:
        main(["rlhf", *flags, "--quiet", "--no-tensorboard"])
    assert ended.value.code == 0
    assert oracle.digest in capsys.readouterr().out


def test_tokens_of_another_version_than_the_one_that_acts_are_found_out() -> None:
    check_versions([3, 3, ENVIRONMENT, 4, 5, 5], carried=4, acting=5, earliest=3)
    for versions, carried in (([5, 4], 0), ([4, 3, 5], 2), ([2, 5], 1), ([6, 5], 1)):
        with pytest.raises(AssertionError):
            check_versions(versions, carried, acting=5, earliest=3)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_serves_rewards_and_environments_ends_with_the_run(task: dict[str, Any], tmp_path: Path) -> None:
    def serving() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name in ("rewards", "environments")]

    others = serving()
    run(task, tmp_path / "run", reward_funcs=["text_rewards:vowels", "text_rewards:slow_vowels"], **CARRIED)
    for thread in set(serving()) - set(others):
        thread.join(60)
        assert not thread.is_alive(), thread.name
