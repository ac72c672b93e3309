"""Football's scenarios and buttons, and matches played by random actions or to a goal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from htsrl.envs.football import Football

ACADEMY = [
    "academy_empty_goal_close", "academy_empty_goal", "academy_run_to_score", "academy_run_to_score_with_keeper",
    "academy_pass_and_shoot_with_keeper", "academy_run_pass_and_shoot_with_keeper", "academy_3_vs_1_with_keeper",
    "academy_corner", "academy_counterattack_easy", "academy_counterattack_hard", "academy_single_goal_versus_lazy",
]  # fmt: skip
GAMES = ["1_vs_1_easy", "5_vs_5", "11_vs_11_easy_stochastic", "11_vs_11_stochastic", "11_vs_11_hard_stochastic"]
CLOSE = "academy_empty_goal_close"
LEFT, RIGHT, SHOT, SPRINT = 1, 5, 12, 13

Step = tuple[bytes, Any, Any, Any, dict[str, Any]]


def random_actions(steps: int, players: int = 1, seed: int = 0) -> NDArray[np.int64]:
    shape = (steps,) if players == 1 else (steps, players)
    return np.random.default_rng(seed).integers(19, size=shape)


def play(env: gymnasium.Env[Any, Any], actions: NDArray[np.int64], first_seed: int | None = 0) -> Iterator[Step]:
    """Every step and, where an episode ends, the reset after it, with the next seed; None continues as it stands."""
    seed = 100 if first_seed is None else first_seed
    if first_seed is not None:
        observation, info = env.reset(seed=seed)
        yield observation.tobytes(), 0.0, False, False, info
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        yield observation.tobytes(), *(np.array(part).tolist() for part in (reward, terminated, truncated)), info
        if np.all(terminated) or np.all(truncated):
            seed += 1
            observation, info = env.reset(seed=seed)
            yield observation.tobytes(), 0.0, False, False, info


def score(env: Football, seed: int = 0) -> list[tuple[float, bool, bool, dict[str, Any]]]:
    """Run to the empty goal and shoot."""
    env.reset(seed=seed)
    steps = []
    for action in [RIGHT, SPRINT, RIGHT, RIGHT, *[SHOT] * 40]:
        steps.append(env.step(action)[1:])
        if steps[-1][1] or steps[-1][2]:
            return steps
    raise AssertionError("the episode did not end")
