"""A match as those who play it see it: observations, rewards, ends, and all of it as bytes."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from htsrl.envs.football.engine import OURS, Engine, Kickoff
from htsrl.envs.football.representation import MiniMaps, Representation, Vectors
from htsrl.envs.football.settings import Settings
from htsrl.errors import ConfigError

Info = dict[str, Any]

MAGIC = b"GRF1"
HEADER = struct.Struct(
    "<4sIII"
)  # the sizes of JSON and engine, and a checksum: the engine ends a process over bad bytes


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
        self._steps = 0
        self.is_on = False
        self.observation_space = self._seen.space
        self.action_space = gymnasium.spaces.Discrete(self._engine.num_actions)

    def new_observations(self) -> NDArray[Any]:
        return np.empty((self._settings.players, *self.observation_space.shape), self.observation_space.dtype)

    def begin(self, rng: np.random.Generator, observations: NDArray[Any]) -> None:
        self._engine.begin(Kickoff.draw(rng))
        if self._checkpoints is not None:
            self._checkpoints.restart()
        self._steps = 0
        self.is_on = True
        self._seen.restart(self._engine.info)
        self._seen.write(observations)

    def step(self, actions: Sequence[int], observations: NDArray[Any]) -> Step:
        if not self.is_on:
            raise gymnasium.error.ResetNeeded(f"step({actions}) came before a reset; an episode that ended needs one")
        for action in actions:
            if not 0 <= action < self._engine.num_actions:
                raise gymnasium.error.InvalidAction(
                    f"action {action} is not one of 0 to {self._engine.num_actions - 1}"
                )
        goals, terminated, truncated = self._engine.step(actions)
        self._steps += 1
        self.is_on = not (terminated or truncated)
        self._seen.push(self._engine.info)
        self._seen.write(observations)
        extra = self._checkpoints.collect(goals, self._engine.info) if self._checkpoints else [0.0] * len(actions)
        info = {} if self.is_on else {"episode": self._true_episode()}
        return Step([goals + reward for reward in extra], terminated, truncated, info)

    def save(self, rng: np.random.Generator) -> bytes:
        engine, memory_of_engine = self._engine.save()
        document = {
            "settings": asdict(self._settings),
            "engine": engine,
            "seen": self._seen.save(),
            "checkpoints": self._checkpoints and self._checkpoints.collected,
            "steps": self._steps,
            "is_on": self.is_on,
            "random": rng.bit_generator.state,
        }
        text = json.dumps(document).encode()
        return (
            HEADER.pack(MAGIC, len(text), len(memory_of_engine), zlib.crc32(memory_of_engine)) + text + memory_of_engine
        )

    def restore(self, state: bytes, rng: np.random.Generator) -> None:
        document, memory_of_engine = _parts_of(state)
        self._settings.check_same(document["settings"])
        self._engine.restore(document["engine"], memory_of_engine)
        self._seen.restore(document["seen"])
        if self._checkpoints is not None:
            self._checkpoints.collected = document["checkpoints"]
        self._steps = document["steps"]
        self.is_on = document["is_on"]
        rng.bit_generator.state = document["random"]

    def close(self) -> None:
        self._engine.close()
        self.is_on = False

    def _true_episode(self) -> Info:
        return {"r": float(self._engine.goal_difference), "l": self._steps}


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


def _parts_of(state: bytes) -> tuple[dict[str, Any], bytes]:
    magic, *sizes, checksum = HEADER.unpack_from(state) if len(state) >= HEADER.size else (b"", 0, 0)
    begin_of_engine = HEADER.size + (sizes[0] if sizes else 0)
    memory_of_engine = state[begin_of_engine:]
    is_whole = len(state) == HEADER.size + sum(sizes) and zlib.crc32(memory_of_engine) == checksum
    if magic != MAGIC or not is_whole:
        raise ConfigError(f"these {len(state)} bytes are not a whole state of football; use what save_state returned")
    return json.loads(state[HEADER.size : begin_of_engine]), memory_of_engine
