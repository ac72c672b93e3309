"""What a check found, a line each, and all of it together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from htsrl.envs.check.advice import barrier_lines
from htsrl.envs.check.timing import StepTimes, histogram

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One sentence on one topic: what, where, and the way out."""

    level: Level
    topic: str
    text: str

    def __str__(self) -> str:
        return f"{self.level:<4}  {self.topic}: {' '.join(self.text.split())}"


@dataclass(frozen=True)
class Report:
    """All that was found of an environment."""

    env: str
    findings: tuple[Finding, ...]
    times: StepTimes | None = None
    """None if the environment could not be played as long as was asked for."""

    @property
    def failed(self) -> bool:
        return bool(self.of_level("fail"))

    def of_level(self, level: Level) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == level]

    def __str__(self) -> str:
        counts = ", ".join(f"{len(self.of_level(level))} {level}" for level in ("ok", "warn", "fail"))
        return "\n".join([*map(str, self.findings), *self._pictures(), f"{self.env}: {counts}"])

    def _pictures(self) -> Sequence[str]:
        if self.times is None:
            return ()
        return ["", *histogram(self.times.step_seconds), "", *barrier_lines(self.times), ""]
