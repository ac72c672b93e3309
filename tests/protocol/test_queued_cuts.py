"""A cut through an asynchronous run, whose environments continue while they are copied, has nothing halved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_asynchronous import NUM_ENVS
from test_asynchronous import experiment as tagged_experiment
from worker_layout import Roles

from htsrl.checkpoint.cut import restore_cut, take_cut
from htsrl.dataflow.capsules import Capsule, Capsules
from htsrl.dataflow.queue import RELEASED
from htsrl.errors import CheckpointDamaged
from htsrl.roles.role import advance_all

QUEUE_LENGTH = 4
VERSION = 5
# Its environments come back by playing their episodes again, which a Tagged one, that counts all steps, cannot. Every
# rollout begins an episode, so that of the two heaps of an environment each is written anew after two rollouts.
EXPERIMENT = replace(tagged_experiment(QUEUE_LENGTH), env="CartPole-v1", env_args={"max_episode_steps": 3})


class Historian:
    """Keeps what every rollout was, and the capsule behind it, at the moment when it was complete."""

    def __init__(self) -> None:
        self.worker_layout = Roles(EXPERIMENT)
        self.rollouts: dict[tuple[int, int], dict[str, NDArray[Any]]] = {}
        self.capsules: dict[tuple[int, int], tuple[Capsule, bytes]] = {}
        self._read = Capsules.read

    def work(self) -> bool:
        """A turn of each executor and actor."""
        shared = self.worker_layout.shared
        before = shared.exchange.completed_rollouts.copy()
        progressed = advance_all([*self.worker_layout.executors, *self.worker_layout.actors])
        for env in np.flatnonzero(shared.exchange.completed_rollouts != before).tolist():
            number, storage = int(before[env]), shared.storages.of_rollout(int(before[env]))
            fields = shared.storages.fields
            self.rollouts[env, number] = {name: array[storage, :, env].copy() for name, array in fields.items()}
            capsule = shared.capsules.get(env, number + 1)
            self.capsules[env, number + 1] = capsule, self._read(shared.capsules, env, capsule)
        return progressed

    def work_until_update(self, version: int) -> None:
        while self.worker_layout.learner.update < version:
            self.work()
            self.worker_layout.learner.advance()


@pytest.fixture
def historian() -> Historian:
    historian = Historian()
    historian.work_until_update(VERSION)
    return historian


def take_cut_while_environments_go_on(historian: Historian, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Between looking for a capsule and reading it, all continue until there is no room for more rollouts."""
    worker_layout, read = historian.worker_layout, Capsules.read

    def go_on_and_read(self: Capsules, env: int, capsule: Capsule) -> bytes:
        while historian.work():
            pass
        return read(self, env, capsule)

    with monkeypatch.context() as patched:
        patched.setattr(Capsules, "read", go_on_and_read)
        return take_cut(worker_layout.shared, worker_layout.block, VERSION, completed=None)


def test_every_environment_is_copied_as_it_stood_at_one_moment(
    historian: Historian, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = historian.worker_layout.shared.exchange.completed_rollouts.copy()
    cut = take_cut_while_environments_go_on(historian, monkeypatch)
    completed, released = cut["completed_rollouts"], cut[f"version {VERSION}/{RELEASED}"]
    assert (completed >= before + 2).all(), "nobody went so far that the capsule at hand was written over"
    begin = 0
    for env in range(NUM_ENVS):
        for number in range(int(released[env]), int(completed[env])):
            for name, expected in historian.rollouts[env, number].items():
                copied = cut[f"storage {number % QUEUE_LENGTH}/{name}"][:, env]
                np.testing.assert_array_equal(copied, expected, err_msg=f"{name} of rollout {number} of {env}")
        capsule, heap = historian.capsules[env, int(completed[env])]
        assert (cut["capsule_episodes"][env], cut["capsule_lengths"][env]) == (capsule.episode, capsule.length)
        size = int(cut["capsule_sizes"][env])
        assert cut["capsule_bytes"][begin : begin + size].tobytes() == heap
        begin += size


def test_roles_resume_from_a_checkpoint(historian: Historian, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = take_cut_while_environments_go_on(historian, monkeypatch)
    fresh = Roles(EXPERIMENT, prepare=lambda shared, block: restore_cut(cut, VERSION, shared, block))
    links = fresh.work_in_random_order(seed=1)
    assert len(links) == EXPERIMENT.num_intervals - VERSION


def test_a_cut_with_more_rollouts_than_the_queue_holds_is_refused(historian: Historian) -> None:
    cut = take_cut(historian.worker_layout.shared, historian.worker_layout.block, VERSION, completed=None)
    cut["completed_rollouts"] = cut["completed_rollouts"] + QUEUE_LENGTH + 1
    fresh = Roles(EXPERIMENT)
    with pytest.raises(CheckpointDamaged, match="has environments at rollouts"):
        restore_cut(cut, VERSION, fresh.shared, fresh.block)
