"""Whether a saved state, restored in a new environment, continues as the one that it was saved from."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import gymnasium

from htsrl.envs.check.calls import Call, Console, first_difference
from htsrl.envs.check.findings import Finding
from htsrl.envs.check.job import Subject
from htsrl.envs.check.timing import shown_seconds
from htsrl.errors import EnvironmentFailure

STEPS_AFTER = 500
"""Enough to see a difference; long episodes need not be played to their end."""


def state_findings(subject: Subject, episode: Sequence[Call], reset_seed: int) -> Iterator[Finding]:
    """Save in the middle of an episode that was played before, and see whether it continues as it did then."""
    try:
        yield _finding(subject, episode, reset_seed)
    except EnvironmentFailure as error:
        yield Finding("fail", "state", f"with a saved state, {error}; mend save_state and restore_state")


def _finding(subject: Subject, episode: Sequence[Call], reset_seed: int) -> Finding:
    middle = len(episode) // 2
    rest = list(episode[middle : middle + STEPS_AFTER])
    with closing(subject.make()) as env, closing(subject.make()) as other:
        console = Console(env)
        actions = console.actions(reset_seed)
        console.reset(reset_seed, episode=0)
        list(console.go_on(islice(actions, middle - 1)))
        state, save_seconds = _timed("save_state", env)
        if not isinstance(state, bytes):
            return Finding("fail", "state", f"save_state returned a {type(state).__name__}; return bytes, for a file")
        went_on = [answer.call for answer in console.go_on(islice(actions, len(rest)))]
        if difference := first_difference(rest, went_on):
            return Finding("fail", "state", f"save_state changes what follows: {difference}; it must only look")
        # A reset first, as wrappers refuse to step before one, and with another seed, so that all must be restored.
        restored = Console(other)
        list(restored.play(0, reset_seed + 1, 3))
        _, restore_seconds = _timed("restore_state", other, state)
        restored.jump_to(0, middle - 1)
        went_on = [answer.call for answer in restored.go_on(iter(console.played[middle - 1 :]))]
    if difference := first_difference(rest, went_on):
        text = (
            f"saved after step {middle - 1} and restored in a new environment, the episode continues otherwise: "
            f"{difference}; let save_state keep all that step and reset read, the random generator too"
        )
        return Finding("fail", "state", text)
    text = (
        f"saved after step {middle - 1} and restored in a new environment, the next {len(rest)} steps are the same; "
        f"{len(state):,} bytes, saved in {shown_seconds(save_seconds)}, restored in {shown_seconds(restore_seconds)}"
    )
    return Finding("ok", "state", text)


def _timed(method: str, env: gymnasium.Env[Any, Any], *arguments: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    try:
        result = env.get_wrapper_attr(method)(*arguments)
    except (Exception, SystemExit) as error:
        raise EnvironmentFailure(f"{method} raised {type(error).__name__}: {error}") from error
    return result, time.perf_counter() - start
