"""`init_from` as text: whose weights a run begins with, and once it has begun, exactly which."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from htsrl.errors import ConfigError

FORM = re.compile(r"(?P<run>.+?)(@(?P<version>newest|best|[0-9]{1,18}))?(#(?P<identity>[0-9a-f]{32}))?", re.DOTALL)

Version = Literal["newest", "best"] | int


@dataclass(frozen=True)
class InitFrom:
    """RUN, RUN@best or RUN@N; in the configuration of a run that has begun RUN@N#IDENTITY."""

    run: Path
    version: Version = "newest"
    identity: str = ""
    """Hash of the weights and of the source's digest behind them."""

    @classmethod
    def parse(cls, text: str | Path) -> InitFrom:
        found = FORM.fullmatch(str(text))
        if found is None or found["run"].startswith("@"):
            raise ConfigError(f"init_from={str(text)!r} must be the folder of a run: RUN, RUN@best or RUN@N")
        asked = found["version"] or "newest"
        version: Version = int(asked) if asked.isdigit() else "best" if asked == "best" else "newest"
        return cls(Path(found["run"]), version, found["identity"] or "")

    def absolute(self) -> InitFrom:
        return replace(self, run=self.run.absolute())

    def __str__(self) -> str:
        return f"{self.run}@{self.version}" + (f"#{self.identity}" if self.identity else "")


def identity_of(init_from: str | Path | None) -> str:
    """What tells two warm starts apart; nothing for a run that begins with weights of its own."""
    return "" if init_from is None else InitFrom.parse(init_from).identity
