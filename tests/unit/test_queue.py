"""The queue of complete rollouts: first come, first served, with room for so many of each environment."""

from __future__ import annotations

import numpy as np
import pytest

from htsrl.dataflow.exchange import Exchange, control_arrays
from htsrl.dataflow.queue import ORDERS, Rollout, RolloutQueue, queue_arrays
from htsrl.dataflow.shared_arrays import SharedArrays

NUM_ENVS = 3


class Line:
    """A queue, and environments that complete rollouts one after another."""

    def __init__(self, length: int) -> None:
        self.block = SharedArrays([*control_arrays(NUM_ENVS, num_workers=1), *queue_arrays(NUM_ENVS, length)])
        self.block.close_fd()
        self.exchange = Exchange(self.block, num_steps=4)
        self.queue = RolloutQueue(self.block, self.exchange)

    def complete(self, *envs: int) -> None:
        for env in envs:
            rollout = Rollout(env, int(self.exchange.completed_rollouts[env]))
            assert self.queue.has_room(rollout)
            self.queue.put(rollout)
            self.exchange.completed_rollouts[env] += 1

    def learn(self, count: int = NUM_ENVS) -> list[Rollout]:
        """One update from begin to publish."""
        version = self.exchange.published_version
        learned = self.queue.oldest(version, count)
        assert learned is not None
        self.queue.release(version + 1, learned)
        self.exchange.published_version = version + 1
        return learned

    def has_room(self, env: int) -> bool:
        return self.queue.has_room(Rollout(env, int(self.exchange.completed_rollouts[env])))


def test_whoever_comes_first_is_learned_from_first() -> None:
    line = Line(length=4)
    line.complete(2, 0, 2, 1, 0, 2)
    assert line.learn() == [Rollout(2, 0), Rollout(0, 0), Rollout(2, 1)]
    line.complete(1, 1)
    assert line.learn() == [Rollout(1, 0), Rollout(0, 1), Rollout(2, 2)]


def test_an_update_waits_until_there_are_enough() -> None:
    line = Line(length=2)
    line.complete(0, 0)
    assert line.queue.oldest(0, NUM_ENVS) is None
    line.complete(2)
    assert line.queue.oldest(0, NUM_ENVS) is not None


def test_a_rollout_that_is_put_and_does_not_count_yet_is_not_there() -> None:
    """Its executor may die before it counts, and the rollout be made again, to be put again."""
    line = Line(length=2)
    line.queue.put(Rollout(1, 0))
    line.complete(0, 2)
    assert line.queue.oldest(0, NUM_ENVS) is None
    line.complete(1)
    assert line.learn() == [Rollout(0, 0), Rollout(2, 0), Rollout(1, 0)]


@pytest.mark.parametrize("length", [2, 3, 5])
def test_an_environment_has_room_for_as_many_as_the_queue_is_long(length: int) -> None:
    line = Line(length)
    line.complete(*[0] * length)
    assert not line.has_room(0)
    assert line.has_room(1)


def test_room_comes_with_the_version_that_is_published_and_not_before() -> None:
    line = Line(length=2)
    line.complete(0, 0, 1)
    learned = line.queue.oldest(0, NUM_ENVS)
    assert learned is not None
    line.queue.release(1, learned)
    assert not line.has_room(0)
    line.exchange.published_version = 1
    assert line.has_room(0)


def test_a_learner_that_died_before_it_published_leaves_the_queue_as_it_was() -> None:
    line = Line(length=3)
    line.complete(0, 1, 2)
    before = line.queue.oldest(0, NUM_ENVS)
    assert before is not None
    line.queue.release(1, before)
    line.complete(0, 1)
    assert line.learn() == before
    assert line.queue.oldest(1, NUM_ENVS) is None


def test_two_that_came_at_the_same_time_are_learned_from_once_each() -> None:
    line = Line(length=2)
    line.complete(0, 1, 2)
    line.block[ORDERS][0] = 7
    assert line.learn(2) == [Rollout(0, 0), Rollout(1, 0)]
    line.complete(0)
    assert line.learn(2) == [Rollout(2, 0), Rollout(0, 1)]


def test_nothing_is_lost_or_doubled_however_long_it_goes_on() -> None:
    line, drawn, learned = Line(length=3), np.random.default_rng(0), []
    for _ in range(12):
        while line.queue.oldest(line.exchange.published_version, NUM_ENVS) is None:
            env = int(drawn.choice([0, 0, 0, 1, 2]))
            if line.has_room(env):
                line.complete(env)
        learned += line.learn()
    for env in range(NUM_ENVS):
        numbers = [rollout.number for rollout in learned if rollout.env == env]
        assert numbers == list(range(len(numbers)))
    assert len({rollout.env for rollout in learned}) == NUM_ENVS


def test_room_is_read_again_where_the_slot_that_tells_of_it_may_have_been_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The learner continues from version 0 to 3, whose slot is the same, between two words that the executor reads."""
    line = Line(length=2)
    line.complete(0, 0, 1)
    versions = iter([0, 3, 3, 3])
    line.block["released_rollouts"][0] = 2  # of version 3
    monkeypatch.setattr(Exchange, "published_version", property(lambda self: next(versions)))
    assert line.has_room(0)
    assert next(versions, None) is None
