"""Runs on text: the same bits on every placement, after kills, and after resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import make_files, only_where_products_agree, write_prompts

import htsrl
from htsrl import Placement
from htsrl.cli.main import main
from htsrl.digest import read_links
from htsrl.language.rlhf import rlhf, rlhf_config
from htsrl.language.survey import draw_text_blueprint
from htsrl.metrics.result import RunResult
from htsrl.runs.comparison import compare
from htsrl.runs.folder import RunFolder

UPDATES = 4
BATCH = 16
QUIET: dict[str, Any] = {"tensorboard": False, "progress": "off", "log_every_steps": BATCH, "timeline": False}
SETTINGS: dict[str, Any] = {
    "total_episodes": UPDATES * BATCH,
    "generation_batch_size": BATCH,
    "num_generations": 2,
    "max_completion_length": 8,
    "temperature": 0.9,
    "learning_rate": 1e-2,
    "seed": 5,
}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {**make_files(tmp_path_factory.mktemp("task")), "reward_funcs": "text_rewards:vowels"}


def run(task: dict[str, Any], run_dir: Path, backend: Any = "inline", **settings: Any) -> RunResult:
    placement = {name: settings.pop(name) for name in list(settings) if name in Placement.__dataclass_fields__}
    return rlhf(
        **{**task, **SETTINGS, **settings},
        placement=Placement(backend=backend, run_dir=run_dir, **{**QUIET, **placement}),
    )


@pytest.fixture(scope="module")
def oracle(task: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """RLOO, all in this process; every log-probability of the generator is verified by the learner."""
    return run(task, tmp_path_factory.mktemp("runs") / "oracle", verify_storages=True)


def metrics_of(result: RunResult) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(result.run_dir) / "metrics.jsonl").read_text().splitlines()]


def test_a_run_has_a_lag_of_one_and_learns(oracle: RunResult) -> None:
    lines = metrics_of(oracle)
    assert [line["hts/lag"] for line in lines] == [0, 1, 1, 1]
    assert {"reward/mean", "objective/kl", "train/loss", "completions/mean_length"} <= lines[0].keys()
    assert lines[0]["objective/kl"] == 0
    assert lines[-1]["objective/kl"] != 0
    assert oracle.updates == UPDATES
    assert not oracle.interrupted


def test_processes_that_are_killed_have_the_bits_of_one_process(
    task: dict[str, Any], oracle: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generators before and after a block counts, and the learner between optimizer step and publication."""
    monkeypatch.setenv("HTSRL_KILL_AT", "before a block counts:3, after a block counts:2, optimizer step:2")
    monkeypatch.setenv("HTSRL_KILL_ONCE", str(tmp_path / "killed"))
    other = run(task, tmp_path / "other", "processes", num_executors=2, jitter_seconds=0.01, timeline=True)
    assert other.restarts == 3
    assert compare(Path(oracle.run_dir), Path(other.run_dir)).lines == ["identical"]


@pytest.mark.parametrize(
    "updates", [2, *(pytest.param(updates, marks=pytest.mark.slow) for updates in range(1, UPDATES) if updates != 2)]
)
def test_a_run_resumed_from_any_barrier_ends_with_the_same_bits(
    updates: int, task: dict[str, Any], oracle: RunResult, tmp_path: Path
) -> None:
    run(task, tmp_path / "run", total_episodes=updates * BATCH)
    assert len(read_links(tmp_path / "run")) == updates
    quiet = Placement(backend="inline", **QUIET)
    assert htsrl.resume(tmp_path / "run", total_steps=UPDATES * BATCH, placement=quiet).digest == oracle.digest


def test_the_result_is_an_ordinary_model_folder(task: dict[str, Any], oracle: RunResult) -> None:
    import transformers

    folder = Path(oracle.run_dir) / "model"
    before, after = (transformers.AutoModelForCausalLM.from_pretrained(x) for x in (task["model"], folder))
    assert any(not torch.equal(a, b) for a, b in zip(before.parameters(), after.parameters(), strict=True))
    assert transformers.AutoTokenizer.from_pretrained(folder)("cat")["input_ids"] == [5, 3, 22]
    assert "htsrl" not in (folder / "config.json").read_text()


def test_the_command_trains_without_a_lag_and_shows_samples(
    task: dict[str, Any], oracle: RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
    named = [f"--{name}={task[name]}" for name in ("model", "prompts")]
    quietly = ["--placement=inline", "--schedule=sync", "--verify-storages", "--quiet", "--no-tensorboard"]
    run_dir = tmp_path / "sync"
    with pytest.raises(SystemExit) as ended:
        main(["rlhf", *named, f"--reward={task['reward_funcs']}", *flags, *quietly, f"--run-dir={run_dir}"])
    assert ended.value.code == 0
    result = RunFolder.existing(run_dir).run_result()
    assert [line["hts/lag"] for line in metrics_of(result)] == [0] * UPDATES
    assert result.digest != oracle.digest
    with pytest.raises(SystemExit) as ended:
        main(["eval", str(run_dir), "--episodes=3", "--reward=text_rewards:ones", "--sampled"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert result.digest in shown
    assert "a cat -> " in shown
    assert "reward   1 over 3 prompts" in shown


def test_samples_can_be_read_while_the_run_goes_on(oracle: RunResult) -> None:
    lines = [json.loads(line) for line in (Path(oracle.run_dir) / "samples.jsonl").read_text().splitlines()]
    assert [(line["rollout"], line["version"]) for line in lines] == [(0, 0)] * 4
    assert lines[0]["prompt"] == lines[1]["prompt"]
    assert lines[0]["completion"] != lines[1]["completion"]


def test_what_is_for_environments_says_where_the_model_is(oracle: RunResult) -> None:
    looks: list[Callable[[Path], object]] = [htsrl.load_policy, htsrl.evaluate, lambda run: htsrl.replay(run, 1, 0)]
    for look in looks:
        with pytest.raises(htsrl.ConfigError, match="has no environments and no policy for them; its model is in"):
            look(oracle.run_dir)


def test_the_command_refuses_top_p(task: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    named = [f"--{name}={task[name]}" for name in ("model", "prompts")]
    with pytest.raises(SystemExit) as ended:
        main(["rlhf", *named, f"--reward={task['reward_funcs']}", "--top-p=0.9"])
    assert ended.value.code == 2
    assert "top_p=0.9 cuts off part of the distribution" in capsys.readouterr().err


OTHERS: dict[str, Any] = {
    "steps_per_generation": 2,
    "num_iterations": 2,
    "total_episodes": 2 * BATCH,
    "gradient_shards": 2,
    "num_generations": 4,
}


def test_gradients_that_others_take_have_the_same_bits(task: dict[str, Any], tmp_path: Path) -> None:
    inline = run(task, tmp_path / "inline", algorithm="online_dpo", **OTHERS)
    other = run(task, tmp_path / "processes", "processes", algorithm="online_dpo", learner_workers=2, **OTHERS)
    assert other.digest == inline.digest
    assert metrics_of(inline)[-1]["train/accuracy"] > 0


@pytest.mark.parametrize("algorithm", ["grpo", "ppo", "best_of_k"])
def test_every_algorithm_moves_the_model(algorithm: str, task: dict[str, Any], tmp_path: Path) -> None:
    beta = {} if algorithm == "best_of_k" else {"beta": 0.1}
    rewards = {"reward_funcs": ["text_rewards:slow_vowels", "text_rewards:shortness"], "reward_weights": [1.0, 0.1]}
    result = run({**task, **rewards}, tmp_path / "run", algorithm=algorithm, missing_eos_penalty=1.0, **beta, **OTHERS)
    lines = metrics_of(result)
    assert lines[-1]["train/gradient_norm"] > 0
    assert lines[-1]["rollout/info/shortness"] < 0
    links = read_links(Path(result.run_dir))
    assert links[0].parameters != links[1].parameters


@only_where_products_agree
def test_recomputed_log_probabilities_take_the_place_of_others(
    task: dict[str, Any], oracle: RunResult, tmp_path: Path
) -> None:
    settings = {"recompute_log_probs": True, "total_episodes": 2 * BATCH, "num_executors": 2}
    result = run(task, tmp_path / "recomputed", **settings)
    # Here the two agree, so that only what is stored differs.
    assert metrics_of(result)[1]["sampling/log_prob_difference"] == 0
    assert read_links(Path(result.run_dir))[1].parameters == read_links(Path(oracle.run_dir))[1].parameters


def test_adapters_alone_are_learned_and_survive_a_resume(task: dict[str, Any], tmp_path: Path) -> None:
    import transformers

    settings = {"lora_r": 2, "verify_storages": True}
    whole = run(task, tmp_path / "whole", total_episodes=2 * BATCH, **settings)
    run(task, tmp_path / "half", total_episodes=BATCH, **settings)
    quiet = Placement(backend="inline", **QUIET)
    assert htsrl.resume(tmp_path / "half", total_steps=2 * BATCH, placement=quiet).digest == whole.digest
    before, after = (
        transformers.AutoModelForCausalLM.from_pretrained(x) for x in (task["model"], tmp_path / "whole" / "model")
    )
    assert torch.equal(before.model.embed_tokens.weight, after.model.embed_tokens.weight)
    assert not torch.equal(before.model.layers[0].mlp.up_proj.weight, after.model.layers[0].mlp.up_proj.weight)


def test_completions_without_a_score_are_counted_and_left_out(task: dict[str, Any], tmp_path: Path) -> None:
    failing = {**task, "reward_funcs": "text_rewards:fails_for_some"}
    lines = metrics_of(run(failing, tmp_path / "run", reward_attempts=1, total_episodes=2 * BATCH))
    # Sixteen prompts are drawn out of nine, so that one once or twice, with two completions each time.
    assert sum(line["reward/failed"] for line in lines) in (2, 4)


def test_another_prompt_file_is_another_run(task: dict[str, Any], tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path / "prompts.jsonl")
    config = rlhf_config(**{**task, "prompts": prompts}, **SETTINGS)
    write_prompts(prompts, ["something else"])
    with pytest.raises(htsrl.ConfigError, match="changed since the run began"):
        draw_text_blueprint(config)


def test_a_configuration_survives_its_file(task: dict[str, Any]) -> None:
    from htsrl.config.file import from_document, resolve_algorithm, to_json

    config = rlhf_config(**task, **SETTINGS)
    read = from_document(json.loads(to_json(config)))
    experiment = replace(read.experiment, algorithm=resolve_algorithm(read.experiment.algorithm))
    assert replace(read, experiment=experiment) == config
