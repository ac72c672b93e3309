"""A program in a process of its own, for signals to be sent to."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import htsrl

PACKAGE_ROOT = Path(htsrl.__file__).parents[1]
SECONDS = 30.0
BOTH = [signal.SIGINT, signal.SIGTERM]

# What every script starts with: a program that ends as the command line does.
COMMON = """
import os, signal, sys, time
from htsrl.processes.interrupts import Terminated, end_at_second_signal, uninterrupted

def say(line):
    print(line, flush=True)

def as_command_line(work):
    end_at_second_signal()
    try:
        work()
    except Terminated:
        say("terminated")
        sys.exit(143)
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(130)
"""


class Program:
    """A script in a process of its own, which says how far it has come."""

    def __init__(self, script: str, *wrapper: str, stderr: int | None = None) -> None:
        self._process = subprocess.Popen(
            [*wrapper, sys.executable, "-c", COMMON + script],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=PACKAGE_ROOT,
        )

    def wait_for(self, line: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == line + "\n"

    def send(self, signum: signal.Signals) -> None:
        self._process.send_signal(signum)

    def is_running_after(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def end(self) -> tuple[str, int]:
        """What it still says, and its exit code."""
        try:
            said, _ = self._process.communicate(timeout=SECONDS)
        finally:
            self._process.kill()
        return said, self._process.returncode
