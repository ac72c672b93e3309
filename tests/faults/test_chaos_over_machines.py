"""Nothing lost over machines: raylets, islands, their workers and the driver are killed over and over."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from helpers import assert_same_run
from island_runs import islands, outcome_in, workers_of
from live_run import LiveRun, patience
from raylets import RayCluster
from small_run import oracle, small_flags

pytest.importorskip("ray", reason="islands live on Ray: pip install 'htsrl[ray]'")
NUM_KILLS = {"raylet": 6, "driver": 5, "island": 19, "worker": 20}
NUM_UPDATES = 1500
UPDATES_BETWEEN = 3
"""So that every kill hits a run that goes on, and an island that has got somewhere since it was begun."""
SLOWLY = ("--jitter-seconds", "0.005", "--checkpoint-every-updates", "5", "--deadline-seconds", "120")
PATIENCE_SECONDS = 120.0


class Killed:
    """A run on a cluster, whatever of it is killed."""

    def __init__(self, folder: Path, cluster: RayCluster, draw: random.Random) -> None:
        self.cluster, self._folder, self._draw = cluster, folder, draw
        joined = ("--placement", "ray", "--ray-address", cluster.address, "--num-executors", "1", "--num-actors", "0")
        self.run = LiveRun(folder, *small_flags(NUM_UPDATES), *joined, *SLOWLY)
        self.kills = Counter[str]()

    def strike(self, kind: str) -> None:
        """Once the run has come further than it was."""
        before = self.run.num_metrics()
        self.run.wait_until(lambda: self.run.num_metrics() >= before + UPDATES_BETWEEN, patience(PATIENCE_SECONDS))
        if kind == "raylet":
            self.cluster.kill_node()
            self.cluster.add_node()
        elif kind == "driver":
            self.run.main.kill()
            self.run.wait_for_end()
            self.run = LiveRun.resumed(self._folder)
        else:
            self._kill_one(kind)
        self.kills[kind] += 1

    def _kill_one(self, kind: str) -> None:
        """An island, or a worker of one, as soon as there is one that lives."""
        deadline = time.monotonic() + patience(PATIENCE_SECONDS)
        while time.monotonic() < deadline:
            with suppress(psutil.NoSuchProcess):
                living = [one for island in islands() for one in ([island] if kind == "island" else workers_of(island))]
                if living:
                    self._draw.choice(living).kill()
                    return
            time.sleep(0.02)
        raise AssertionError(f"there was no {kind} to kill")


@pytest.mark.slow
def test_fifty_kills_of_raylets_islands_workers_and_the_driver_change_no_bit(tmp_path: Path) -> None:
    seed = int(os.environ.get("HTSRL_CHAOS_SEED", time.time_ns() % 1_000_000))
    print(f"HTSRL_CHAOS_SEED={seed}")
    draw = random.Random(seed)
    kinds = [kind for kind, count in NUM_KILLS.items() for _ in range(count)]
    draw.shuffle(kinds)
    with RayCluster(3) as cluster:
        killed = Killed(tmp_path, cluster, draw)
        try:
            for kind in kinds:
                killed.strike(kind)
            killed.run.wait_for_end(patience(300.0))
            assert killed.run.exit_code == 0, killed.run.stderr
        finally:
            killed.run.clean_up()
    assert killed.kills == NUM_KILLS
    assert sum(NUM_KILLS.values()) == 50
    assert_same_run(outcome_in(killed.run.run_dir), oracle(NUM_UPDATES))
