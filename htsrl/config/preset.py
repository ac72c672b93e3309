"""What a preset is: an algorithm says in its settings which it has, as `presets` by kind of environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """Settings to start from, for one kind of environment."""

    algorithm: Mapping[str, Any]
    experiment: Mapping[str, Any]
