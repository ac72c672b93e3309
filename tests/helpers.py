"""What several suites share: small runs, what they leave behind, and a loaded machine."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import torch

from htsrl import Config, Experiment, Placement, train
from htsrl.digest import Link, first_difference, read_links
from htsrl.metrics.sinks import read_json_lines

TIMING_METRICS = ("time/", "wait/")


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind and no placement may change."""

    links: list[Link]
    policy: bytes
    metrics: list[dict[str, float | None]]

    @property
    def digest(self) -> str:
        return self.links[-1].chain

    @classmethod
    def read(cls, run_dir: Path) -> Outcome:
        lines = read_json_lines(run_dir / "metrics.jsonl")
        return cls(
            links=read_links(run_dir),
            policy=(run_dir / "policy.safetensors").read_bytes(),
            metrics=[{k: v for k, v in line.items() if not k.startswith(TIMING_METRICS)} for line in lines],
        )


def run(experiment: Experiment, **placement: Any) -> Outcome:
    """Train in a folder that is gone afterwards; inline and silently unless told otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        quietly: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off", "run_dir": run_dir}
        train(Config(experiment, Placement(**(quietly | placement))))
        return Outcome.read(run_dir)


def assert_same_run(one: Outcome, other: Outcome) -> None:
    """Equal digests, parameters and metrics, to the bit."""
    assert first_difference(one.links, other.links) is None
    assert one.policy == other.policy
    assert one.metrics == other.metrics


@cache
def rows_are_stable() -> bool:
    """Whether this processor gives a row the same bits in products of any number of rows; AMD's do only by fours."""
    with torch.inference_mode():
        rows = torch.cos(torch.arange(1024.0)).view(16, 64)
        weights = [torch.sin(torch.arange(64.0 * outputs)).view(outputs, 64) for outputs in (1, 2, 64)]
        return all(
            torch.equal(torch.cat([rows[i : i + 1] @ weight.T for i in range(16)]), rows @ weight.T)
            for weight in weights
        )


@cache
def numpys_rows_are_stable() -> bool:
    """The same of NumPy, for the layers of a small policy."""
    rows = np.cos(np.arange(512, dtype=np.float32)).reshape(8, 64)
    weights = [np.sin(np.arange(64 * outputs, dtype=np.float32)).reshape(outputs, 64) for outputs in (1, 64)]
    return all(
        np.array_equal(np.concatenate([rows[i : i + 1].dot(weight.T) for i in range(8)]), rows.dot(weight.T))
        for weight in weights
    )


def assert_same_numbers(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Of batches of different sizes: to the bit where the processor can, else but for rounding."""
    if rows_are_stable():
        assert torch.equal(ours, theirs)
    else:
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@contextmanager
def busy_machine(num_processes: int) -> Iterator[None]:
    """Others want the CPU as well, for as long as this lasts."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(num_processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def in_worker_process() -> bool:
    """Whether this process is one that a run started: modules that tamper with htsrl do so there only."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == "htsrl.placements.worker"


def workers_left() -> list[str]:
    """Who still lives of what runs of this process started; fork servers do, for the next one."""
    children = [child for child in psutil.Process().children() if child.name() != "fork server"]
    return [child.name() for child in children if not _is_somebody_elses(child)]


def _is_somebody_elses(child: psutil.Process) -> bool:
    """A helper of Python's or Ray's own; what htsrl starts has its name there, or one of its own already."""
    if not child.name().startswith("python"):
        return False
    try:
        return not any("htsrl" in word for word in child.cmdline())
    except psutil.ZombieProcess:
        return True
