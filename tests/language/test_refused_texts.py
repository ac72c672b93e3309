"""One clear error before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_folder, make_tokenizer, write_prompts

from htsrl import Config
from htsrl.errors import ConfigError
from htsrl.language.rlhf import rlhf_config
from htsrl.language.survey import draw_text_blueprint


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("task")
    return {
        "model": make_folder(folder / "model"),
        "prompts": write_prompts(folder / "prompts.jsonl"),
        "reward_funcs": "text_rewards:vowels",
    }


def look(**settings: Any) -> Config:
    """What a run does before it starts anything."""
    config = rlhf_config(generation_batch_size=8, max_completion_length=4, **settings)
    draw_text_blueprint(config)
    return config


def test_a_folder_that_is_no_model(task: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no folder"):
        look(**{**task, "model": tmp_path / "nowhere"})
    with pytest.raises(ConfigError, match=r"holds no config\.json"):
        look(**{**task, "model": tmp_path})
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds no safetensors"):
        look(**{**task, "model": tmp_path})
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        look(**{**task, "model": tmp_path})


@pytest.mark.parametrize(("file", "kind"), [("config.json", "AutoConfig"), ("tokenizer_config.json", "AutoTokenizer")])
def test_code_of_a_models_folder_is_neither_run_nor_asked_about(
    file: str, kind: str, task: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, mark = make_folder(tmp_path / "m"), tmp_path / "executed"
    (folder / "theirs.py").write_text(f"open({str(mark)!r}, 'w')")
    named = "theirs.Thing" if kind == "AutoConfig" else ["theirs.Thing", None]
    document = json.loads((folder / file).read_text()) | {"auto_map": {kind: named}}
    document |= {"model_type": "theirs"} if kind == "AutoConfig" else {"tokenizer_class": "Theirs"}
    (folder / file).write_text(json.dumps(document))
    if kind == "AutoTokenizer":
        (folder / "tokenizer.json").unlink()
    monkeypatch.setattr("builtins.input", lambda prompt: "y")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        look(**{**task, "model": folder})
    assert not mark.exists()


def test_an_encoder_decoder_model(task: dict[str, Any], tmp_path: Path) -> None:
    from transformers import T5Config

    T5Config(d_model=8, num_layers=1, num_heads=1).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match="is an encoder-decoder model"):
        look(**{**task, "model": tmp_path})


def test_a_model_with_sliding_windows(task: dict[str, Any], tmp_path: Path) -> None:
    make_folder(tmp_path / "m", "qwen3", use_sliding_window=True, sliding_window=4, max_window_layers=0)
    with pytest.raises(ConfigError, match="has layers of sliding_attention"):
        look(**{**task, "model": tmp_path / "m"})


def test_a_tokenizer_without_an_end(task: dict[str, Any], tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    make_tokenizer(eos_token=None).save_pretrained(folder)
    with pytest.raises(ConfigError, match="has no eos_token"):
        look(**{**task, "model": folder})


def test_a_tokenizer_without_padding_does(task: dict[str, Any], tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    make_tokenizer(pad_token=None).save_pretrained(folder)
    look(**{**task, "model": folder})


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "holds no lines"),
        ("{", "is not JSON"),
        ("[]", "must be an object with a prompt"),
        ('{"text": "a"}', "must be an object with a prompt"),
        ('{"prompt": ""}', "has no tokens"),
        ('{"prompt": 3}', "must be text, or a list of messages"),
        (json.dumps({"prompt": "a" * 70}), "over the model's context of 64"),
    ],
)
def test_prompts_that_cannot_be_used(lines: str, message: str, task: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(lines)
    with pytest.raises(ConfigError, match=message):
        look(**{**task, "prompts": tmp_path / "p.jsonl"})


def test_a_chat_template_that_fails(task: dict[str, Any], tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path / "p.jsonl", [[{"role": "user", "content": "hello"}]])
    task = {**task, "reward_funcs": "text_rewards:ones"}
    look(**{**task, "prompts": prompts})
    folder = make_folder(tmp_path / "m")
    make_tokenizer(chat_template="{{ raise_exception('no') }}").save_pretrained(folder)
    with pytest.raises(ConfigError, match="chat template does not take these messages"):
        look(**{**task, "prompts": prompts, "model": folder})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0.0}, "temperature=0.0 must be above 0"),
        ({"num_generations": 1}, "num_generations=1 is too few"),
        ({"num_generations": 3}, "is no multiple of num_generations=3; use 6"),
        ({"steps_per_generation": 3}, "do not divide into steps_per_generation=3"),
        ({"top_p": 0.9}, "'top_p' is no setting of a run on text"),
        ({"reward_weights": [1.0, 2.0]}, "are 2 numbers for 1 reward_funcs"),
        ({"reward_funcs": "text_rewards:raises"}, "raised RuntimeError: no such service"),
        ({"reward_funcs": "no_such_module:f"}, "cannot be imported"),
        ({"reward_funcs": "text_rewards"}, "neither MODULE:FUNCTION nor the folder of a reward model"),
        ({"algorithm": "dpo"}, "algo 'dpo' is not known; use best_of_k"),
        ({"max_prompt_length": 3}, "over max_prompt_length=3"),
        ({"schedule": "async"}, "mixes versions"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], message: str, task: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        look(**{**task, **settings})


def test_algorithms_for_environments_learn_from_no_texts(task: dict[str, Any]) -> None:
    from dataclasses import replace

    from htsrl import PPO

    config = rlhf_config(**task, generation_batch_size=8)
    with pytest.raises(ConfigError, match="ppo does not learn from texts"):
        draw_text_blueprint(replace(config, experiment=replace(config.experiment, algorithm=PPO())))
