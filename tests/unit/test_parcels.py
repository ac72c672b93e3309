"""What travels between islands and the learner: taken apart as it was put together, and refused where it was not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from htsrl import A2C, Config, Experiment, Placement
from htsrl.cluster.crossing import Crossing, one_by_one, several
from htsrl.cluster.parcel import BrokenParcel, pack, unpack
from htsrl.cluster.plan import share_by_weight, with_islands
from htsrl.cluster.stacks import put_together, take_apart
from htsrl.dataflow.capsules import Capsule
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.survey import draw_blueprint
from htsrl.roles.shared import Shared

EXPERIMENT = Experiment("CartPole-v1", algorithm=A2C(), num_envs=4, sync_interval=3, total_steps=600)


@pytest.fixture(scope="module")
def blueprint() -> Blueprint:
    drawn = draw_blueprint(Config(EXPERIMENT, Placement(num_executors=1, check_env=False)))
    return with_islands(drawn, [1.0, 1.0])


class Side:
    """One machine's block, and its end of what crosses for island 1."""

    def __init__(self, blueprint: Blueprint, sparse: bool = False) -> None:
        self.block = SharedArrays(blueprint.block_specs(), sparse=sparse)
        self.shared: Shared = blueprint.shared(self.block)
        self.crossing = Crossing(blueprint, self.block, self.shared, island=1)

    def complete(self, env: int, rollout: int, log: bytes, heap: int = 0, offset: int = 0) -> None:
        """What an executor does at the end of a rollout."""
        storages, column = self.shared.storages, env
        for name, array in storages.lasting.items():
            array[storages.of_rollout(rollout), :, column] = (hash((name, env, rollout)) % 100) > 50
        self.shared.capsules.write(env, heap, offset, log)
        capsule = Capsule(rollout, 0.5, 3, heap, offset + len(log), is_log=True)
        self.shared.capsules.put(env, rollout + 1, capsule)
        self.shared.exchange.completed_rollouts[env] = rollout + 1


def test_arrays_of_all_kinds_come_out_as_they_went_in() -> None:
    arrays: dict[str, Any] = {
        "a": np.arange(6).reshape(2, 3)[:, ::2],
        "none": np.empty((0, 4), np.float32),
        "b": np.array([True]),
    }
    document, found = unpack(pack({"rollouts": 2}, arrays))
    assert document == {"rollouts": 2}
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("damage", [lambda x: x[:-1], lambda x: x + b"0", lambda x: b"", lambda x: b"\xff" * len(x)])
def test_a_damaged_parcel_is_refused(damage: Any) -> None:
    with pytest.raises(BrokenParcel):
        unpack(damage(pack({}, {"a": np.arange(3)})))


def test_an_array_of_objects_is_refused() -> None:
    with pytest.raises(BrokenParcel):
        unpack(pack({}, {"a": np.arange(3)}).replace(b"<i8", b"|O8"))


def test_rollouts_that_were_sent_are_what_they_were_on_the_island(blueprint: Blueprint) -> None:
    island, learner = Side(blueprint, sparse=True), Side(blueprint)
    known = np.zeros(2, np.int64)
    island.complete(2, 0, b"first.")
    island.complete(3, 0, b"other.")
    island.complete(2, 1, b"second.", offset=6)
    sent = island.crossing.new_rollouts(known)
    assert known.tolist() == [2, 1]
    assert sum(rollout["heaps"].size for rollout in sent) == len(b"first.other.second."), "no byte of a log goes twice"
    for rollout in one_by_one(several(sent), len(sent)):
        learner.crossing.put_next(rollout)
    assert learner.shared.exchange.completed_rollouts.tolist() == [0, 0, 2, 1]
    assert learner.shared.capsules.read(2, learner.shared.capsules.get(2, 2)) == b"first.second."
    for name, array in island.shared.storages.lasting.items():
        np.testing.assert_array_equal(array, learner.shared.storages[name])


def test_an_island_that_begins_again_has_the_whole_log(blueprint: Blueprint) -> None:
    learner, island = Side(blueprint), Side(blueprint, sparse=True)
    learner.complete(2, 0, b"first.")
    assert learner.crossing.whole_rollouts(), "for an island that died"
    learner.complete(2, 1, b"second.", offset=6)
    for rollout in learner.crossing.whole_rollouts():
        island.crossing.put_whole(rollout)
    assert island.shared.exchange.completed_rollouts.tolist() == [0, 0, 2, 0]
    assert island.shared.capsules.read(2, island.shared.capsules.get(2, 2)) == b"first.second."


@pytest.mark.parametrize(
    "harm",
    [
        {"envs": np.array([1])},
        {"rollout": np.array([1])},
        {"field rewards": np.zeros((3, 1), np.float64)},
        {"capsules": np.array([[0, 0, 9, 0, 6, 1]])},
        {"capsules": np.array([[0, 0, 0, 0, 7, 1]])},
        {"capsules": np.array([[0, 0, 0, 0, 5, 1]])},
        {"capsules": np.array([0, 0, 0, 0, 6, 1])},
        {"envs": np.array([2, 2])},
        {"envs": np.array([], np.int64)},
        {"scores": np.array([[0.5]])},
        *({name: None} for name in ("rollout", "envs", "capsules", "scores", "heaps", "field rewards")),
    ],
)
def test_a_rollout_that_cannot_be_is_refused(blueprint: Blueprint, harm: dict[str, Any]) -> None:
    island, learner = Side(blueprint, sparse=True), Side(blueprint)
    island.complete(2, 0, b"first.")
    (rollout,) = island.crossing.new_rollouts(np.zeros(2, np.int64))
    before = contents(learner.block)
    harmed = {name: array for name, array in {**rollout, **harm}.items() if array is not None}
    with pytest.raises(BrokenParcel):
        learner.crossing.put_next(harmed)
    assert contents(learner.block) == before, "nothing of it is written"


def contents(block: SharedArrays) -> bytes:
    return b"".join(block[spec.name].tobytes() for spec in block.specs)


def test_frames_of_a_stack_are_sent_once_and_come_out_as_they_were() -> None:
    random = np.random.default_rng(0)
    frames = random.integers(0, 255, (12, 2, 9, 9), np.uint8)
    rows = np.stack([frames[t : t + 4].swapaxes(0, 1) for t in range(9)])
    rows[5, 1] = random.integers(0, 255, (4, 9, 9), np.uint8)  # an episode that begins anew
    parts = take_apart(rows)
    assert len(parts["older"]) == 2, "that row, and the one that comes after it"
    np.testing.assert_array_equal(put_together(parts, rows.shape), rows)


@pytest.mark.parametrize(
    "harm", [{"moved": np.ones((3, 3), np.bool_)}, {"older": np.zeros((5, 3, 9, 9), np.uint8)}, {"first": np.zeros(3)}]
)
def test_parts_of_other_frames_are_refused(harm: dict[str, Any]) -> None:
    rows = np.zeros((4, 2, 4, 9, 9), np.uint8)
    rows[2, 0, 0] = 1
    with pytest.raises(BrokenParcel):
        put_together({**take_apart(rows), **harm}, rows.shape)


def test_islands_get_what_acts_and_nothing_of_the_optimizer(blueprint: Blueprint) -> None:
    island, learner = Side(blueprint, sparse=True), Side(blueprint)
    learner.block["parameter_slots"][...] = 2.0
    learner.shared.exchange.published_version = 5
    versions, arrays = learner.crossing.acting_versions()
    assert versions == range(4, 6)
    for name in arrays:
        with pytest.raises(BrokenParcel, match=name):
            island.crossing.put_versions(versions, {**arrays, name: arrays[name][:1]})
    island.crossing.put_versions(versions, arrays)
    assert island.shared.exchange.published_version == 5
    slots = island.block["parameter_slots"]
    assert (slots[[4 % 3, 5 % 3], 0] == 2.0).all()
    assert not slots[:, 1:].any()
    assert not slots[0, 0].any()


def test_environments_are_shared_out_by_cores() -> None:
    assert share_by_weight(8, [1.0, 3.0]) == ((0, 1), (2, 3, 4, 5, 6, 7))
    assert share_by_weight(3, [1.0, 100.0, 1.0]) == ((0,), (1,), (2,))
    for weights in ([1.0] * 5, [1.0, 64.0, 2.0]):
        shares = share_by_weight(7, weights)
        assert [env for share in shares for env in share] == list(range(7))
        assert all(shares)


def test_no_worker_has_environments_of_two_islands_or_two_replicas() -> None:
    experiment = replace(
        EXPERIMENT, num_envs=12, learners=3, sync_rule="fixed", sync_args={"local_updates": 2}, total_steps=720
    )
    drawn = draw_blueprint(Config(experiment, Placement(num_executors=3, num_actors=3, check_env=False)))
    placed = with_islands(drawn, [1.0, 1.0])
    for envs in (*placed.executor_envs, *placed.actor_envs):
        assert len({placed.replica_of(env) for env in envs}) == 1
        assert any({*envs} <= {*island} for island in placed.islands)
    assert sorted(env for envs in placed.executor_envs for env in envs) == list(range(12))
