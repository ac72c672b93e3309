"""A cut through a run whose environments are rollouts ahead of the learner: whoever continues from it makes the rest to
the same bits, whether the rollouts ahead are part of it or not."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray
from worker_layout import Roles

from htsrl import A2C, Experiment, Network
from htsrl.checkpoint.cut import restore_cut, take_cut
from htsrl.digest import Link, first_difference
from htsrl.errors import CheckpointDamaged
from htsrl.roles.role import advance_all

NUM_ENVS, NUM_STEPS, NUM_UPDATES, VERSION = 3, 4, 12, 5
LAGS = (0, 1, 2, 4)
Ahead = Literal["left out", "kept"]


def experiment(lag: int) -> Experiment:
    """Every rollout begins an episode, so that every capsule takes the next heap; and what is remembered continues."""
    return Experiment(
        "CartPole-v1",
        {"max_episode_steps": 3},
        algorithm=A2C(),
        network=Network(recurrent="gru", recurrent_size=8, hidden_sizes=(8,)),
        lag=lag,
        num_envs=NUM_ENVS,
        sync_interval=NUM_STEPS,
        total_steps=NUM_UPDATES * NUM_ENVS * NUM_STEPS,
    )


@cache
def undisturbed(lag: int) -> list[Link]:
    return Roles(experiment(lag)).work_in_random_order(seed=0)


def roles_far_ahead(lag: int) -> Roles:
    """At the barrier of an update, with environments that have gone on as far as they may."""
    worker_layout = Roles(experiment(lag))
    while worker_layout.learner.update < VERSION:
        assert advance_all([*worker_layout.executors, *worker_layout.actors, worker_layout.learner])
    while advance_all([*worker_layout.executors, *worker_layout.actors]):
        pass
    assert worker_layout.shared.exchange.completed_rollouts.tolist() == [VERSION + lag + 1] * NUM_ENVS
    return worker_layout


def cut_of(worker_layout: Roles, ahead: Ahead) -> dict[str, NDArray[Any]]:
    shared = worker_layout.shared
    at_barrier = shared.source.completed_at_barrier(VERSION)
    return take_cut(
        shared, worker_layout.block, VERSION, at_barrier if ahead == "left out" else shared.exchange.completed_rollouts
    )


@pytest.mark.parametrize("ahead", ["left out", "kept"])
@pytest.mark.parametrize("lag", LAGS)
def test_roles_resume_from_a_checkpoint_to_the_same_bits(lag: int, ahead: Ahead) -> None:
    cut = cut_of(roles_far_ahead(lag), ahead)
    assert cut["completed_rollouts"].tolist() == [VERSION + 1 + (lag if ahead == "kept" else 0)] * NUM_ENVS
    fresh = Roles(experiment(lag), prepare=lambda shared, block: restore_cut(cut, VERSION, shared, block))
    assert first_difference(fresh.work_in_random_order(seed=1), undisturbed(lag)[VERSION:]) is None


@pytest.mark.parametrize("lag", LAGS)
def test_a_cut_goes_on_where_some_have_not_begun_and_others_are_far_ahead(lag: int) -> None:
    """As when a run is stopped: of the slowest not even the rollout that the update waits for is complete."""
    worker_layout = Roles(experiment(lag))
    while worker_layout.learner.update < VERSION:
        assert advance_all([*worker_layout.executors, *worker_layout.actors, worker_layout.learner])
    while advance_all([*worker_layout.executors[1:], *worker_layout.actors]):
        pass
    completed = worker_layout.shared.exchange.completed_rollouts
    assert completed.tolist() == [VERSION, *[VERSION + lag + 1] * (NUM_ENVS - 1)]
    cut = take_cut(worker_layout.shared, worker_layout.block, VERSION, completed)
    fresh = Roles(experiment(lag), prepare=lambda shared, block: restore_cut(cut, VERSION, shared, block))
    assert first_difference(fresh.work_in_random_order(seed=2), undisturbed(lag)[VERSION:]) is None


@pytest.mark.parametrize("lag", LAGS)
def test_a_cut_at_a_barrier_holds_one_storage_and_the_versions_in_use(lag: int) -> None:
    names = [name.partition("/")[0] for name in cut_of(roles_far_ahead(lag), "left out") if "/" in name]
    storage = VERSION % max(lag + 1, 2)
    versions = range(VERSION - lag, VERSION + 1)
    assert {*names} == {f"storage {storage}", *(f"version {version}" for version in versions)}


def test_a_cut_with_more_rollouts_ahead_than_there_are_storages_is_refused() -> None:
    cut = cut_of(roles_far_ahead(2), "kept")
    cut["completed_rollouts"] = cut["completed_rollouts"] + 1
    with pytest.raises(CheckpointDamaged, match="has environments at rollouts"):
        Roles(experiment(2), prepare=lambda shared, block: restore_cut(cut, VERSION, shared, block))


@pytest.mark.parametrize("lag", [0, 1])
def test_a_cut_that_tells_versions_by_three_slots_is_still_understood(lag: int) -> None:
    """So were they told before the lag decided how many slots there are."""
    cut = cut_of(roles_far_ahead(lag), "left out")
    old_names = {f"version {v}": f"slot {v % 3}" for v in (VERSION, VERSION - 1)}
    old = {
        f"{old_names.get(of, of)}{slash}{name}": array
        for (of, slash, name), array in ((key.partition("/"), array) for key, array in cut.items())
    }
    if lag == 0:  # it had the version before, too, in a slot that is now another's
        old |= {name.replace("slot 2", "slot 1"): np.zeros_like(x) for name, x in old.items() if "slot" in name}
    fresh = Roles(experiment(lag), prepare=lambda shared, block: restore_cut(old, VERSION, shared, block))
    assert first_difference(fresh.work_in_random_order(seed=1), undisturbed(lag)[VERSION:]) is None
