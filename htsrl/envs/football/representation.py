"""What players see: gfootball's mini-map as pictures, or its vector of 115 numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

HEIGHT, WIDTH, LAYERS, STACK = 72, 96, 4, 4
LEFT, RIGHT, BALL, ACTIVE = range(LAYERS)
CHANNELS = LAYERS * STACK
MARK = 255
EDGE_X, EDGE_Y = 1.0, 1.0 / 2.25  # of the map, in the engine's coordinates
MAX_PLAYERS = 11
GAME_MODES = 7
MISSING = -1.0
NOBODY = -1


class Representation(Protocol):
    """Turns what the engine tells into observations, a row per controlled player."""

    space: spaces.Box

    def restart(self, info: Any) -> None:
        """Forget what was seen before."""

    def push(self, info: Any) -> None:
        """See the next step."""

    def write(self, observations: NDArray[Any]) -> None:
        """Write what each player sees into its row."""


class MiniMaps:
    """The last four maps, oldest first: four layers each, with a dot for each of us, of them, the ball, the player.

    A map is kept as the places of its dots, some twenty of 27,648, so that stacking copies next to nothing.
    """

    def __init__(self, players: int) -> None:
        self.space: spaces.Box = spaces.Box(0, MARK, (HEIGHT, WIDTH, CHANNELS), np.uint8)
        self._players = range(players)
        self._common: deque[list[int]] = deque(maxlen=STACK)
        self._own: deque[list[list[int]]] = deque(maxlen=STACK)

    def restart(self, info: Any) -> None:
        for _ in range(STACK):
            self.push(info)

    def push(self, info: Any) -> None:
        ours = [_cell(player.position) for player in info.left_team]
        common = [cell + LEFT for cell in ours]
        common += [_cell(player.position) + RIGHT for player in info.right_team]
        common.append(_cell(info.ball_position) + BALL)
        self._common.append(common)
        controlled = _controlled(info, self._players)
        self._own.append([[ours[player] + ACTIVE] if player != NOBODY else [] for player in controlled])

    def write(self, observations: NDArray[Any]) -> None:
        observations.fill(0)
        common = _in_layers_of_their_step(self._common)
        for player in self._players:
            places = common + _in_layers_of_their_step(own[player] for own in self._own)
            observations[player].flat[places] = MARK


class Vectors:
    """gfootball's simple115v2: players, ball, who owns it, the controlled player, and the game mode."""

    def __init__(self, players: int) -> None:
        self.space: spaces.Box = spaces.Box(-np.inf, np.inf, (115,), np.float32)
        self._players = range(players)

    def restart(self, info: Any) -> None:
        self.push(info)

    def push(self, info: Any) -> None:
        self._info = info

    def write(self, observations: NDArray[Any]) -> None:
        info = self._info
        players: list[float] = []
        for team in (info.left_team, info.right_team):
            members = list(team)
            players += _padded([member.position for member in members])
            players += _padded([member.direction for member in members])
        ball = [vector[axis] for vector in (info.ball_position, info.ball_direction) for axis in range(3)]
        owner = _one_hot(info.ball_owned_team + 1, 3)
        mode = _one_hot(int(info.game_mode), GAME_MODES)
        for row, player in zip(observations, _controlled(info, self._players), strict=True):
            row[:] = [*players, *ball, *owner, *_one_hot(player, MAX_PLAYERS), *mode]


def _cell(position: Any) -> int:
    """Where a position lies in flattened maps, as the first layer of the oldest."""
    x = int((position[0] + EDGE_X) / (2 * EDGE_X) * WIDTH)
    y = int((position[1] + EDGE_Y) / (2 * EDGE_Y) * HEIGHT)
    return (min(max(y, 0), HEIGHT - 1) * WIDTH + min(max(x, 0), WIDTH - 1)) * CHANNELS


def _in_layers_of_their_step(maps: Iterable[list[int]]) -> list[int]:
    return [place + LAYERS * step for step, places in enumerate(maps) for place in places]


def _controlled(info: Any, players: range) -> list[int]:
    controllers = info.left_controllers
    return [controllers[player].controlled_player for player in players]


def _padded(vectors: list[Any]) -> list[float]:
    flat = [vector[axis] for vector in vectors for axis in range(2)]
    return flat + [MISSING] * (2 * MAX_PLAYERS - len(flat))


def _one_hot(index: int, size: int) -> list[float]:
    """All zeros for an index of -1."""
    return [float(index == place) for place in range(size)]
