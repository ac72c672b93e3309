"""Rewards for tests, by name."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any


def vowels(completions: list[str], **columns: Any) -> list[float]:
    """The share of vowels."""
    return [sum(letter in "aeiou" for letter in text) / max(len(text), 1) for text in completions]


def shortness(completions: list[str]) -> list[float]:
    return [-float(len(text)) for text in completions]


async def slow_vowels(completions: list[str], **columns: Any) -> list[float]:
    """With a heavy tail of waiting."""
    await asyncio.sleep(min(random.paretovariate(1.5) * 0.002, 0.1))
    return vowels(completions)


def target_column(completions: list[str], target: list[str], **columns: Any) -> list[float]:
    return [float(text.startswith(wanted)) for text, wanted in zip(completions, target, strict=True)]


def nan(completions: list[str], **columns: Any) -> list[float]:
    return [float("nan")] * len(completions)


def none(completions: list[str], **columns: Any) -> None:
    return None


def text(completions: list[str], **columns: Any) -> str:
    return "good"


def too_few(completions: list[str], **columns: Any) -> list[float]:
    return [1.0]


def raises(completions: list[str], **columns: Any) -> list[float]:
    raise RuntimeError("no such service")


def exits(completions: list[str], **columns: Any) -> list[float]:
    sys.exit("the service wants no more")


async def exits_async(completions: list[str], **columns: Any) -> list[float]:
    sys.exit("the service wants no more")


def interrupts(completions: list[str], **columns: Any) -> list[float]:
    raise KeyboardInterrupt


def times_out(completions: list[str], **columns: Any) -> list[float]:
    raise TimeoutError("no answer from the service")


async def times_out_async(completions: list[str], **columns: Any) -> list[float]:
    raise TimeoutError("no answer from the service")


async def cancels_itself(completions: list[str], **columns: Any) -> list[float]:
    raise asyncio.CancelledError


async def cannot_be_cancelled(completions: list[str], **columns: Any) -> list[float]:
    for _ in range(100):
        try:
            await asyncio.sleep(36)
        except asyncio.CancelledError:
            pass
    return []


async def blocks_async(completions: list[str], **columns: Any) -> list[float]:
    time.sleep(30)
    return []


def hangs(completions: list[str], **columns: Any) -> list[float]:
    time.sleep(3600)
    return []


async def hangs_async(completions: list[str], **columns: Any) -> list[float]:
    await asyncio.sleep(3600)
    return []


def fails_for_some(prompts: list[Any], completions: list[str], **columns: Any) -> list[float | None]:
    """Completions of one of the prompts are not scored."""
    return [None if prompt == "we" else float(len(text)) for prompt, text in zip(prompts, completions, strict=True)]


def ones(completions: list[Any], **columns: Any) -> list[float]:
    """Whatever they are, texts or messages."""
    return [1.0] * len(completions)


def notes(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    """Writes down what it is asked about, in the file of the environment variable NOTES."""
    with Path(os.environ["NOTES"]).open("a") as file:
        file.writelines(json.dumps(asked) + "\n" for asked in zip(prompts, completions, strict=True))
    return vowels(completions)
