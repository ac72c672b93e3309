"""An episode is a function of its seed and its actions: play it here, and in a process that has seen other things."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import xxhash

from htsrl.envs.team import team_size_of

Make = Callable[[], gymnasium.Env[Any, Any]]

STEPS = 60
SCRIPT = "import pickle, sys, replay; print(*replay.play(*pickle.load(sys.stdin.buffer)))"


def assert_episodes_repeat(make: Make) -> None:
    """In two new processes, whatever was played before and however Python hashes; another seed is another episode."""
    (alone,) = play_in_new_process(make, [5], hash_seed=1)
    other, after_other = play_in_new_process(make, [9, 5], hash_seed=2)
    assert after_other == alone
    assert other != alone


def play_in_new_process(make: Make, seeds: Sequence[int], hash_seed: int) -> list[str]:
    completed = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=pickle.dumps((make, seeds)),
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=120,
    )
    assert completed.returncode == 0, completed.stderr.decode()
    return completed.stdout.decode().split()[-len(seeds) :]


def play(make: Make, seeds: Sequence[int]) -> list[str]:
    """A digest per seed of all that an episode with the same random actions shows."""
    env = make()
    digests = [_episode(env, seed) for seed in seeds]
    env.close()
    return digests


def _episode(env: gymnasium.Env[Any, Any], seed: int) -> str:
    digest = xxhash.xxh3_64()
    action_space = copy.deepcopy(env.action_space)
    action_space.seed(0)
    team_size = team_size_of(env)
    observation, _ = env.reset(seed=seed)
    digest.update(np.asarray(observation).tobytes())
    for _ in range(STEPS):
        action = np.array([action_space.sample() for _ in range(team_size or 1)])
        observation, *results, _ = env.step(action if team_size is not None else action[0])
        digest.update(np.asarray(observation).tobytes())
        digest.update(np.array(results, np.float64).tobytes())
        over = not env.unwrapped.active.any() if team_size is not None else any(results[1:])  # type: ignore[attr-defined]
        if over:
            break
    return digest.hexdigest()
