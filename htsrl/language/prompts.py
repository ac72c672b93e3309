"""Prompts: read once, and then a function of (seed, rollout, column): there is no cursor that a kill could lose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.errors import ConfigError
from htsrl.plain_files import parsed, read_plain
from htsrl.seeding import prompt_order

PROMPT = "prompt"


@dataclass(frozen=True)
class Prompt:
    """One line of the file."""

    text: str
    """As the model sees it; of messages, what the chat template made of them."""
    tokens: tuple[int, ...]
    columns: Mapping[str, Any]
    """All that the line says, for the rewards."""


@dataclass(frozen=True)
class PromptOrder:
    """Which prompt a column of a rollout completes: all of the file in one order, then in another, and so on."""

    seed: int
    num_prompts: int
    per_rollout: int
    num_generations: int

    def ordinal(self, rollout: int, column: int) -> int:
        """How many prompts were drawn before this one, in all of the run."""
        return rollout * self.per_rollout + column // self.num_generations

    def prompt(self, ordinal: int) -> int:
        """The line of the file."""
        epoch, place = divmod(ordinal, self.num_prompts)
        return int(_order(self.seed, epoch, self.num_prompts)[place])


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, num_prompts: int) -> NDArray[np.int64]:
    return prompt_order(seed, epoch, num_prompts)


def read_prompts(path: str, tokenizer: Any, max_length: int | None) -> list[Prompt]:
    """All of them, tokenised; ConfigError for the first that cannot be used."""
    prompts = []
    for number, line in enumerate(_lines(path), start=1):
        where = f"{path}, line {number}"
        columns = _columns(line, where)
        text = prompt_text(columns[PROMPT], tokenizer, where)
        is_chat = not isinstance(columns[PROMPT], str)
        tokens = tuple(tokenizer(text, add_special_tokens=not is_chat)["input_ids"])
        if not tokens:
            raise ConfigError(f"{where}: the prompt has no tokens; give it at least one")
        if max_length is not None and len(tokens) > max_length:
            raise ConfigError(
                f"{where}: the prompt has {len(tokens)} tokens, over max_prompt_length={max_length}; shorten it, or "
                "raise the limit"
            )
        prompts.append(Prompt(text, tokens, columns))
    if not prompts:
        raise ConfigError(f'prompts={path} holds no lines; give it some like {{"prompt": "Once upon a time"}}')
    return prompts


def prompt_text(prompt: object, tokenizer: Any, where: str) -> str:
    """As the model sees it; messages go through the tokenizer's chat template."""
    if isinstance(prompt, str):
        return prompt
    if not _are_messages(prompt):
        raise ConfigError(
            f"{where}: prompt={str(prompt)[:80]!r} must be text, or a list of messages like "
            '[{"role": "user", "content": "Hello"}]'
        )
    try:
        text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are programs
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"{where}: the tokenizer's chat template does not take these messages ({type(error).__name__}: {reason}); "
            "give the prompt as text, or a template that does"
        ) from error
    return str(text)


def _lines(path: str) -> Sequence[bytes]:
    try:
        return [line for line in read_plain(Path(path)).split(b"\n") if line.strip()]
    except OSError as error:
        raise ConfigError(f"prompts={path} cannot be read: {error.strerror}") from error


def _columns(line: bytes, where: str) -> Mapping[str, Any]:
    try:
        columns = parsed(line)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error
    if not isinstance(columns, dict) or PROMPT not in columns:
        raise ConfigError(f'{where} must be an object with a prompt, like {{"prompt": "Once upon a time"}}')
    return columns


def _are_messages(prompt: object) -> bool:
    return (
        isinstance(prompt, list)
        and bool(prompt)
        and all(isinstance(message, dict) and isinstance(message.get("role"), str) for message in prompt)
    )
