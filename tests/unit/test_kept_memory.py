"""Workers keep the memory that they free: pages that come back from the system have to be cleared one by one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
from helpers import run

from htsrl.algorithms.a2c import A2C
from htsrl.config import Experiment
from htsrl.numerics import KEPT_MEMORY

AGAIN_AND_AGAIN = """
import resource
import numpy as np
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(1 << 20)
before = faults()
for _ in range(20):
    np.ones(1 << 20)
print(faults() - before)
"""


def page_faults(variables: dict[str, str]) -> int:
    """Of a process that takes 8 MB and frees them, twenty times."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", AGAIN_AND_AGAIN]
    ended = subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, check=True)
    return int(ended.stdout)


def test_memory_that_was_freed_needs_no_new_pages() -> None:
    assert page_faults(KEPT_MEMORY) < page_faults({}) / 5


def test_workers_keep_their_memory(tmp_path: Path) -> None:
    def make_env() -> gymnasium.Env[Any, Any]:
        found = [f"{name}={os.environ.get(name)}" for name in KEPT_MEMORY]
        (tmp_path / str(os.getpid())).write_text(" ".join(found))
        return gymnasium.make("CartPole-v1")

    experiment = Experiment(make_env, algorithm=A2C(), num_envs=2, total_steps=40)
    run(experiment, backend="processes", num_executors=1)

    expected = " ".join(f"{name}={value}" for name, value in KEPT_MEMORY.items())
    workers = [path.read_text() for path in tmp_path.iterdir() if path.name != str(os.getpid())]
    assert expected in workers
