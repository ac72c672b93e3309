"""The shared memory of a run goes when the run ends, and not when Python's cyclic collector gets round to it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from htsrl import A2C, Config, EnvironmentFailure, Experiment, HtsrlError, Placement, evaluate, resume, train
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays

EXPERIMENT = Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, sync_interval=4, total_steps=16)


Blocks = Callable[[], set[str]]


@pytest.fixture
def new_blocks() -> Iterator[Blocks]:
    """What has been opened since, and the collector does not run; tests before this one may have left something."""
    gc.collect()
    gc.disable()
    try:
        before = blocks()
        yield lambda: blocks() - before
    finally:
        gc.enable()


def blocks() -> set[str]:
    """What this process has open or mapped of memory without a name."""
    open_files = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            open_files.append(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
        except FileNotFoundError:  # the one that lists them
            continue
    mappings = Path("/proc/self/maps").read_text().splitlines()
    return {line for line in [*open_files, *mappings] if "memfd:htsrl" in line}


def train_in(run_dir: Path, experiment: Experiment = EXPERIMENT, **placement: Any) -> None:
    train(Config(experiment, Placement(run_dir=run_dir, tensorboard=False, progress="off", **placement)))


class Breaks(ValueError):
    """Raised by an environment."""


def breaking_cartpole() -> Any:
    import gymnasium

    class Breaking(gymnasium.Wrapper[Any, Any, Any, Any]):
        steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            if self.steps > 6:  # the look before the run takes five
                raise Breaks("the pole broke")
            return super().step(action)

    return Breaking(gymnasium.make("CartPole-v1"))


def test_runs_that_have_ended_hold_no_shared_memory(tmp_path: Path, new_blocks: Blocks) -> None:
    for number in range(3):
        train_in(tmp_path / f"inline{number}", backend="inline")
        assert not new_blocks(), f"after run {number}"
    train_in(tmp_path / "processes", backend="processes")
    assert not new_blocks()
    resume(tmp_path / "inline0", total_steps=24)
    evaluate(tmp_path / "inline0", episodes=1)
    assert not new_blocks()


def test_a_run_that_failed_holds_none_even_while_its_error_is_looked_at(tmp_path: Path, new_blocks: Blocks) -> None:
    experiment = Experiment(breaking_cartpole, algorithm=A2C(), num_envs=1, sync_interval=8, total_steps=64)
    with pytest.raises((HtsrlError, Breaks)) as inline:
        train_in(tmp_path / "inline", experiment, backend="inline")
    with pytest.raises(EnvironmentFailure) as processes:
        train_in(tmp_path / "processes", experiment, backend="processes", num_executors=1, restart_workers=False)
    assert inline.value.__traceback__ is not None
    assert processes.value.__traceback__ is not None
    assert not new_blocks()


def test_an_array_of_memory_that_was_given_back_can_still_be_touched(new_blocks: Blocks) -> None:
    block = SharedArrays([ArraySpec("numbers", (100_000,), "int64")])
    numbers = block["numbers"]
    numbers[:] = 7
    block.close()
    assert not new_blocks()
    assert not numbers.any()
    numbers[:] = np.arange(100_000)
    assert numbers[-1] == 99_999
