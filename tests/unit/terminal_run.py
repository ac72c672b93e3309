"""A script whose stderr is a terminal, and what that shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import pytest
from child_environment import child_environment


class TerminalRun:
    """What a child process wrote to stdout (a pipe) and to stderr (a terminal)."""

    def __init__(self, stdout: str, terminal: str) -> None:
        self.stdout = stdout
        self.terminal = terminal


def run_on_terminal(script: str, columns: int, term: str = "xterm-256color") -> TerminalRun:
    pty = pytest.importorskip("pty")
    termios = pytest.importorskip("termios")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, columns))
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=theirs, text=True, env=child_environment(term)
    )
    os.close(theirs)
    written = bytearray()
    reader = threading.Thread(target=_read_to_the_end, args=(ours, written))
    reader.start()
    try:
        stdout, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
        reader.join(timeout=10)
        os.close(ours)
    assert child.returncode == 0, written.decode()
    return TerminalRun(stdout, written.decode())


def _read_to_the_end(descriptor: int, written: bytearray) -> None:
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # EIO: Linux's way to say that nobody holds the other side any more.
            return
        if not chunk:
            return
        written += chunk


def screen_after(terminal: str, columns: int) -> list[str]:
    """The rows a terminal shows after these characters: just enough of one for what rich sends."""
    rows, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[\??[0-9;]*[a-zA-Z]|.|\n", terminal):
        if token == "\r":
            column = 0
        elif token == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif token == "\x1b[2K":
            rows[row] = ""
        elif token.startswith("\x1b[") and token.endswith("A"):
            row -= int(token[2:-1])
        elif not token.startswith("\x1b"):
            if column == columns:
                row, column = row + 1, 0
                rows += [""] * (row + 1 - len(rows))
            rows[row] = rows[row][:column].ljust(column) + token + rows[row][column + 1 :]
            column += 1
    return rows
