"""A reward that costs nothing: how many different words there are among all, wherever text is trained."""

from __future__ import annotations

from typing import Any


def variety(completions: list[str], **columns: Any) -> list[float]:
    return [len(set(words := text.lower().split())) / max(len(words), 1) for text in completions]
