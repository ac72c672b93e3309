"""The name of a process, as `ps` and `top` show it."""

from __future__ import annotations

from pathlib import Path

LETTERS_OF_A_NAME = 15
"""That the kernel keeps."""


def name_this_process(name: str) -> None:
    """Its first letters."""
    try:
        Path("/proc/self/comm").write_text(name)
    except OSError:
        pass  # no such file on this system, where nobody needs the name either


def name_of_process(pid: int) -> str:
    """Empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except OSError:
        return ""
