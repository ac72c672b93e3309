"""A match as those who play it see it: observations, rewards, ends, and all of it as bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from htsrl.envs.football.engine import OURS, Engine, Kickoff
from htsrl.envs.football.representation import MiniMaps, Representation, Vectors
from htsrl.envs.football.settings import Settings
from htsrl.errors import ConfigError, EnvironmentFailure

Info = dict[str, Any]

FORMAT = "htsrl football 1"


class Step(NamedTuple):
    """What a step led to; everybody ends together."""

    rewards: list[float]
    terminated: bool
    truncated: bool
    info: Info


class Match:
    """What the environments of one player and of a team have in common."""

    def __init__(self, settings: Settings) -> None:
        settings.check()
        self._settings = settings
        self._engine = Engine(settings)
        self._seen: Representation = (MiniMaps if settings.representation == "extracted" else Vectors)(settings.players)
        self._checkpoints = Checkpoints(settings.players) if "checkpoints" in settings.rewards else None
        self._actions: list[list[int]] = []
        self.is_on = False
        self.observation_space = self._seen.space
        self.action_space = gymnasium.spaces.Discrete(self._engine.num_actions)

    def new_observations(self) -> NDArray[Any]:
        return np.empty((self._settings.players, *self.observation_space.shape), self.observation_space.dtype)

    def begin(self, rng: np.random.Generator, observations: NDArray[Any]) -> None:
        self._kick_off(Kickoff.draw(rng))
        self._seen.write(observations)

    def step(self, actions: Sequence[int], observations: NDArray[Any]) -> Step:
        if not self.is_on:
            raise gymnasium.error.ResetNeeded(f"step({actions}) came before a reset; an episode that ended needs one")
        for action in actions:
            if not 0 <= action < self._engine.num_actions:
                raise gymnasium.error.InvalidAction(
                    f"action {action} is not one of 0 to {self._engine.num_actions - 1}"
                )
        step = self._play(actions)
        self._seen.write(observations)
        return step

    def save(self, rng: np.random.Generator) -> bytes:
        document = {
            "format": FORMAT,
            "settings": asdict(self._settings),
            "kickoff": asdict(self._engine.kickoff),
            "actions": self._actions,
            "is_on": self.is_on,
            "ball": self._ball(),
            "random": rng.bit_generator.state,
        }
        return json.dumps(document).encode()

    def restore(self, state: bytes, rng: np.random.Generator) -> None:
        """Play again what was played: the engine's own states do not always continue as the game would have."""
        document = _document_of(state)
        self._settings.check_same(document["settings"])
        self._kick_off(Kickoff(**document["kickoff"]))
        for actions in document["actions"]:
            self._play(actions)
        if self._ball() != document["ball"]:
            raise EnvironmentFailure(
                f"{self._settings.scenario} did not replay to the state that was saved: the ball is at {self._ball()}, "
                f"not at {document['ball']}; use the build of gfootball and the machine that saved it"
            )
        self.is_on = document["is_on"]
        rng.bit_generator.state = document["random"]

    def close(self) -> None:
        self._engine.close()
        self.is_on = False

    def _kick_off(self, kickoff: Kickoff) -> None:
        self._engine.begin(kickoff)
        if self._checkpoints is not None:
            self._checkpoints.restart()
        self._actions = []
        self.is_on = True
        self._seen.restart(self._engine.info)

    def _play(self, actions: Sequence[int]) -> Step:
        goals, terminated, truncated = self._engine.step(actions)
        self._actions.append(list(actions))
        self._seen.push(self._engine.info)
        self.is_on = not (terminated or truncated)
        extra = self._checkpoints.collect(goals, self._engine.info) if self._checkpoints else [0.0] * len(actions)
        info = {} if self.is_on else {"episode": self._true_episode()}
        return Step([goals + reward for reward in extra], terminated, truncated, info)

    def _true_episode(self) -> Info:
        return {"r": float(self._engine.goal_difference), "l": len(self._actions)}

    def _ball(self) -> list[float]:
        return [self._engine.info.ball_position[axis] for axis in range(3)]


class Checkpoints:
    """Ten rewards on the way to their goal, once an episode for each player who has the ball; a goal pays the rest."""

    COUNT, REWARD = 10, 0.1
    FARTHEST, SPAN = 0.99, 0.8  # distances to their goal of the first, and from there to the last

    def __init__(self, players: int) -> None:
        self.collected = [0] * players

    def restart(self) -> None:
        self.collected = [0] * len(self.collected)

    def collect(self, goals: int, info: Any) -> list[float]:
        """What each player earns with this step."""
        before = self.collected
        self.collected = [self._after(goals, info, player) for player in range(len(before))]
        return [self.REWARD * (now - then) for now, then in zip(self.collected, before, strict=True)]

    def _after(self, goals: int, info: Any, player: int) -> int:
        if goals == 1:
            return self.COUNT
        collected = self.collected[player]
        has_the_ball = info.ball_owned_player == info.left_controllers[player].controlled_player
        if info.ball_owned_team == OURS and has_the_ball:
            x, y = info.ball_position[0], info.ball_position[1]
            distance = ((x - 1) ** 2 + y**2) ** 0.5
            while collected < self.COUNT and distance <= self._distance_of(collected):
                collected += 1
        return collected

    def _distance_of(self, checkpoint: int) -> float:
        return self.FARTHEST - self.SPAN / (self.COUNT - 1) * checkpoint


def _document_of(state: bytes) -> dict[str, Any]:
    try:
        document = json.loads(state)
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(f"these {len(state)} bytes are not a whole state of football; use what save_state returned")
    return document
