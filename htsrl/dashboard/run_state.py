"""Whether a run is running, seen from its lock and without touching that, and how it ended."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path
from typing import Any, Literal

from htsrl.dashboard.run_files import RunFiles
from htsrl.dashboard.shown import text

State = Literal["running", "finished", "stopped", "interrupted", "failed"]
LOCK_FILE = ".lock"
RECENT_SECONDS = 120.0
"""A run of another machine, whose locks cannot be seen from here, counts as running for so long after it wrote."""

HeldLocks = frozenset[tuple[int, int]]
"""Inode and process of every lock of the kind that runs hold."""


def held_locks(table: Path = Path("/proc/locks")) -> HeldLocks:
    """All of this machine. Trying the lock would tell as well, but keep out a run that begins at that moment."""
    try:
        lines = table.read_text().splitlines()
    except OSError:
        return frozenset()
    found = re.findall(r"^\d+: FLOCK\s+\S+\s+WRITE\s+(\d+)\s+\w+:\w+:(\d+)\s", "\n".join(lines), re.MULTILINE)
    return frozenset((int(inode), int(process)) for process, inode in found)


def run_state(files: RunFiles, result: Any, locks: HeldLocks) -> State:
    """`result` is what result.json has; None where there is none."""
    has_result = isinstance(result, dict)
    if _is_running(files, has_result, locks):
        return "running"
    if has_result:
        if stop_reason(result):
            return "stopped"
        return "interrupted" if result.get("interrupted") else "finished"
    return "failed"


def stop_reason(result: Any) -> str | None:
    """Why a run ended before its last step: its goal, or whoever asked."""
    if not isinstance(result, dict):
        return None
    if result.get("goal_reached"):
        return "its return reached stop_at_return"
    if result.get("eval_goal_reached"):
        return "its evaluations reached stop_at_eval_return"
    return text(result.get("stop_reason"))


def _is_running(files: RunFiles, has_result: bool, locks: HeldLocks) -> bool:
    stamp = files.stamp(LOCK_FILE)
    if stamp is None:
        return False
    try:
        text = files.read(LOCK_FILE, limit_bytes=4096).decode(errors="replace")
    except OSError:
        return False
    holder = re.match(r"process (\d+) on (\S+) ", text)
    if holder and holder[2] != socket.gethostname():
        metrics = files.stamp("metrics.jsonl")
        return not has_result and metrics is not None and time.time() - metrics.modified_ns / 1e9 < RECENT_SECONDS
    # The inode alone may be that of a file on another disk; a process shown as 0 is in another container.
    return any(inode == stamp.inode and (holder is None or process in (0, int(holder[1]))) for inode, process in locks)
