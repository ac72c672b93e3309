"""Runs on islands, and somebody who kills what they are made of."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from helpers import Outcome, run

from htsrl import Config, Experiment, Placement, train

QUIETLY: dict[str, Any] = {"backend": "ray", "num_executors": 1, "deadline_seconds": 60.0}
PATIENCE_SECONDS = 120.0


def run_on_islands(experiment: Experiment, nodes: int, **placement: Any) -> Outcome:
    return without_traffic(run(experiment, **{**QUIETLY, "nodes": nodes, **placement}))


def without_traffic(outcome: Outcome) -> Outcome:
    """What crossed between machines is no matter of the experiment."""
    metrics = [{k: v for k, v in line.items() if not k.startswith("cluster/")} for line in outcome.metrics]
    return Outcome(outcome.links, outcome.policy, metrics)


def islands() -> list[psutil.Process]:
    """The processes of the islands that live on this machine, begun by this process or by anybody below it."""
    found = []
    for process in descendants():
        with suppress(psutil.NoSuchProcess):
            found += [process] if process.name().startswith("ray::Island") else []
    return found


def workers_of(island: psutil.Process) -> list[psutil.Process]:
    return [child for child in island.children() if child.name().startswith(("executor", "actor"))]


def descendants() -> list[psutil.Process]:
    return psutil.Process(os.getpid()).children(recursive=True)  # type: ignore[no-any-return]


Plan = Callable[[], list[psutil.Process]]
"""Names whom to kill."""


class Assassin(threading.Thread):
    """Kills, one after another, whom each plan names, each time that the run has learned some more."""

    def __init__(self, run_dir: Path, plans: list[Plan], updates_between: int) -> None:
        super().__init__(daemon=True)
        self._digest_file = run_dir / "digest.jsonl"
        self._plans = plans
        self._updates_between = updates_between
        self.num_kills = 0
        """Plans that were carried out: whoever was named is dead."""

    def run(self) -> None:
        for number, plan in enumerate(self._plans, start=1):
            deadline = time.monotonic() + PATIENCE_SECONDS
            while self._num_updates() < number * self._updates_between or not (victims := self._named_by(plan)):
                if time.monotonic() > deadline:
                    return
                time.sleep(0.01)
            for victim in victims:
                with suppress(psutil.NoSuchProcess):  # it went with the one before
                    victim.kill()
            self.num_kills += 1

    def _num_updates(self) -> int:
        return self._digest_file.read_text().count("\n") if self._digest_file.exists() else 0

    def _named_by(self, plan: Plan) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return plan()
        return []


def killed_run(
    experiment: Experiment, tmp_path: Path, plans: list[Plan], updates_between: int, **placement: Any
) -> Outcome:
    """Train while an assassin is about, who must have carried out all plans before the run ends."""
    run_dir = tmp_path / "run"
    assassin = Assassin(run_dir, plans, updates_between)
    assassin.start()
    train(Config(experiment, Placement(**QUIETLY, **placement, run_dir=run_dir, tensorboard=False, progress="off")))
    assassin.join(timeout=1.0)
    assert assassin.num_kills == len(plans), "the run ended, or nobody was there to kill, before all plans were done"
    return outcome_in(run_dir)


def outcome_in(run_dir: Path) -> Outcome:
    return without_traffic(Outcome.read(run_dir))
