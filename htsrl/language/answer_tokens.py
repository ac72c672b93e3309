"""How an environment's answer is shown to the model: as text, or as a message through the tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from htsrl.errors import ConfigError
from htsrl.language.prompts import Prompt

MARK = "htsrl-turn"
"""Stands in place of what the model said, to see what the template puts behind it."""


class AnswerTokens:
    """Tokens of an answer. After messages it is a message of the user, and the model's next turn begins behind it."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(self, prompt: Prompt, turn: Sequence[int], answer: str) -> tuple[int, ...]:
        """`turn` is what the model drew before, with the end of text if it came to it."""
        messages = prompt.columns["prompt"]
        text = answer if isinstance(messages, str) else self._between(messages, turn, answer)
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"]) if text else ()

    def _between(self, messages: list[dict[str, Any]], turn: Sequence[int], answer: str) -> str:
        """What the template writes between the model's words and its next ones."""
        said = [*messages, {"role": "assistant", "content": MARK}]
        before = self._tokenizer.apply_chat_template(said, tokenize=False)
        after = self._tokenizer.apply_chat_template(
            [*said, {"role": "user", "content": answer}], tokenize=False, add_generation_prompt=True
        )
        if not after.startswith(before) or MARK not in before:
            raise ConfigError(
                "the tokenizer's chat template changes earlier messages when another follows, so a conversation cannot "
                "be continued; give prompts as text, or a template that appends"
            )
        end = str(self._tokenizer.eos_token)
        text = str(after[before.rindex(MARK) + len(MARK) :])
        drew_end = bool(turn) and turn[-1] == self._tokenizer.eos_token_id
        return text.removeprefix(end) if drew_end else text
