"""Runs htsrl as a user would, in an interpreter of its own, and notes every process that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import htsrl

PACKAGE_ROOT = Path(htsrl.__file__).parents[1]

# Python imports a module of this name by itself at start-up; an audit hook sees what no code can hide.
WATCH = """
import os, sys

def note(event, arguments):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.system"):
        with open(os.environ["STARTED_PROCESSES"], "a") as file:
            file.write(f"{event} {arguments}\\n")

sys.addaudithook(note)
"""


@dataclass(frozen=True)
class Outcome:
    """What is left of a command."""

    exit_code: int
    stdout: str
    stderr: str
    started_processes: str
    """A line for each process that the command started."""


def run_htsrl(folder: Path, *arguments: str) -> Outcome:
    """`python -m htsrl ...` with `folder` as the current one."""
    return run_python(folder, "-m", "htsrl", *arguments)


def run_python(folder: Path, *arguments: str) -> Outcome:
    watch = folder.parent / f"{folder.name}.watch"
    watch.mkdir(exist_ok=True)
    (watch / "sitecustomize.py").write_text(WATCH)
    started = watch / "started_processes"
    started.write_text("")
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=_environment(watch) | {"STARTED_PROCESSES": str(started)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return Outcome(process.returncode, process.stdout, process.stderr, started.read_text())


def _environment(first_on_path: Path) -> dict[str, str]:
    path = os.pathsep.join([str(first_on_path), str(PACKAGE_ROOT)])
    # A fixed width, whatever terminal the tests run in; no bytecode, so that a folder holds only what htsrl wrote.
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "100", "PYTHONDONTWRITEBYTECODE": "1"}
