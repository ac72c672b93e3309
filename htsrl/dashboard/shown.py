"""Documents of unknown origin made fit to be shown: JSON that every browser reads, of bounded size."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

MAX_SETTINGS = 300
MAX_TEXT = 300
MAX_DEPTH = 60


def finite(document: Any, depth: int = 0) -> Any:
    """The same with null for what is not finite, and without what is nested beyond reading."""
    if depth > MAX_DEPTH:
        return "... (nested too deeply to show)"
    if isinstance(document, dict):
        return {str(name): finite(value, depth + 1) for name, value in document.items()}
    if isinstance(document, list):
        return [finite(value, depth + 1) for value in document]
    return None if isinstance(document, float) and not math.isfinite(document) else document


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def text(value: Any) -> str | None:
    """A short text, or None for anything else."""
    return value[:MAX_TEXT] if isinstance(value, str) else None


def flat_settings(document: Any, prefix: str = "") -> dict[str, str]:
    """Settings by their dotted names, each as text to show, compare and group by."""
    settings: dict[str, str] = {}
    for name, value in _leaves(document, prefix):
        if len(settings) >= MAX_SETTINGS:
            break
        settings[name[:MAX_TEXT]] = (value if isinstance(value, str) else json.dumps(finite(value)))[:MAX_TEXT]
    return settings


def _leaves(document: Any, prefix: str, depth: int = 0) -> Iterator[tuple[str, Any]]:
    if isinstance(document, Mapping) and document and depth < MAX_DEPTH:
        for name, value in document.items():
            yield from _leaves(value, f"{prefix}.{name}" if prefix else str(name), depth + 1)
    elif prefix:
        yield prefix, document
