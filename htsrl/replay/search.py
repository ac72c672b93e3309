"""Finding the stretch that was asked for, while updates are made again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from htsrl.checkpoint.files import Checkpoint
from htsrl.errors import ConfigError
from htsrl.placements.blueprint import Blueprint
from htsrl.replay.conditions import Condition
from htsrl.replay.origin import episode_before, episode_ends
from htsrl.replay.rebuild import RebuiltUpdate
from htsrl.replay.stretch import Moment, Piece, pieces_of


@dataclass(frozen=True)
class Found:
    """The stretch, and what there is to say of it."""

    env: int
    pieces: Sequence[Piece]
    rows: slice | None = None
    """Of all pieces together; None: all."""
    moment: Moment | None = None

    @property
    def updates(self) -> tuple[int, int]:
        """The first and the last that learned from it."""
        return self.pieces[0].update, self.pieces[-1].update


class Search(Protocol):
    """Is shown updates in order."""

    @property
    def last_origin(self) -> int:
        """The newest version that updates may be made again from."""

    def accepts(self, checkpoint: Checkpoint) -> bool:
        """Whether what is looked for lies behind a checkpoint."""

    def look(self, rebuilt: RebuiltUpdate) -> Found | None:
        """What was looked for, once all of it has been seen."""

    def rest(self) -> Found | None:
        """What there is of it when the run ends."""

    def not_found(self, num_updates: int) -> str:
        """That it never happened, in words."""


class SearchUpdates:
    """An environment's part of one update's batch, or of several in a row."""

    def __init__(self, blueprint: Blueprint, env: int, first: int, last: int) -> None:
        self._blueprint = blueprint
        self._env = env
        self._first, self._last = first, last
        self._pieces: list[Piece] = []

    @property
    def last_origin(self) -> int:
        return self._first

    def accepts(self, checkpoint: Checkpoint) -> bool:
        return True

    def look(self, rebuilt: RebuiltUpdate) -> Found | None:
        if rebuilt.update >= self._first:
            self._pieces += pieces_of(rebuilt, self._env, self._blueprint)
        if rebuilt.update < self._last or not self._pieces:
            return None
        if rebuilt.update > self._last:
            raise ConfigError(
                f"update {self._last} learned nothing from environment {self._env}, as happens under async; the next "
                f"that did is update {rebuilt.update}"
            )
        return Found(self._env, self._pieces)

    def rest(self) -> Found | None:
        return None

    def not_found(self, num_updates: int) -> str:
        return f"no update from {self._last} on learned from environment {self._env}; the run has {num_updates}"


class SearchEpisode:
    """A whole episode of an environment, by its number, as resets count them."""

    def __init__(self, blueprint: Blueprint, env: int, episode: int) -> None:
        self._blueprint = blueprint
        self._env = env
        self._episode = episode
        self._number = 0  # of the episode that the environment is in
        self._pieces: list[Piece] = []
        self._first_row, self._num_rows = 0, 0

    last_origin = sys.maxsize

    def accepts(self, checkpoint: Checkpoint) -> bool:
        spec = self._blueprint.trajectory
        if spec.is_lane:  # checkpoints do not say which episodes environments of lanes are in
            return False
        number = episode_before(checkpoint, self._env, spec.num_agents, spec.num_storages)
        if number < self._episode:  # were it equal, its beginning might be gone
            self._number = number
        return number < self._episode

    def look(self, rebuilt: RebuiltUpdate) -> Found | None:
        for piece in pieces_of(rebuilt, self._env, self._blueprint):
            if self._take(piece):
                return self._found()
        return None

    def _take(self, piece: Piece) -> bool:
        """Count along; True when the episode is complete."""
        # An environment of a lane that idles after its episode's end is inactive, which ends none.
        names = ENDS[:2] if self._blueprint.trajectory.is_lane else ENDS
        rows = {name: x.reshape(len(x), -1) for name, x in piece.arrays.items() if name in names}
        for row, ended in enumerate(episode_ends(rows)):
            if self._number == self._episode:
                if not self._pieces:
                    self._first_row = row
                if not self._pieces or self._pieces[-1] is not piece:
                    self._pieces.append(piece)
                self._num_rows += 1
            if ended:
                self._number += 1
                if self._number > self._episode:
                    return True
        return False

    def _found(self) -> Found:
        return Found(self._env, self._pieces, slice(self._first_row, self._first_row + self._num_rows))

    def rest(self) -> Found | None:
        return self._found() if self._pieces else None

    def not_found(self, num_updates: int) -> str:
        return (
            f"environment {self._env} never came to episode {self._episode}: its last in {num_updates} updates is "
            f"episode {self._number}"
        )


ENDS = ("terminated", "truncated", "active")


class SearchCondition:
    """The first step, episode or update for which a condition holds."""

    def __init__(self, blueprint: Blueprint, condition: Condition, first: int, env: int | None) -> None:
        """`env` None: any."""
        self._blueprint = blueprint
        self._condition = condition
        self._first = first
        self._env = env

    @property
    def last_origin(self) -> int:
        return self._first

    def accepts(self, checkpoint: Checkpoint) -> bool:
        return True

    def look(self, rebuilt: RebuiltUpdate) -> Found | None:
        if rebuilt.update < self._first:
            return None
        if self._condition.is_of_metric:
            return self._look_at_metrics(rebuilt)
        spec = self._blueprint.trajectory
        envs = self._envs_of_columns(rebuilt)
        hits = self._condition.steps_where(rebuilt.fields)
        hits &= envs == self._env if self._env is not None else True
        if hits.any():
            row, column = np.argwhere(hits)[0].tolist()
            place = column // spec.num_agents
            number = rebuilt.update if rebuilt.provenance is None else rebuilt.provenance.rollouts[place].rollout
            return self._found(rebuilt, int(envs[column]), number * spec.num_steps + row)
        if rebuilt.failure and self._condition.quantity == "nan":
            return self._found(rebuilt, self._env or 0, None, rebuilt.failure)
        return None

    def _look_at_metrics(self, rebuilt: RebuiltUpdate) -> Found | None:
        name, metrics = self._condition.quantity, rebuilt.metrics
        if metrics and name not in metrics and not name.startswith("rollout/"):  # those wait for an episode's end
            raise ConfigError(f"until={self._condition.text!r}: {name!r} is not one of {', '.join(sorted(metrics))}")
        if not self._condition.holds_for(metrics):
            return None
        return self._found(rebuilt, self._env or 0, None, f"{name} = {metrics[name]:.6g}")

    def _found(self, rebuilt: RebuiltUpdate, env: int, step: int | None, text: str = "") -> Found | None:
        pieces = pieces_of(rebuilt, env, self._blueprint)
        moment = Moment(rebuilt.update, env, step, f"{self._condition.text}{text and f' ({text})'}")
        return Found(env, pieces, moment=moment) if pieces else None

    def _envs_of_columns(self, rebuilt: RebuiltUpdate) -> NDArray[Any]:
        spec = self._blueprint.trajectory
        if rebuilt.provenance is not None:
            return np.repeat([taken.env for taken in rebuilt.provenance.rollouts], spec.num_agents)
        return np.array([spec.env_of(column) for column in range(spec.num_columns)])

    def rest(self) -> Found | None:
        return None

    def not_found(self, num_updates: int) -> str:
        where = "in no environment" if self._env is None else f"not in environment {self._env}"
        return f"{self._condition.text} held {where}, from update {self._first} to update {num_updates - 1}"
