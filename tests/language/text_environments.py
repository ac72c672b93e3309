"""Environments for tests, by name."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any

from text_rewards import vowels

Answer = tuple[str, float, bool]


class OneTurn:
    """A reward function in the shape of an environment."""

    def __init__(self, prompt: str) -> None:
        self.prompt = prompt

    def step(self, text: str) -> Answer:
        return "", vowels([text])[0], True


class Dialogue:
    """Ends when a turn has two vowels or more; asks again, in words that depend on what was said, until then."""

    def __init__(self, prompt: str, **columns: Any) -> None:
        self.prompt = prompt
        self.num_turns = 0

    def step(self, text: str) -> Answer:
        self.num_turns += 1
        count = sum(letter in "aeiou" for letter in text)
        return f" {self.num_turns * 'so'}{text[:1]}:", count / 10, count >= 2


class SlowDialogue(Dialogue):
    """With a heavy tail of waiting, all at once."""

    async def step(self, text: str) -> Answer:  # type: ignore[override]
        await asyncio.sleep(min(random.paretovariate(1.5) * 0.002, 0.05))
        return super().step(text)


class FailsForSome(Dialogue):
    """Episodes of one of the prompts raise in their second turn."""

    def step(self, text: str) -> Answer:
        if self.prompt == "we" and self.num_turns == 1:
            raise RuntimeError("the tool is broken")
        return super().step(text)


class FailsOnce(Dialogue):
    """The very first second turn raises; tried again, from the first turn on, it works."""

    def step(self, text: str) -> Answer:
        if self.num_turns == 1:
            try:
                (Path(os.environ["FAILS_ONCE"])).mkdir()
            except FileExistsError:
                pass
            else:
                raise RuntimeError("for once")
        return super().step(text)


class Silent:
    """Says nothing at all, and wants three turns."""

    def __init__(self, prompt: str) -> None:
        self.num_turns = 0

    def step(self, text: str) -> Answer:
        self.num_turns += 1
        return "", 1.0, self.num_turns == 3


class Hangs:
    def __init__(self, prompt: str) -> None:
        pass

    def step(self, text: str) -> Answer:
        time.sleep(3600)
        return "", 0.0, True


class HangsLater(Dialogue):
    """Of one prompt, in the second turn."""

    def step(self, text: str) -> Answer:
        if self.prompt == "we" and self.num_turns == 1:
            time.sleep(3600)
        return super().step(text)


class HangsInSilence(Dialogue):
    """Of one prompt, asynchronously."""

    async def step(self, text: str) -> Answer:  # type: ignore[override]
        if self.prompt == "we":
            await asyncio.sleep(3600)
        return super().step(text)


class Raises(Hangs):
    def step(self, text: str) -> Answer:
        raise RuntimeError("no such tool")


class ReturnsTwo(Hangs):
    def step(self, text: str) -> Any:
        return "", 0.0


class ReturnsNumber(Hangs):
    def step(self, text: str) -> Any:
        return 3, 0.0, False


class ReturnsNan(Hangs):
    def step(self, text: str) -> Answer:
        return "", float("nan"), False


class WantsTopic(Hangs):
    def __init__(self, topic: str) -> None:
        pass


class RemembersOthers(Dialogue):
    """No function of its line and its texts: played again, it says something else."""

    played = 0

    def step(self, text: str) -> Answer:
        RemembersOthers.played += 1
        answer, reward, done = super().step(text)
        return answer + str(RemembersOthers.played % 10), reward, done
