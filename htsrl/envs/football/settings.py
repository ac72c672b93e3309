"""What a football environment can be made with, and why something else is refused."""

from __future__ import annotations

import difflib
import importlib
import io
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from typing import Any

from htsrl.errors import ConfigError

REPRESENTATIONS = ("extracted", "simple115v2")
REWARDS = ("scoring", "scoring,checkpoints")
REQUIRED_PACKAGES = ("gfootball", "gfootball_engine", "gym", "six", "absl", "cv2")


@dataclass(frozen=True)
class Settings:
    """All that is fixed when an environment is made."""

    scenario: str
    players: int
    representation: str
    rewards: str

    def check(self) -> None:
        """Raise ConfigError for the first setting that makes no sense, or where gfootball is missing."""
        import_simulator()
        _check_scenario(self.scenario)
        if self.representation.startswith("pixels"):
            raise ConfigError(
                f"representation={self.representation!r} is not supported: without a display a picture takes about "
                f"0.6 s; use {' or '.join(REPRESENTATIONS)}"
            )
        _check_choice("representation", self.representation, REPRESENTATIONS)
        _check_choice("rewards", self.rewards, REWARDS)
        most = line_up(self).controllable_left_players
        if not 1 <= self.players <= most:
            raise ConfigError(f"players={self.players} cannot be controlled in {self.scenario}; use 1 to {most}")

    def check_same(self, saved: dict[str, Any]) -> None:
        """Raise ConfigError where a state was saved with other settings than these."""
        for name, value in asdict(self).items():
            if saved[name] != value:
                raise ConfigError(
                    f"a state saved with {name}={saved[name]!r} cannot be restored with {name}={value!r}; make the "
                    "environment with the same options"
                )


def import_simulator() -> None:
    """Raise ConfigError where a package that football needs cannot be imported."""
    for package in REQUIRED_PACKAGES:
        try:
            with redirect_stderr(io.StringIO()):  # where the old Gym tells every process that it is old
                importlib.import_module(package)
        except ImportError as error:
            raise ConfigError(
                f"football needs {package}: {error}; run `make football` in htsrl's folder, or build gfootball and "
                "pip install htsrl[football] as docs/football.md tells"
            ) from error


def scenarios() -> list[str]:
    """The names of all scenarios that gfootball brings, without those for its own tests."""
    builder: Any = importlib.import_module("gfootball.env.scenario_builder")
    return [name for name in builder.all_scenarios() if not name.startswith("test")]


def line_up(settings: Settings, seed: int = 0, we_kick_off: bool = True) -> Any:
    """The engine's description of a scenario, new each time: the engine changes the one that it is given.

    gfootball draws a missing seed from Python's global generator, and lets the side that kicks off a full game depend
    on how many games there were; both are said here.
    """
    config: Any = importlib.import_module("gfootball.env.config")
    values = {
        "level": settings.scenario,
        "players": [f"agent:left_players={settings.players},right_players=0"],
        "game_engine_random_seed": seed,
        "reverse_team_processing": bool(seed % 2),
        "episode_number": int(we_kick_off),  # becomes one more, and we kick off those that are even
    }
    return config.Config(values).ScenarioConfig()


def _check_scenario(scenario: str) -> None:
    # gfootball itself would end the process.
    known = scenarios()
    if scenario not in known:
        near = difflib.get_close_matches(scenario, [*known, *_without_academy(known)], cutoff=0.5)
        likely = sorted({name if name in known else f"academy_{name}" for name in near}) or known
        raise ConfigError(f"scenario={scenario!r} is not one that gfootball brings; names are like {', '.join(likely)}")


def _without_academy(names: list[str]) -> list[str]:
    return [name.removeprefix("academy_") for name in names if name.startswith("academy_")]


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}={value!r} is not one of {' or '.join(map(repr, choices))}")
