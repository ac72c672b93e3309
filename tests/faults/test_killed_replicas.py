"""Several learners, and kills of any of them in any phase of an update and of a meeting: no bit changes."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers import Outcome, assert_same_run, run, workers_left
from interleavings import Company, Killed, assert_kills_change_nothing, blueprint_of, work_in_any_order
from small_run import quiet_placement, small_experiment

from htsrl import PPO, Config, Experiment, train
from htsrl.dataflow.replicas import ReplicaWords
from htsrl.digest import Link, first_difference
from htsrl.numerics import single_threaded
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE
from htsrl.roles.role import advance_all

NUM_UPDATES = 6
ARGS: dict[str, dict[str, Any]] = {
    "fixed": {"local_updates": 2, "optimizer": "average"},
    "selsync": {"window": 2, "delta": 0.1},
    "sync_switch": {"switch_share": 0.4, "momentum_factor": 0.0},
}
ALGORITHM = PPO(epochs=2, num_minibatches=2)
DRAFTS = ("before a draft counts", "after a draft counts")
MERGES = ("inside a merge", "before a merge counts", "after a merge counts", "inside a take-over")


def with_replicas(rule: str) -> Experiment:
    experiment = small_experiment(NUM_UPDATES, algorithm=ALGORITHM)
    return replace(experiment, learners=2, sync_rule=rule, sync_args=ARGS[rule])


@cache
def oracle_of(rule: str) -> Outcome:
    return run(with_replicas(rule), log_every_steps=1)


@pytest.mark.parametrize("rule", ["fixed", "sync_switch", pytest.param("selsync", marks=pytest.mark.slow)])
def test_whoever_is_killed_between_any_two_lines_no_bit_changes(rule: str) -> None:
    wanted = {"learner": 1, "learner of replica 1": 1}
    assert_kills_change_nothing(blueprint_of(with_replicas(rule)), oracle_of(rule).links, wanted, first_seed=1)


@pytest.mark.parametrize("rule", ARGS)
@pytest.mark.parametrize("point", MERGES)
def test_replica_0_killed_in_the_middle_of_a_meeting_comes_to_the_same_bits(
    rule: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = 2 if point == "inside a take-over" else 1  # when the draft of replica 1 is gone
    assert first_difference(links_with_a_kill(rule, point, times, monkeypatch), oracle_of(rule).links) is None


def test_a_meeting_that_is_held_again_from_drafts_that_are_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail: the word that says that the results are whole is what makes them last."""
    monkeypatch.setattr(ReplicaWords, "is_merged", lambda self, version: False)
    links = links_with_a_kill("fixed", "inside a take-over", 2, monkeypatch)
    assert first_difference(links, oracle_of("fixed").links) is not None


def links_with_a_kill(rule: str, point: str, times: int, monkeypatch: pytest.MonkeyPatch) -> list[Link]:
    """Of a run in this process whose learner dies when it comes to a point for the so-manieth time."""
    left = [times]

    def die_here(reached: str) -> None:
        left[0] -= reached == point
        if left[0] == 0 and reached == point:
            raise Killed

    monkeypatch.setattr("htsrl.roles.meetings.kill_point", die_here)
    monkeypatch.setattr("htsrl.dataflow.replicas.kill_point", die_here)
    with single_threaded():
        company = Company(blueprint_of(with_replicas(rule)))
        roles = {name: build() for name, build in company.builders.items()}
        while not company.has_finished:
            try:
                assert advance_all(list(roles.values()))  # the learner comes last: the others have made their drafts
            except Killed:
                roles["learner"] = company.builders["learner"]()
    assert left[0] <= 0
    return company.links


def test_a_learner_that_does_not_wait_for_the_drafts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the test above can fail: in some order of turns, for in others the drafts are in time by luck."""
    expected, blueprint = oracle_of("fixed").links, blueprint_of(with_replicas("fixed"))
    monkeypatch.setattr(ReplicaWords, "late", lambda self, version: [])
    runs = (work_in_any_order(blueprint, seed, kill_odds=0.0)[0] for seed in range(20))
    assert any(first_difference(links, expected) is not None for links in runs)


def test_learners_killed_at_every_point_in_turn_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As processes: the one that is started in its place comes by where it died, and to the next point."""
    orders = [*(f"{point}:1" for point in (*DRAFTS, *MERGES[:-1])), f"{MERGES[-1]}:2"]
    monkeypatch.setenv(KILL_AT, ", ".join(orders))
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    placement = quiet_placement(run_dir=tmp_path / "run", checkpoint_every_updates=2)
    result = train(Config(with_replicas("fixed"), placement))
    assert {path.name for path in (tmp_path / "killed").iterdir()} == {*DRAFTS, *MERGES}
    said = capfd.readouterr().err
    assert (
        len(re.findall(r"learner of replica 1 \(pid \d+\) was killed by SIGKILL while .* is started again\n", said))
        == 2
    )
    assert len(re.findall(r"^learner \(pid \d+\) was killed by SIGKILL while .* is started again\n", said, re.M)) == 4
    assert result.restarts == 6
    assert_same_run(Outcome.read(tmp_path / "run"), oracle_of("fixed"))
    assert workers_left() == []
