"""The kinds of spans, and what a reader of the summary calls their sum."""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """What a worker does between two readings of the clock; files have the names in lower case."""

    START = 0  # a process from its first reading of the clock until its roles are built
    STEP = 1  # an environment
    RESET = 2  # an environment
    SAVE_STATE = 3  # what brings an environment back after a kill
    INFERENCE = 4  # a batch; subject: rows
    UPDATE = 5  # all of an update that is none of those inside it; subject: the version that it makes
    FINISH_ROLLOUT = 6  # what the learner adds before it learns
    LEARNING = 7  # targets, minibatches, optimizer steps
    GRADIENT = 8  # forward and backward passes
    CHECKPOINT = 9  # the learner's copy for one
    PUBLISH = 10  # the next version, its digest and its report
    WAIT_ANSWERS = 11  # of an actor
    WAIT_REQUESTS = 12  # of environments
    WAIT_LEARNER = 13  # for the next version
    WAIT_SLOWEST = 14  # of the environments, at a barrier; subject: which
    WAIT_ENVIRONMENTS = 15  # for rollouts, before half of the environments are done
    WAIT_ORDERS = 16  # of the learner, to take gradients
    WAIT_GRADIENTS = 17  # of the gradient workers

    @property
    def label(self) -> str:
        return self.name.lower()


KINDS = {kind.label: kind for kind in Kind}

SHARES: dict[str, tuple[Kind, ...]] = {
    "simulator": (Kind.STEP, Kind.RESET),
    "inference": (Kind.INFERENCE,),
    "learning": (Kind.FINISH_ROLLOUT, Kind.LEARNING, Kind.GRADIENT),
    "waiting for the slowest environment": (Kind.WAIT_SLOWEST,),
    "waiting for the learner": (Kind.WAIT_LEARNER,),
    "waiting for others": (
        Kind.WAIT_ANSWERS,
        Kind.WAIT_REQUESTS,
        Kind.WAIT_ENVIRONMENTS,
        Kind.WAIT_ORDERS,
        Kind.WAIT_GRADIENTS,
    ),
    "starting": (Kind.START,),
    "keeping": (Kind.SAVE_STATE, Kind.CHECKPOINT, Kind.PUBLISH),
}
"""The parts of a worker's time; what is left, an update's own time among it, is overhead."""
OVERHEAD = "overhead"
