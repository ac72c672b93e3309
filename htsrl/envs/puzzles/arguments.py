"""What the puzzles ask of their arguments."""

from __future__ import annotations

from htsrl.errors import ConfigError


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
