"""Scenarios by name, for one player or several."""

from __future__ import annotations

import inspect
from typing import Any

from gymnasium.envs.registration import EnvSpec

from htsrl.envs.football.environment import Football, FootballTeam
from htsrl.errors import ConfigError

PREFIX, SUFFIX = "football/", "-v0"


def make_football(env_id: str, **env_args: Any) -> Football | FootballTeam:
    """The environment called `football/SCENARIO-v0`; more than one of `players` make a team."""
    scenario = env_id.removeprefix(PREFIX).removesuffix(SUFFIX)
    if env_id != f"{PREFIX}{scenario}{SUFFIX}":
        raise ConfigError(
            f"{env_id!r} is not the name of a scenario; use {PREFIX}{scenario.partition('-v')[0]}{SUFFIX}"
        )
    options = list(inspect.signature(make_scenario).parameters)[1:]
    if unknown := env_args.keys() - options:
        raise ConfigError(f"{env_id} does not take {', '.join(sorted(unknown))}; it takes {', '.join(options)}")
    made = make_scenario(scenario, **env_args)
    made.spec = EnvSpec(
        env_id, entry_point="htsrl.envs.football:make_scenario", kwargs={"scenario": scenario, **env_args}
    )
    return made


def make_scenario(
    scenario: str, players: int = 1, representation: str = "extracted", rewards: str = "scoring,checkpoints"
) -> Football | FootballTeam:
    if players == 1:
        return Football(scenario, representation, rewards)
    return FootballTeam(scenario, players, representation, rewards)
