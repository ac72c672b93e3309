"""A stretch of one environment's trajectory, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.errors import ConfigError
from htsrl.placements.blueprint import Blueprint
from htsrl.replay.rebuild import RebuiltUpdate
from htsrl.replay.verification import Verification
from htsrl.spaces import Interface
from htsrl.spaces.observations import MASK_KEY

Array = NDArray[Any]
FORBIDDEN_LOGIT = -1e30


@dataclass(frozen=True)
class Moment:
    """Where something was found."""

    update: int
    env: int
    step: int | None = None
    """Of the environment, counted from the run's start; None where it is of the update as a whole."""
    text: str = ""
    """What was looked for, and what was there."""


@dataclass(frozen=True)
class Replay:
    """A stretch of an environment's trajectory, rebuilt; every array has a row for each step.

    Of a team there is an axis for the agents behind it.
    """

    run_dir: Path
    env: int
    arrays: Mapping[str, Array]
    """`step` of the environment, `update` that learned from it, `version` that acted; what was seen (`obs`, or
    `obs/KEY`), `actions` as they are stored, `logits` (then means, of continuous dimensions), `probabilities`,
    `log_probs`, `values`, `rewards`, `terminated`, `truncated`, `bootstrap_values`, and the recurrent state before each
    step (`memory`) where the policy has one."""
    verification: Verification
    interface: Interface = field(repr=False)
    is_team: bool = False
    moment: Moment | None = None
    """What `until` has found."""
    frames: Sequence[Array | None] = field(default=(), repr=False)
    """What the environment drew, where it was asked for."""
    fps: float = 0.0

    @property
    def num_steps(self) -> int:
        return len(self.arrays["step"])

    @property
    def is_verified(self) -> bool:
        """Whether the run's digest says the same."""
        return self.verification.is_verified

    def env_actions(self) -> list[Any]:
        """What the environment was given: of a team, a list with every agent's."""
        to_env = self.interface.actions.to_env
        if self.is_team:
            return [[to_env(of_agent) for of_agent in of_step] for of_step in self.arrays["actions"]]
        return [to_env(action) for action in self.arrays["actions"]]


@dataclass(frozen=True)
class Piece:
    """One rollout of the environment, out of one update's batch."""

    update: int
    rollout: int
    arrays: Mapping[str, Array]


def pieces_of(rebuilt: RebuiltUpdate, env: int, blueprint: Blueprint) -> list[Piece]:
    """The environment's rollouts in a batch, oldest first: one, unless the run is asynchronous."""
    if rebuilt.provenance is None:
        places = [(env, rebuilt.update)]
    else:
        taken = enumerate(rebuilt.provenance.rollouts)
        places = [(place, rollout.rollout) for place, rollout in taken if rollout.env == env]
    return [_piece(rebuilt, place, rollout, blueprint) for place, rollout in places]


def _piece(rebuilt: RebuiltUpdate, place: int, rollout: int, blueprint: Blueprint) -> Piece:
    spec = blueprint.trajectory
    first, width = (place, 1) if spec.is_lane else (place * spec.num_agents, spec.num_agents)
    columns = np.arange(first, first + width)
    shown = [name for name in spec.hashed_names if name != "versions"]
    arrays = {name: np.array(rebuilt.fields[name][:, columns]) for name in shown}
    outputs = rebuilt.outputs.of_columns(rebuilt.fields, columns)
    arrays["logits"] = outputs
    arrays["probabilities"] = probabilities(outputs, blueprint.interface, arrays.get(MASK_KEY))
    if not spec.is_team:
        arrays = {name: array[:, 0] for name, array in arrays.items()}
    steps = np.arange(rollout * spec.num_steps, (rollout + 1) * spec.num_steps)
    of_rows = {
        "step": steps,
        "update": np.full(spec.num_steps, rebuilt.update),
        "version": np.array(rebuilt.fields["versions"][:, columns[0]]),
    }
    return Piece(rebuilt.update, rollout, {**of_rows, **arrays})


def probabilities(outputs: Array, interface: Interface, mask: Array | None) -> Array:
    """Of every value of every choice, in the order of the logits; nothing of continuous dimensions."""
    parts, first = [], 0
    for num_values in interface.actions.categories:
        logits = outputs[..., first : first + num_values].astype(np.float64)
        if mask is not None:
            logits = np.where(mask[..., first : first + num_values], logits, FORBIDDEN_LOGIT)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        parts.append(weights / weights.sum(axis=-1, keepdims=True))
        first += num_values
    return np.concatenate(parts, axis=-1) if parts else np.empty((*outputs.shape[:-1], 0))


def joined(pieces: Sequence[Piece], rows: slice | None = None) -> dict[str, Array]:
    """One after another; `rows` are those of all of them together."""
    if not pieces:
        raise ConfigError("there is nothing to show")
    whole = {name: np.concatenate([piece.arrays[name] for piece in pieces]) for name in pieces[0].arrays}
    return whole if rows is None else {name: array[rows] for name, array in whole.items()}
