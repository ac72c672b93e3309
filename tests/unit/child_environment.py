"""The environment variables of a child process whose output is looked at."""

from __future__ import annotations

import os
from pathlib import Path

import htsrl

REPOSITORY = Path(next(iter(htsrl.__path__))).parent


def child_environment(term: str = "xterm-256color") -> dict[str, str]:
    unwanted = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    inherited = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**inherited, "TERM": term, "PYTHONPATH": str(REPOSITORY), "PYTHONIOENCODING": "utf-8"}
