"""A match in gfootball's engine, without the Gym layers above it."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from htsrl.envs.football.settings import Settings, line_up

NOBODY, OURS = -1, 0  # who owns the ball
PATIENCE = 20
"""Steps that a team may hold up a set piece before the game continues without being asked."""

_idle_games: list[Any] = []
"""Games of environments that are gone, to be used again: the engine never frees one."""


@dataclass(frozen=True)
class Kickoff:
    """All that chance decides of an episode."""

    seed: int
    we_kick_off: bool

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Kickoff:
        return cls(seed=int(rng.integers(2**31)), we_kick_off=bool(rng.integers(2)))


class Outcome(NamedTuple):
    """What a step led to."""

    goals: int
    """Ours less theirs, in this step."""
    terminated: bool
    truncated: bool


@dataclass
class Memory:
    """What the rules must know of the step before."""

    game_mode: int = -1
    last_owner: int = NOBODY
    goal_difference: int = 0


class Engine:
    """Plays a scenario by gfootball's rules for a left team of which `players` are controlled.

    An episode is a function of its kick-off and the actions since, whatever was played before.
    """

    def __init__(self, settings: Settings) -> None:
        library: Any = importlib.import_module("gfootball_engine")
        self._settings = settings
        self._game = _idle_games.pop() if _idle_games else _start_game(library)
        self._release = weakref.finalize(self, _idle_games.append, self._game)
        self._release.atexit = False
        self._rules = line_up(settings)
        self._actions = _backend_actions()
        self._named: Any = library.e_BackendAction
        self._normal_mode = int(library.e_GameMode.e_GameMode_Normal)
        self.kickoff = Kickoff(seed=0, we_kick_off=True)
        self.begin(self.kickoff)

    @property
    def num_actions(self) -> int:
        return len(self._actions)

    @property
    def goal_difference(self) -> int:
        """Our goals less theirs since the kick-off."""
        return self._memory.goal_difference

    def begin(self, kickoff: Kickoff) -> None:
        self.kickoff = kickoff
        self._memory = Memory()
        self._game.reset(line_up(self._settings, **asdict(kickoff)), False)
        while not self._look():
            self._game.step()

    def step(self, actions: Sequence[int]) -> Outcome:
        """Play a tenth of a second, and on to where the ball is in play again."""
        for player, action in enumerate(actions):
            self._game.perform_action(self._permitted(player, action), True, player)
        self._game.step()
        while not self._look():
            self._game.step()
        before, self._memory = self._memory, self._remembered()
        in_set_piece = self._memory.game_mode != self._normal_mode
        self._game.waiting_for_game_count = self._game.waiting_for_game_count + 1 if in_set_piece else 0
        terminated = self._is_over(before)
        return Outcome(
            goals=self._memory.goal_difference - before.goal_difference,
            terminated=terminated,
            truncated=self.info.step >= self._rules.game_duration and not terminated,
        )

    def close(self) -> None:
        """Leave the game to the next engine of this process."""
        self._release()
        self._game = None

    def _look(self) -> bool:
        """Whether the game is on; always right after another call, for that tells the engine which game is meant."""
        self.info = self._game.get_info()
        return bool(self.info.is_in_play)

    def _remembered(self) -> Memory:
        owner = self.info.ball_owned_team
        return Memory(
            game_mode=int(self.info.game_mode),
            last_owner=self._memory.last_owner if owner == NOBODY else owner,
            goal_difference=self.info.left_goals - self.info.right_goals,
        )

    def _is_over(self, before: Memory) -> bool:
        rules, now, normal = self._rules, self._memory, self._normal_mode
        scored = self.info.left_goals > 0 or self.info.right_goals > 0
        went_out_of_play = now.game_mode != normal and before.game_mode == normal
        changed_owner = now.last_owner != before.last_owner and before.last_owner != NOBODY
        return bool(
            (rules.end_episode_on_score and scored)
            or (rules.end_episode_on_out_of_play and went_out_of_play)
            or (rules.end_episode_on_possession_change and changed_owner)
        )

    def _permitted(self, player: int, action: int) -> Any:
        """What the player chose, unless the team has held up a set piece for too long."""
        waiting = self._game.waiting_for_game_count
        if waiting < PATIENCE:
            return self._actions[action]
        if waiting == PATIENCE:
            return self._named.short_pass
        info = self.info
        if info.ball_owned_team == OURS and info.ball_owned_player == info.left_controllers[player].controlled_player:
            return self._named.right if waiting < PATIENCE + 10 else self._named.left
        return self._named.idle


def _start_game(library: Any) -> Any:
    game = library.GameEnv()
    game.start_game()
    return game


def _backend_actions() -> list[Any]:
    """gfootball's default set of 19 actions in the engine's terms."""
    action_set: Any = importlib.import_module("gfootball.env.football_action_set")
    return [action._backend_action for action in action_set.action_set_dict["default"]]
