"""The name of a process, as `ps` and `top` show it."""

from __future__ import annotations

from pathlib import Path

LETTERS_OF_A_NAME = 15
"""How many of a process's name the kernel keeps."""


def name_this_process(name: str) -> None:
    """Show this name; the kernel cuts it after LETTERS_OF_A_NAME letters."""
    try:
        Path("/proc/self/comm").write_text(name)
    except OSError:
        pass  # no such file on this system, where nobody needs the name either


def name_of_process(pid: int) -> str:
    """The name that is shown; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except OSError:
        return ""
