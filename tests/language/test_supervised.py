"""Fine-tuning and reward models, and what comes of them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import make_folder, write_prompts

from htsrl.errors import ConfigError
from htsrl.language.model_folder import save_folder
from htsrl.language.reward_models import ModelReward, train_reward_model
from htsrl.language.rewards import Attempts, Texts
from htsrl.language.sft import sft
from htsrl.language.supervised import FitSettings

QUICKLY = FitSettings(learning_rate=1e-2, max_steps=40, per_device_train_batch_size=8)


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("model") / "model")


def test_a_model_learns_to_continue_as_examples_do_and_does_so_again(model: Path, tmp_path: Path) -> None:
    data = write_lines(tmp_path / "d.jsonl", [{"prompt": x, "completion": "aab"} for x in ("a cat", "we", "go", "it")])
    first, second = (sft(model, data, tmp_path / name, QUICKLY) for name in ("first", "second"))
    assert first.metrics["token_accuracy"] > 0.95
    assert first.digest == second.digest
    with pytest.raises(ConfigError, match="exists already"):
        sft(model, data, tmp_path / "first", QUICKLY)


def test_what_is_no_example_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 1 must have `prompt` and `completion`"):
        sft(model, write_lines(tmp_path / "d.jsonl", [{"prompt": "a"}]), tmp_path / "out")
    with pytest.raises(ConfigError, match="line 1 must have text as `rejected`"):
        train_reward_model(model, write_lines(tmp_path / "d.jsonl", [{"chosen": "a"}]), tmp_path / "out")


def test_a_reward_model_prefers_what_was_chosen(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [{"prompt": x, "chosen": " a" * n, "rejected": " z" * n} for x in ("cat", "dog", "we") for n in range(1, 8)]
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    trained = train_reward_model(model, write_lines(tmp_path / "p.jsonl", pairs), tmp_path / "rm", QUICKLY)
    assert trained.metrics["eval_accuracy"] == 1.0
    assert not caplog.messages, "a new head is no cause for a warning"
    reward = ModelReward(str(tmp_path / "rm"), Attempts(30.0, 1))
    texts = Texts(["my"] * 2, ["my"] * 2, [" aaa", " zzz"], [{}, {}])
    good, bad = reward.score(texts).scores
    assert good > bad
    assert np.array_equal(reward.score(texts).scores, [good, bad])
    nothing: Any = None  # whatever breaks the model
    broken = Texts(["my"], ["my"], [nothing], [{}])
    assert reward.score(broken).problem.startswith("raised TypeError: ")


def test_a_run_can_be_scored_by_a_reward_model_and_evaluated(model: Path, tmp_path: Path) -> None:
    from htsrl import Placement
    from htsrl.language.evaluate import evaluate_text
    from htsrl.language.rlhf import rlhf

    pairs = [{"prompt": "my", "chosen": " a" * n, "rejected": " z" * n} for n in range(1, 12)]
    settings = FitSettings(learning_rate=1e-2, max_steps=2)
    train_reward_model(model, write_lines(tmp_path / "p.jsonl", pairs), tmp_path / "rm", settings)
    prompts = write_prompts(tmp_path / "prompts.jsonl", ["we", "go"], reference=[" a", " b"])
    placement = Placement(backend="inline", run_dir=tmp_path / "run", tensorboard=False, progress="off")
    run_settings: dict[str, Any] = {"total_episodes": 8, "generation_batch_size": 8, "max_completion_length": 4}
    rlhf(model, prompts, str(tmp_path / "rm"), placement=placement, eval_prompts=str(prompts), **run_settings)
    found = evaluate_text(tmp_path / "run", num_prompts=2)
    assert found.num_scored == len(found.samples) == 2
    assert found.win_rate in (0.0, 0.5, 1.0)
    assert evaluate_text(tmp_path / "run", num_prompts=2, version=0).model == model


def test_a_folder_that_a_kill_left_aside_is_put_back_before_another_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Saved:
        """Model and tokenizer in one, whose files say which it is."""

        def __init__(self, text: str) -> None:
            self.text = text

        def save_pretrained(self, folder: Path) -> None:
            if self.text == "unwritable":
                raise OSError("the disk is full")
            folder.mkdir(exist_ok=True)
            (folder / "weights").write_text(self.text)

    target = tmp_path / "model"
    save_folder(target, Saved("first"), Saved("first"))
    target.rename(tmp_path / ".model.old")  # as a kill between the renames leaves it
    with pytest.raises(OSError, match="full"):
        save_folder(target, Saved("unwritable"), Saved("unwritable"))
    assert (target / "weights").read_text() == "first"
    save_folder(target, Saved("second"), Saved("second"))
    assert (target / "weights").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
