"""Football as Gymnasium environments: one player, or a team."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from htsrl.envs.football.match import Info, Match
from htsrl.envs.football.settings import Settings
from htsrl.envs.team import Flags, Team, TeamStep


class Football(gymnasium.Env[NDArray[Any], np.int64]):
    """A scenario of Google Research Football, in which the agent is whoever of the left team is at the ball.

    Observation: `representation` "extracted", the last four mini-maps of 72x96 with four layers each, oldest first, or
    "simple115v2", 115 numbers. Reward: our goals less theirs; with `rewards` "scoring,checkpoints" also 0.1 for each
    of ten distances to their goal that the ball is brought to, once an episode.

    The episode terminates as the scenario says: by a goal, by the ball out of play, or by its loss to the others. When
    the scenario's time is up it is truncated, for no observation tells the time. That last step, and no other, has
    info["episode"] = {"r": our goals less theirs, "l": steps}.

    An episode is a function of its reset seed and the actions.
    """

    reports_episodes = True

    def __init__(self, scenario: str, representation: str = "extracted", rewards: str = "scoring,checkpoints") -> None:
        self._match = Match(Settings(scenario, 1, representation, rewards))
        self.observation_space = self._match.observation_space
        self.action_space = self._match.action_space

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[Any], Info]:
        observation = self._match.new_observations()[0]
        return observation, self.reset_into(observation, seed=seed, options=options)

    def step(self, action: np.int64 | int) -> tuple[NDArray[Any], float, bool, bool, Info]:
        observation = self._match.new_observations()[0]
        return observation, *self.step_into(action, observation)

    def reset_into(self, observation: NDArray[Any], *, seed: int | None = None, options: Info | None = None) -> Info:
        """`reset` that writes the observation into an array of the caller's."""
        super().reset(seed=seed)
        self._match.begin(self.np_random, observation[None])
        return {}

    def step_into(self, action: np.int64 | int, observation: NDArray[Any]) -> tuple[float, bool, bool, Info]:
        """`step` that writes the observation into an array of the caller's."""
        (reward,), terminated, truncated, info = self._match.step([int(action)], observation[None])
        return reward, terminated, truncated, info

    def save_state(self) -> bytes:
        """All that the future depends on, for `restore_state` of an environment made with the same options.

        It is the kick-off and the actions since, as JSON: restoring plays them again and checks where the ball is.
        """
        return self._match.save(self.np_random)

    def restore_state(self, state: bytes) -> None:
        """Go on where `save_state` was called."""
        self._match.restore(state, self.np_random)

    def close(self) -> None:
        self._match.close()


class FootballTeam(Team):
    """`Football` for `players` of the left team at once; all are active, and the episode ends for all together.

    Each sees itself in the last layer of its maps, and collects checkpoints of its own; a goal is everybody's.
    """

    reports_episodes = True

    def __init__(
        self,
        scenario: str,
        players: int = 3,
        representation: str = "extracted",
        rewards: str = "scoring,checkpoints",
    ) -> None:
        self._match = Match(Settings(scenario, players, representation, rewards))
        self.observation_space = self._match.observation_space
        self.action_space = self._match.action_space  # type: ignore[assignment]  # of one agent
        self.num_agents = players
        self.active = self._for_all(False)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[Any], Info]:
        observations = self._match.new_observations()
        return observations, self.reset_into(observations, seed=seed, options=options)

    def step(self, action: NDArray[Any]) -> TeamStep:  # type: ignore[override]  # as in Team
        observations = self._match.new_observations()
        return observations, *self.step_into(action, observations)

    def reset_into(self, observations: NDArray[Any], *, seed: int | None = None, options: Info | None = None) -> Info:
        """`reset` that writes the observations into an array of the caller's."""
        gymnasium.Env.reset(self, seed=seed)
        self._match.begin(self.np_random, observations)
        self.active = self._for_all(True)
        return {}

    def step_into(
        self, action: NDArray[Any], observations: NDArray[Any]
    ) -> tuple[NDArray[np.floating[Any]], Flags, Flags, Info]:
        """`step` that writes the observations into an array of the caller's."""
        if len(action) != self.num_agents:
            raise gymnasium.error.InvalidAction(f"{len(action)} actions were given for {self.num_agents} players")
        rewards, terminated, truncated, info = self._match.step([int(one) for one in action], observations)
        self.active = self._for_all(not (terminated or truncated))
        return np.array(rewards), self._for_all(terminated), self._for_all(truncated), info

    def save_state(self) -> bytes:
        """As `Football.save_state`."""
        return self._match.save(self.np_random)

    def restore_state(self, state: bytes) -> None:
        """Go on where `save_state` was called."""
        self._match.restore(state, self.np_random)
        self.active = self._for_all(self._match.is_on)

    def close(self) -> None:
        self._match.close()

    def _for_all(self, value: bool) -> Flags:
        return np.full(self.num_agents, value)
