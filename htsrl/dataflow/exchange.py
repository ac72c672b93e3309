"""How executors ask and actors answer: one word per environment on each side, no lock, no queue.

An executor that has written an observation into a storage writes a *ticket* into `requests[env]`; the actor
that serves the environment writes its answer into the storage and then the same ticket into `answers[env]`.
Every word has one writer, so whatever process is killed, the words say what is left to do. They only grow, except that
an environment that was brought back asks once more for what it had asked for in the rollout that it makes again. Before
that comes a *handshake*, a ticket below zero that its actor only copies: once that is answered, no answer to the
executor that died can be under way any more.
A word is written after the data that it announces, and x86-64 shows others the two in that order. Machines with a
weaker memory order (ARM) would need a fence here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays

Words = NDArray[np.int64]
Asked = dict[int, int]
"""Tickets by the environments that wait for an answer."""
BEGAN_EARLIER, COMING_BACK = -1, -2
"""In place of the row at which an episode began."""


MANY_ENVS = 64
"""From so many on, operations of NumPy are worth finding."""


class Request(NamedTuple):
    """What an environment asks for."""

    env: int
    rollout: int
    ticket: int


@dataclass(frozen=True)
class Tickets:
    """Numbers a request by (rollout, row, kind), growing in the order in which an environment asks.

    Within a rollout of T steps: act on row 0, perhaps the value of row 1, act on row 1, ..., the value of row T.
    """

    rows_per_rollout: int

    def to_act(self, rollout: int, row: int) -> int:
        return 2 * (rollout * self.rows_per_rollout + row) + 2

    def for_value(self, rollout: int, row: int) -> int:
        return self.to_act(rollout, row) - 1

    def rollout(self, ticket: int) -> int:
        return (ticket - 1) // (2 * self.rows_per_rollout)

    def rollout_and_row(self, tickets: Words) -> tuple[Words, Words]:
        rollouts, rows = np.divmod((tickets - 1) // 2, self.rows_per_rollout)
        return rollouts, rows

    @staticmethod
    def handshake(request: int, answer: int) -> int:
        """Of an executor that takes over from a dead one: below zero, and unlike all that may be being answered."""
        return min(request, answer, 0) - 1

    @staticmethod
    def is_handshake(ticket: int) -> bool:
        return ticket < 0

    @staticmethod
    def is_for_value(ticket: int) -> bool:
        return ticket > 0 and ticket % 2 == 1

    @staticmethod
    def asks_to_act(tickets: Words) -> NDArray[np.bool_]:
        even: NDArray[np.bool_] = (tickets & 1) == 0
        return even


class Cost(IntEnum):
    """The columns of `cpu_seconds`: what a worker spent its CPU time on."""

    SIMULATOR = 0
    INFERENCE = 1
    LEARNING = 2
    KEEPING = 3  # capsules, and copies for checkpoints
    TOTAL = 4


def control_arrays(num_envs: int, num_workers: int) -> list[ArraySpec]:
    """The words that steer a run, by writer."""
    of_env, of_worker = partial(ArraySpec, watched_by="env"), partial(ArraySpec, watched_by="worker")
    return [
        of_env("requests", (num_envs,), "int64"),  # the environment's executor
        of_env("answers", (num_envs,), "int64"),  # the environment's actor
        ArraySpec("completed_rollouts", (num_envs,), "int64"),  # the environment's executor
        ArraySpec("published_version", (1,), "int64"),  # the learner; the supervisor, of one that has died
        ArraySpec("restored_version", (1,), "int64"),  # whoever resumes: that of the checkpoint, plus one; 0: of none
        ArraySpec("checkpoint_time", (1,), "float64"),  # the learner: the last, by the clock of all processes
        ArraySpec("checkpoint_session", (1,), "int64"),  # whoever makes the first checkpoint since the run was started
        ArraySpec("stop", (1,), "int64"),  # the supervisor
        ArraySpec("crossed_bytes", (2,), "int64"),  # the supervisor: what islands sent it, and it them
        of_env("episodes", (num_envs, 2), "int64"),  # the environment's executor: number, and row that it began at
        of_env("inside", (num_envs,), "int64"),  # the environment's executor: odd while the environment runs
        of_env("env_seconds", (num_envs,), "float64"),  # the environment's executor: spent inside it, about
        of_worker("naps", (num_workers,), "int64"),  # each worker its own: odd while it waits
        of_worker("beats", (num_workers,), "int64"),  # each worker its own: one more for each part of an update
        of_worker("waited_seconds", (num_workers,), "float64"),  # each worker its own
        of_worker("cpu_seconds", (num_workers, len(Cost)), "float64"),  # each worker its own
    ]


OF_ENVS = (
    *("requests", "answers", "completed_rollouts", "episodes", "inside", "env_seconds"),
    *("request_of", "answer_to", "inside_of"),
)
"""The words of an `Exchange` that there is one of for each environment."""


class Exchange:
    """The words shared by executors, actors and learner."""

    def __init__(self, block: SharedArrays, num_steps: int) -> None:
        self.tickets = Tickets(rows_per_rollout=num_steps + 1)
        self.requests: Words = block["requests"]
        self.answers: Words = block["answers"]
        self.completed_rollouts: Words = block["completed_rollouts"]
        self.episodes: Words = block["episodes"]
        self.inside: Words = block["inside"]
        self.env_seconds: NDArray[Any] = block["env_seconds"]
        # One by one, words are read and written through a view of memory several times as fast as through an array.
        self.request_of = self.requests.data
        self.answer_to = self.answers.data
        self.inside_of = self.inside.data
        self.naps: Words = block["naps"]
        self.beats: Words = block["beats"]
        self.waited_seconds: NDArray[Any] = block["waited_seconds"]
        self.cpu_seconds: NDArray[Any] = block["cpu_seconds"]
        self._published_version: Words = block["published_version"]
        self._restored_version: Words = block["restored_version"]
        self._checkpoint_session: Words = block["checkpoint_session"]
        self._stop: Words = block["stop"]
        self.checkpoint_time: NDArray[Any] = block["checkpoint_time"]
        self.crossed_bytes: Words = block["crossed_bytes"]

    def of_envs(self, envs: range) -> Exchange:
        """The same with the words of some environments that are neighbours."""
        part = copy.copy(self)
        for name in OF_ENVS:
            setattr(part, name, getattr(self, name)[envs.start : envs.stop])
        return part

    @property
    def published_version(self) -> int:
        return int(self._published_version[0])

    @published_version.setter
    def published_version(self, version: int) -> None:
        self._published_version[0] = version

    @property
    def restored_version(self) -> int | None:
        """The version of the checkpoint that the run was resumed from, if there was one."""
        return int(self._restored_version[0]) - 1 if self._restored_version[0] else None

    def note_restored(self, version: int) -> None:
        self._restored_version[0] = version + 1

    @property
    def checkpoint_session(self) -> int:
        """A number that tells this start of the run from others; 0 before its first checkpoint."""
        return int(self._checkpoint_session[0])

    @checkpoint_session.setter
    def checkpoint_session(self, session: int) -> None:
        self._checkpoint_session[0] = session

    @property
    def stopping(self) -> bool:
        return bool(self._stop[0])

    def stop(self) -> None:
        self._stop[0] = 1

    def pending(self, envs: Words) -> Asked:
        """What those of `envs` that wait for an answer ask for."""
        if len(envs) > MANY_ENVS:
            requests = self.requests[envs]
            waiting = np.flatnonzero(requests != self.answers[envs])
            return dict(zip(envs[waiting].tolist(), requests[waiting].tolist(), strict=True))
        request_of, answer_to = self.request_of, self.answer_to
        return {env: request for env in envs.tolist() if (request := request_of[env]) != answer_to[env]}

    def reached_by_all(self) -> int:
        """The ticket that every environment has asked as far as, unless it completed the newest version's rollout.

        Tickets only grow, so what is true of one stays true while others are being answered.
        """
        under_way = self.requests[self.completed_rollouts <= self.published_version]
        return int(under_way.min(initial=np.iinfo(np.int64).max))

    def pulse(self) -> bytes:
        """Something that changes while anybody gets on with an environment, an answer or a part of an update."""
        words = (self.requests, self.answers, self.completed_rollouts, self.inside, self._published_version, self.beats)
        return b"".join(array.tobytes() for array in words)

    def heartbeat(self, worker: int) -> Callable[[], None]:
        """What that worker calls whenever it has got further within an update: after a shard of a gradient, an
        optimizer step, a part of a checkpoint. An update may take longer than any deadline, none of these may."""

        def beat() -> None:
            self.beats[worker] += 1

        return beat

    def rollout_is_complete(self, rollout: int) -> bool:
        return bool(self.completed_rollouts.min() > rollout)
