"""Supervised fine-tuning: a model learns to continue as examples do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from htsrl.errors import ConfigError
from htsrl.language.model_folder import import_transformers, load_tokenizer, quietly, read_model_config, save_folder
from htsrl.language.prompts import prompt_text
from htsrl.language.supervised import (
    FitSettings,
    Fitted,
    Say,
    check_output,
    digest_of,
    fit,
    padded,
    read_examples,
)

IGNORED = -100
Example = tuple[Sequence[int], int]
"""Tokens, and how many of the first are not learned."""


def sft(
    model: str | Path,
    data: str | Path,
    output_dir: str | Path,
    settings: FitSettings | None = None,
    say: Say = lambda step, of, numbers: None,
) -> Fitted:
    """Fine-tune a model on JSON lines of `prompt` and `completion`, of `text`, or of `messages`; writes a model folder.

    Of a prompt and its completion, the completion and the end of text behind it are learned; of the others, all is.
    """
    settings, output = settings or FitSettings(), Path(output_dir)
    settings.check()
    check_output(output)
    read_model_config(str(model))
    tokenizer = load_tokenizer(str(model))
    lines = read_examples(Path(data), "data")
    examples = [_example(line, tokenizer, f"{data}, line {n}", settings) for n, line in enumerate(lines, start=1)]
    with quietly():
        trained: Any = import_transformers().AutoModelForCausalLM.from_pretrained(
            str(model), dtype=torch.float32, local_files_only=True, trust_remote_code=False, use_safetensors=True
        )
    trained.eval()  # without dropout

    def loss_of(chosen: Sequence[Example]) -> tuple[Tensor, Mapping[str, float]]:
        tokens = padded([row for row, _ in chosen], tokenizer.pad_token_id)
        labels = tokens.clone()
        for row, (numbers, skipped) in zip(labels, chosen, strict=True):
            row[:skipped], row[len(numbers) :] = IGNORED, IGNORED
        attended = torch.arange(tokens.shape[1]) < torch.tensor([len(row) for row, _ in chosen])[:, None]
        logits = trained(input_ids=tokens, attention_mask=attended.long()).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
        right = (logits.argmax(-1) == labels[:, 1:])[labels[:, 1:] != IGNORED].float().mean()
        return loss, {"token_accuracy": float(right)}

    metrics = fit(trained, examples, loss_of, settings, say)
    save_folder(output, trained, tokenizer)
    return Fitted(output, settings.num_steps(len(examples)), metrics, digest_of(trained))


def _example(line: Mapping[str, Any], tokenizer: Any, where: str, settings: FitSettings) -> Example:
    if "completion" in line and "prompt" in line:
        is_text = isinstance(line["prompt"], str)
        prompt = tokenizer(prompt_text(line["prompt"], tokenizer, where), add_special_tokens=is_text)["input_ids"]
        tokens = [*prompt, *tokenizer(str(line["completion"]), add_special_tokens=False)["input_ids"]]
    elif "text" in line or "messages" in line:
        is_text = "text" in line
        text = str(line["text"]) if is_text else prompt_text(line["messages"], tokenizer, where)
        prompt, tokens = [], list(tokenizer(text, add_special_tokens=is_text)["input_ids"])
    else:
        raise ConfigError(f"{where} must have `prompt` and `completion`, or `text`, or `messages`")
    if not tokens or tokens[-1] != tokenizer.eos_token_id:
        tokens.append(tokenizer.eos_token_id)
    if len(tokens) > settings.max_length:
        raise ConfigError(f"{where} has {len(tokens)} tokens, over max_length={settings.max_length}")
    return tokens, len(prompt)
