"""Kills where policies remember, actions are masked and agents come and go: whatever moment it is, no bit changes."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from combinations import COMBINATIONS, SIMULATORS, Schedule, combination, oracle
from helpers import Outcome, assert_same_run, run
from interleavings import Company, assert_kills_change_nothing, blueprint_of
from live_run import patience

from htsrl import A2C, Config, Experiment, Placement, train
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.digest import Link, first_difference
from htsrl.numerics import single_threaded
from htsrl.placements.blueprint import Blueprint
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE
from htsrl.processes.process_name import name_of_process
from htsrl.roles import actor as actor_module
from htsrl.roles.role import advance_all

NUM_UPDATES = 8
UPDATES_TO_KILL_IN = 40
"""So many that a run is not over before whoever kills in its first updates was given a processor."""
WANTED = {"executor": 1, "actor": 1}
# Episodes so short that many end with the first step of a rollout, whose answer a new executor finds made.
SHORT = {
    "cut": replace(COMBINATIONS["gru_a2c"], env_args={"step_limit": 2}, sync_interval=3),
    "over": replace(COMBINATIONS["dict_mask_lstm"], env_args={"length": 3}, sync_interval=2),
    "team": replace(COMBINATIONS["team_mask_lstm"], sync_interval=1),
}


def short(name: str, num_updates: int) -> Experiment:
    experiment = replace(SHORT[name], algorithm=A2C(), num_envs=2)
    return replace(experiment, total_steps=num_updates * experiment.batch_steps)


@cache
def short_oracle(name: str, num_updates: int) -> list[Link]:
    return run(short(name, num_updates)).links


class Successor:
    """All executors are dead, and new ones do what they can, at a moment of an actor's work on some answer."""

    def __init__(self, company: Company, moment: str, times: int) -> None:
        self.company = company
        self.executors = [build() for build in company.executors.values()]
        self.has_come = False
        self._moment = moment
        self._times_left = times

    def kill_point(self, moment: str) -> None:
        self._times_left -= moment == self._moment
        if self._times_left == 0 and not self.has_come:
            self.has_come = True
            self.executors = [build() for build in self.company.executors.values()]
            while advance_all(self.executors):
                pass


BEFORE_A_LOOK = "before a look at what was asked"
MOMENTS = (BEFORE_A_LOOK, "inside an answer", "before an answer")


def links_with_a_successor(
    blueprint: Blueprint, moment: str, times: int, patched: pytest.MonkeyPatch
) -> list[Link] | None:
    """The digest of a run whose executors are replaced at that moment of an answer; None if it does not come to it."""
    with single_threaded():
        company = Company(blueprint)
        successor = Successor(company, moment, times)
        others = [build() for name, build in company.builders.items() if name not in company.executors]
        lay_out = ReferenceShape.lay_out

        def look(self: ReferenceShape, *asked: Any) -> Any:
            successor.kill_point(BEFORE_A_LOOK)
            return lay_out(self, *asked)

        patched.setattr(ReferenceShape, "lay_out", look)
        patched.setattr(actor_module, "kill_point", successor.kill_point)
        while not company.has_finished:
            assert advance_all([*successor.executors, *others]), "nobody can proceed"
    return company.links if successor.has_come else None


@pytest.mark.parametrize("verify_storages", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "poisoned"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", SHORT)
def test_an_answer_under_way_when_the_executor_is_replaced_is_not_taken_for_one_to_the_new(
    name: str, moment: str, verify_storages: bool
) -> None:
    """The new one writes once more where the actor is reading, and clears or poisons what it has written."""
    num_updates, times = 3, 0
    blueprint = blueprint_of(short(name, num_updates), verify_storages)
    while True:
        times += 1
        with pytest.MonkeyPatch.context() as patched:
            links = links_with_a_successor(blueprint, moment, times, patched)
        if links is None:
            break
        assert first_difference(links, short_oracle(name, num_updates)) is None, f"answer {times}"
    assert times > 2 * num_updates


@pytest.mark.parametrize("verify_storages", [False, True], ids=["", "poisoned"])
@pytest.mark.parametrize("name", SHORT)
def test_turns_and_kills_at_any_line_change_no_bit(name: str, verify_storages: bool) -> None:
    blueprint = blueprint_of(short(name, NUM_UPDATES), verify_storages)
    assert_kills_change_nothing(blueprint, short_oracle(name, NUM_UPDATES), WANTED, random_seed(), min_runs=3)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["hts", "sync", "lockstep"])
@pytest.mark.parametrize("name", COMBINATIONS)
def test_turns_and_kills_at_any_line_change_no_bit_under_any_schedule(name: str, schedule: Schedule) -> None:
    blueprint = blueprint_of(combination(name, NUM_UPDATES, schedule), verify_storages=True)
    links = oracle(name, NUM_UPDATES, "sync" if schedule == "lockstep" else schedule).links
    assert_kills_change_nothing(blueprint, links, WANTED, random_seed(), min_runs=20)


def random_seed() -> int:
    first = int(os.environ.get("HTSRL_CHAOS_SEED", time.time_ns() % 1_000_000))
    print(f"HTSRL_CHAOS_SEED={first}")
    return first


EACH_ROLE = ("before a rollout counts", 9), ("inside an answer", 11), ("before a publish", 2)
"""Points in an executor, an actor and the learner, each of which is killed there, one after another."""
POINTS = [
    ("inside an answer", 33),
    ("after an answer", 33),
    ("before a request", 70),
    ("inside a storage write", 90),
    ("before a rollout counts", 14),
    ("before a publish", 4),
]


def assert_kills_at_change_no_bit(
    points: Sequence[tuple[str, int]], name: str, num_updates: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KILL_AT, ", ".join(f"{point}:{times}" for point, times in points))
    monkeypatch.setenv(KILL_ONCE, str(folder / "killed"))
    assert train_in_processes(name, folder, num_updates) == len(points)
    assert {path.name for path in (folder / "killed").iterdir()} == {point for point, _ in points}
    assert_same_run(Outcome.read(folder / "run"), oracle(name, num_updates))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "gru_a2c" else []) for name in COMBINATIONS]
)
def test_an_executor_an_actor_and_the_learner_killed_where_it_matters_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert_kills_at_change_no_bit(EACH_ROLE, name, NUM_UPDATES, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", SIMULATORS)
def test_kills_change_no_bit_where_a_simulator_has_three_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Resumes of the same: `determinism/test_combined_digests.py`."""
    pytest.importorskip(SIMULATORS[name][0])
    assert_kills_at_change_no_bit(EACH_ROLE, name, 6, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("point", "times"), POINTS)
@pytest.mark.parametrize("name", COMBINATIONS)
def test_a_process_killed_at_a_point_that_matters_to_memory_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, point: str, times: int
) -> None:
    assert_kills_at_change_no_bit([(point, times)], name, NUM_UPDATES, tmp_path, monkeypatch)


def train_in_processes(name: str, folder: Path, num_updates: int = NUM_UPDATES, **settings: Any) -> int:
    """Returns how many workers were started again."""
    placement = Placement(
        num_executors=1,
        num_actors=1,
        run_dir=folder / "run",
        tensorboard=False,
        progress="off",
        deadline_seconds=patience(60.0),
        verify_storages=True,
        **settings,
    )
    return train(Config(combination(name, num_updates), placement)).restarts


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "team_mask_lstm" else pytest.mark.slow) for name in COMBINATIONS]
)
def test_an_executor_an_actor_and_the_learner_killed_at_random_moments_change_no_bit(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    seed = random_seed()
    with somebody_kills_each(tmp_path / "run" / "digest.jsonl", random.Random(seed)):
        train_in_processes(name, tmp_path, UPDATES_TO_KILL_IN, jitter_seconds=0.01)
    killed = re.findall(r"^(\w+)(?: 0)? \(pid \d+\) was killed by SIGKILL", capfd.readouterr().err, re.MULTILINE)
    assert sorted(killed) == ["actor", "executor", "learner"]
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(name, UPDATES_TO_KILL_IN))


@contextmanager
def somebody_kills_each(digest: Path, draw: random.Random) -> Iterator[None]:
    """All workers that a run starts with, one after another in any order, at moments between its first updates."""

    def wait_for(num_updates: int) -> None:
        while not digest.exists() or digest.read_text().count("\n") < num_updates:
            time.sleep(0.005)

    def kill_each() -> None:
        wait_for(1)
        # By name: tests before this one in the same process may have left helpers of Python's.
        by_role = {name_of_process(child.pid).partition(" ")[0]: child for child in psutil.Process().children()}
        victims = [by_role[role] for role in ("actor", "executor", "learner")]
        draw.shuffle(victims)
        for num_updates, victim in zip((1, 3, 5), victims, strict=True):
            wait_for(num_updates)
            time.sleep(draw.uniform(0.0, 0.1))
            victim.send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill_each, daemon=True)
    killer.start()
    yield
    killer.join()
