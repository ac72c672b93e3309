"""The work that limits, throughput and the cost of determinism are measured on, by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec

from htsrl.algorithms.ppo import PPO
from htsrl.config import Experiment
from htsrl.config.presets import preset
from htsrl.errors import ConfigError

LIGHT = PPO(epochs=4, num_minibatches=4)
"""PPO as on Atari, for networks that cost next to nothing."""
NEVER_ENDING = 10**9

STANDARD: dict[str, Experiment] = {
    "pong-a2c": preset("ALE/Pong-v5", "a2c"),
    "breakout-a2c": preset("ALE/Breakout-v5", "a2c"),
    "pong-ppo": preset("ALE/Pong-v5", "ppo"),
    "breakout-ppo": preset("ALE/Breakout-v5", "ppo"),
    "cartpole-ppo": Experiment("CartPole-v1", algorithm=LIGHT, sync_interval=128, total_steps=NEVER_ENDING),
    "halfcheetah-ppo": Experiment("HalfCheetah-v5", algorithm=LIGHT, sync_interval=128, total_steps=NEVER_ENDING),
    "football-ppo": preset("football/academy_empty_goal_close-v0", "ppo"),
}
"""All with 16 environments. Batches of 80 and one pass over them for A2C, of 2048 in minibatches for PPO. They are what
is measured unless others are asked for."""
IN_HALF = "-bfloat16"
WITH_IMAGES = ("pong-a2c", "breakout-a2c", "pong-ppo", "breakout-ppo", "football-ppo")
WORKS: Mapping[str, Experiment] = STANDARD | {
    name + IN_HALF: replace(STANDARD[name], network=replace(STANDARD[name].network, precision="bfloat16"))
    for name in WITH_IMAGES
}
PACKAGES = {
    "pong": "ale_py",
    "breakout": "ale_py",
    "football": "gfootball",
    **dict.fromkeys(("halfcheetah", "hopper", "walker2d", "swimmer", "inverted"), "mujoco"),
    **dict.fromkeys(("lunar", "bipedal"), "Box2D"),
    "minigrid": "minigrid",
}
"""What a work or a task needs besides htsrl itself, by the first word of its name."""


def known(names: Sequence[str]) -> None:
    """ConfigError for the first work that there is none of."""
    if not names:
        raise ConfigError(f"give at least one work, among {', '.join(WORKS)}")
    for name in names:
        if name not in WORKS:
            raise ConfigError(f"work {name!r} is not known; choose among {', '.join(WORKS)}")


def split_by_installed(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The works or tasks whose simulator is here, and those whose is not, which are reported."""
    here: list[str] = []
    missing: list[str] = []
    for name in names:
        package = PACKAGES.get(name.partition("-")[0])
        (here if package is None or find_spec(package) else missing).append(name)
    if missing:
        print(f"left out, for the simulator is not installed: {', '.join(missing)}", file=sys.stderr)
    if not here:
        raise ConfigError(f"the simulator of {', '.join(missing)} is not installed; see docs/simulators.md")
    return tuple(here), tuple(missing)


def missing_note(missing: Sequence[str]) -> list[str]:
    return [f"Left out, for the simulator is not installed: {', '.join(missing)}."] if missing else []
