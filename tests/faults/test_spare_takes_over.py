"""The spare process has its environments made before it is needed, and is left alone while it hangs in their making."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from fault_envs import HANG_SECONDS, Patient
from helpers import workers_left
from small_run import quiet_placement

from htsrl import A2C, Config, Experiment, train
from htsrl.placements import spares
from htsrl_bench.process_tree import workers_named

NUM_ENVS = 3


class Killer(threading.Thread):
    """Kills the executor as soon as the spare is ready, or hangs."""

    def __init__(self, hangs: bool) -> None:
        super().__init__(daemon=True)
        self._hangs = hangs
        self.spares: list[int] = []

    def run(self) -> None:
        while not (self.spares or (self._hangs and Path("hanging").exists())):
            time.sleep(0.02)
            self.spares = workers_named("spare", os.getpid())
        (executor,) = workers_named("executor", os.getpid())
        os.kill(executor, signal.SIGKILL)
        Path("killed").touch()


@pytest.mark.parametrize("hangs", [False, True], ids=["ready", "hanging"])
def test_a_ready_spare_takes_over_with_its_environments_and_a_hanging_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spares, "FIRST_AFTER_SECONDS", 0.0)
    experiment = Experiment(partial(Patient, hangs), algorithm=A2C(), num_envs=NUM_ENVS, total_steps=1_500)
    killer = Killer(hangs)
    killer.start()
    start = time.monotonic()
    result = train(Config(experiment, quiet_placement(num_executors=1, run_dir=Path("run"))))
    seconds = time.monotonic() - start
    assert result.restarts == 1
    assert seconds < HANG_SECONDS
    made = Counter(int(line) for line in Path("made").read_text().splitlines())
    assert [made[pid] for pid in killer.spares] == ([] if hangs else [NUM_ENVS]), "none was made in the hurry"
    undisturbed = train(Config(experiment, quiet_placement(backend="inline", run_dir=Path("undisturbed"))))
    assert result.digest == undisturbed.digest
    assert workers_left() == []
