"""The learner reads what the schedule says and nothing else: poisoned storages and asserted versions prove it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
from helpers import Outcome, assert_same_run, run
from sabotage_roles import SABOTAGE_VARIABLE, off_by
from worker_layout import Roles

from htsrl import A2C, EnvironmentFailure, Experiment, HtsrlError
from htsrl.dataflow.exchange import Exchange
from htsrl.dataflow.storage import POISON_BYTE
from htsrl.digest import first_difference
from htsrl.placements.blueprint import Blueprint
from htsrl.roles.env_runner import EnvRunner
from htsrl.roles.role import advance_all
from htsrl.roles.shared import Shared
from htsrl.schedules.fixed_lag import FixedLag
from htsrl.sources.source import Fields

SCHEDULES: tuple[Literal["hts", "sync"], ...] = ("hts", "sync")
SEEDS = range(8)


def experiment(schedule: Literal["hts", "sync", "lockstep"] = "hts", **changes: Any) -> Experiment:
    small = Experiment(
        "ScaledTagged-v0", imports=("tagged_recording",), algorithm=A2C(), num_envs=4, sync_interval=4, total_steps=128
    )
    return replace(small, schedule=schedule, **changes)


@cache
def oracle(schedule: Literal["hts", "sync"], lag: int | None = None) -> Outcome:
    return run(experiment(schedule, lag=lag))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("schedule", [*SCHEDULES, "lockstep"])
def test_any_order_of_turns_gives_the_same_digest_over_poisoned_storages(
    schedule: Literal["hts", "sync", "lockstep"], seed: int
) -> None:
    links = Roles(experiment(schedule)).work_in_random_order(seed)
    assert first_difference(links, oracle("hts" if schedule == "hts" else "sync").links) is None


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("lag", [0, 1, 2, 4])
def test_under_any_lag_any_order_of_turns_gives_the_same_digest_over_poisoned_storages(lag: int, seed: int) -> None:
    worker_layout, ahead = Roles(experiment("hts", lag=lag)), [0]

    def look_how_far_they_are() -> None:
        exchange = worker_layout.shared.exchange
        ahead.append(int(exchange.completed_rollouts.max()) - exchange.published_version)

    links = worker_layout.work_in_random_order(seed, after_each_turn=look_how_far_they_are)
    assert max(ahead) == lag + 1, "complete rollouts wait for the learner, as many as there may be"
    assert first_difference(links, oracle("hts", lag).links) is None
    if lag < 2:
        assert first_difference(links, oracle("hts" if lag else "sync").links) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_under_lockstep_nobody_acts_before_all_have_come_as_far(seed: int) -> None:
    worker_layout = Roles(experiment("lockstep"))
    exchange = worker_layout.shared.exchange

    def nobody_is_ahead() -> None:
        acted = exchange.answers[exchange.tickets.asks_to_act(exchange.answers)]
        under_way = exchange.completed_rollouts <= exchange.published_version
        assert not acted.size or (exchange.requests[under_way] >= acted.max()).all()

    worker_layout.work_in_random_order(seed, after_each_turn=nobody_is_ahead)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_processes_with_delays_over_poisoned_storages_give_the_same_digest(schedule: Literal["hts", "sync"]) -> None:
    worker_layout = {"num_executors": 2, "num_actors": 1, "jitter_seconds": 2e-3}
    poisoned = run(experiment(schedule), backend="processes", verify_storages=True, **worker_layout)
    assert_same_run(poisoned, oracle(schedule))


def test_a_storage_is_poison_when_its_next_rollout_begins_but_for_what_that_rollout_starts_from() -> None:
    worker_layout = Roles(experiment("sync"))
    while worker_layout.learner.update < 2:
        progressed = advance_all([*worker_layout.executors, *worker_layout.actors, worker_layout.learner])
        assert progressed, "nobody can proceed"
    advance_all(worker_layout.executors)  # rollout 2 begins in storage 0, and asks
    storages = worker_layout.shared.storages
    for name in ("actions", "log_probs", "values", "versions", "rewards"):
        assert (storages.batch(0)[name].view(np.uint8) == POISON_BYTE).all(), name
    assert not (storages["obs"][0, 0].view(np.uint8) == POISON_BYTE).all()
    assert (storages["obs"][0, 1 : storages.spec.num_steps].view(np.uint8) == POISON_BYTE).all()


@pytest.mark.parametrize("lag", [1, 2])
def test_executors_that_do_not_wait_for_the_storage_to_be_read_are_caught(lag: int) -> None:
    """Their rollouts begin one version too early."""

    def caught(seed: int) -> bool:
        try:
            Roles(experiment("hts", lag=lag), executors_follow=FixedLag(lag + 1)).work_in_random_order(seed)
        except AssertionError as error:
            return "expected data of version" in str(error)
        return False

    assert all(caught(seed) for seed in SEEDS)


def test_a_learner_that_does_not_wait_for_the_last_environment_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_env_is_done(self: Exchange, rollout: int) -> bool:
        return bool(self.completed_rollouts.max() > rollout)

    monkeypatch.setattr(Exchange, "rollout_is_complete", any_env_is_done)
    for seed in SEEDS:
        # Whoever meets the poison first: the learner in a version, or an environment in an action.
        with pytest.raises((AssertionError, EnvironmentFailure), match=r"expected data of version|is not one of 0, 1"):
            Roles(experiment("hts")).work_in_random_order(seed)


def test_a_write_into_the_storage_being_read_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    worker_layout = Roles(experiment("hts"))
    learn = worker_layout.learner.learn

    def learn_while_another_writes(fields: Fields) -> dict[str, float]:
        metrics = learn(fields)
        worker_layout.shared.storages["rewards"][0, -1, -1] += 1
        return metrics

    monkeypatch.setattr(worker_layout.learner, "learn", learn_while_another_writes)
    with pytest.raises(AssertionError, match=r"somebody wrote to storage 0 \(update 0\) while the learner read it"):
        worker_layout.work_in_random_order(seed=0)


@pytest.mark.parametrize("name", ["bootstrap_values", "terminated", "truncated"])
def test_a_field_left_over_from_two_rollouts_ago_shows_over_poisoned_storages(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all = EnvRunner._begin_rollout

    def forget_to_clear(self: EnvRunner) -> None:
        storage = self.rollout % 2
        left_over = self._storages[name][storage, :, self.index].copy()
        write_all(self)
        self._storages[name][storage, :, self.index] = left_over

    monkeypatch.setattr(EnvRunner, "_begin_rollout", forget_to_clear)
    difference = first_difference(Roles(experiment("sync")).work_in_random_order(seed=0), oracle("sync").links)
    assert difference is not None
    assert name in difference


def test_a_learner_that_publishes_before_it_has_read_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SABOTAGE_VARIABLE, "hasty learner")
    sabotaged = experiment("hts", imports=("tagged_recording", "sabotage_roles"))
    # By the comparison of hashes, or before that by an action that is poison.
    with pytest.raises(HtsrlError, match=r"somebody wrote to storage 0 \(update 0\) while|index -\d+ is out of bounds"):
        run(sabotaged, backend="processes", verify_storages=True, num_executors=1, num_actors=0)


@pytest.mark.parametrize("versions", [-1, 1])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_batch_made_by_another_version_is_caught(
    schedule: Literal["hts", "sync"], versions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_actor = Blueprint.build_actor

    def build_actor_off_by_one(self: Blueprint, index: int, shared: Shared, *arguments: Any, **named: Any) -> Any:
        return build_actor(
            self, index, replace(shared, schedule=off_by(versions, shared.schedule)), *arguments, **named
        )

    monkeypatch.setattr(Blueprint, "build_actor", build_actor_off_by_one)
    # A version that is still to come is waited for, in vain.
    with pytest.raises(AssertionError, match=r"update \d expected data of version \d|nobody can proceed"):
        run(experiment(schedule))


def test_over_processes_a_batch_made_by_another_version_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SABOTAGE_VARIABLE, "actor of another version")
    sabotaged = experiment("hts", imports=("tagged_recording", "sabotage_roles"))
    with pytest.raises(HtsrlError, match=r"update 2 expected data of version 1, got"):
        run(sabotaged, backend="processes", num_executors=1, num_actors=1)
