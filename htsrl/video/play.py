"""Episodes as `htsrl eval` plays them, with all that a film shows of every step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from htsrl.envs.rendering import frame_of
from htsrl.errors import ConfigError
from htsrl.numerics import OwnNumerics
from htsrl.runs.play import Played, Seat
from htsrl.spaces.observations import MASK_KEY
from htsrl.video.scene import PackedFrame, Shot, means_in_env, probabilities_of

if TYPE_CHECKING:
    from htsrl.runs.trained_policy import TrainedPolicy

Array = NDArray[Any]


class ScoreKeeper(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds up what an episode has earned; of a team, on average."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._earned = 0.0
        self.note = ""

    @property
    def score(self) -> float:
        """The return so far; the true one, where an environment keeps it."""
        if self.env.has_wrapper_attr("episode_score"):
            return float(self.env.get_wrapper_attr("episode_score"))
        return self._earned

    def begin(self) -> None:
        """A new episode, which may have several lives."""
        self._earned, self.note = 0.0, ""

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._earned += float(np.mean(np.asarray(reward, np.float64)))
        self.note = "terminated" if np.any(terminated) else "truncated" if np.any(truncated) else ""
        return observation, reward, terminated, truncated, info


class Filmed(NamedTuple):
    """An episode that was played to its end."""

    played: Played
    shots: list[Shot]
    """One more than steps: the last shows where it ended."""


class Player:
    """Plays evaluation episodes one after another in one environment, and keeps what it saw."""

    def __init__(self, env: gymnasium.Env[Any, Any], policy: TrainedPolicy, seed: int, sampled: bool) -> None:
        self._env = ScoreKeeper(env)
        self._policy = policy
        self._sampled = sampled
        self._seat = Seat(self._env, policy, seed, ())
        self._numerics = OwnNumerics()

    def play(self, number: int, on_step: Callable[[int], None] = lambda step: None) -> Filmed:
        """The episode of this number, as an evaluation with the same seed plays it."""
        self._env.begin()
        self._seat.begin(number)
        shots: list[Shot] = []
        while True:
            with self._numerics:
                actions, outputs, values = self._decide()
            shots.append(self._shot(len(shots), actions, outputs, values))
            ended = self._seat.step(actions)
            on_step(len(shots))
            if ended is not None:
                shots.append(self._last_shot(len(shots), ended))
                return Filmed(ended, shots)

    def _decide(self) -> tuple[Array, Array, Array]:
        """Actions of all agents, and the outputs and values behind them; recurrent states move on."""
        seat, rows = self._seat, self._seat.observations()
        states = seat.states if self._policy.policy.state_size else None
        outputs, values = self._policy.outputs(rows, states)
        actions, following = self._policy.answer(rows, states, seat.noise() if self._sampled else None)
        if following is not None:
            seat.states[:] = following
        return actions, outputs, values

    def _shot(self, step: int, actions: Array, outputs: Array, values: Array) -> Shot:
        """Of a team, the first agent's."""
        seen, layout = self._seen(), self._policy.interface.actions
        return Shot(
            step,
            self._env.score,
            seen,
            PackedFrame.of(frame_of(self._env)),
            float(values[0]),
            probabilities_of(outputs[0], self._policy.interface, seen.get(MASK_KEY)),
            means_in_env(layout, outputs[0]),
            np.array(actions[0]),
        )

    def _last_shot(self, step: int, ended: Played) -> Shot:
        score = ended.score if math.isfinite(ended.score) else self._env.score
        return Shot(step, score, self._seen(), PackedFrame.of(frame_of(self._env)), note=self._env.note)

    def _seen(self) -> dict[str, Array]:
        return {name: np.array(array[0]) for name, array in self._seat.observations().items()}


def check_spaces(env: gymnasium.Env[Any, Any], policy: TrainedPolicy) -> None:
    """ConfigError where the environment is not one that the policy was trained on."""
    for kind in ("observation_space", "action_space"):
        trained_on, found = getattr(policy, kind), getattr(env, kind)
        if trained_on != found:
            raise ConfigError(f"the environment has the {kind} {found}, the policy was trained on {trained_on}")


def action_names(env: gymnasium.Env[Any, Any]) -> list[str]:
    """What an environment calls its actions, where it does: Atari's buttons, MiniGrid's moves."""
    unwrapped: Any = env.unwrapped
    meanings, moves = getattr(unwrapped, "get_action_meanings", None), getattr(unwrapped, "actions", None)
    if callable(meanings):
        return [str(name).lower() for name in meanings()]
    if isinstance(moves, type) and hasattr(moves, "__members__"):
        return [str(name) for name in moves.__members__]
    return []
