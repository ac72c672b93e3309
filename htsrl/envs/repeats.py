"""A short look, before training, at whether the same seed and actions give the same steps; `check-env` looks longer."""

from __future__ import annotations

import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import gymnasium
import numpy as np

from htsrl.envs import looked_at
from htsrl.envs.check.calls import Call, Console, Difference, first_difference
from htsrl.envs.state import saves_its_state

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
MAX_STEPS = 32
MAX_SECONDS = 0.25
"""Of steps of the first environment; the second takes as many. Slow ones are looked at for fewer."""
MAX_MAKE_SECONDS = 0.5
"""An environment that takes longer to make is left to `check-env`: two more would be noticed."""
SEED, OTHER_SEED, OTHER_STEPS = 0, 1, 8


def warn_unless_it_repeats(make_env: MakeEnv, identity: str | None = None) -> None:
    """Look, unless an environment of this identity was looked at before and nothing was found.

    Whatever goes wrong on the way is left to the run, which says it better.
    """
    if identity is not None and looked_at.is_known(identity):
        return
    try:
        with _global_generators_kept():
            difference = _first_difference(make_env)
    except Exception:
        return
    if difference is not None:
        warnings.warn(
            f"the same seed and actions gave the environment something else the second time, first at {difference}, so "
            "no run will repeat this one's digest; `htsrl check-env` says more, --no-check-env skips this look",
            stacklevel=3,
        )
    elif identity is not None:
        looked_at.remember(identity)


def _first_difference(make_env: MakeEnv) -> Difference | None:
    begin = time.perf_counter()
    with closing(make_env()) as env:
        if time.perf_counter() - begin > MAX_MAKE_SECONDS:
            raise TimeoutError("nothing was looked at, and nothing is remembered")
        _seed_global_generators(1)
        ours = _play(env, MAX_STEPS)
    with closing(make_env()) as env:
        _seed_global_generators(2)
        if not saves_its_state(env):  # those may continue over resets, as Atari's lives do
            for _ in Console(env).play(1, OTHER_SEED, min(OTHER_STEPS, len(ours))):
                pass  # another past, which a reset must forget
        return first_difference(ours, _play(env, len(ours) - 1))


def _play(env: gymnasium.Env[Any, Any], num_steps: int) -> list[Call]:
    calls: list[Call] = []
    begin = time.perf_counter()
    for answer in Console(env).play(0, SEED, num_steps):
        calls.append(answer.call)
        if num_steps == MAX_STEPS and time.perf_counter() - begin > MAX_SECONDS:
            break
    return calls


def _seed_global_generators(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(seed)


@contextmanager
def _global_generators_kept() -> Iterator[None]:
    """A look changes nothing that a run could read."""
    before, numpys, torch = random.getstate(), np.random.get_state(), sys.modules.get("torch")
    torchs = torch.default_generator.get_state() if torch else None
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(numpys)
        if torch:
            torch.default_generator.set_state(torchs)
