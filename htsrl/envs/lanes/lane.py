"""What a lane is: to those who write one, and to the runtime that steps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.envs.observing import Rows

Bools = NDArray[Any]
"""One for each environment of a lane."""
Seeds = NDArray[Any]
LaneInfo = Mapping[str, NDArray[Any]]
"""Numbers by key, one for each environment; not a number where it tells none."""


class Lane(Protocol):
    """A simulator of one's own, called as `MyLane(num_envs=K, **env_args)`: K environments in one call.

    All arrays are the runtime's, and written in place: what is seen goes straight to where the learner reads it. With a
    space of parts, `obs` is a dict of arrays by key. Also looked for: `save_state() -> bytes`, `restore_state(bytes)`,
    `close()`.
    """

    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]

    def reset(self, envs: NDArray[Any], seeds: Seeds, obs: Any) -> None:
        """Begin an episode in each of these environments, with its own seed, and write `obs[envs]`."""

    def step(
        self, actions: NDArray[Any], obs: Any, rewards: NDArray[Any], terminated: Bools, truncated: Bools
    ) -> LaneInfo | None:
        """Step all environments, and write what followed. Nothing begins anew by itself: `reset` follows."""


class LaneOutcome(NamedTuple):
    """What a step of a lane led to, for each of its environments."""

    rewards: NDArray[Any]
    terminated: Bools
    truncated: Bools
    info: LaneInfo
    has_finals: bool = True
    """Whether the rows show the final observations of episodes that ended; else they show what begins the next."""

    @property
    def ended(self) -> Bools:
        return self.terminated | self.truncated


@dataclass(frozen=True)
class LaneFacts:
    """What a look at one lane found."""

    idles: bool
    """An environment whose episode has ended spends a step on beginning the next, in which its action is ignored."""
    saves_state: bool
    """A lane can be brought back from what it saved; else all its actions since the start are played again."""


class LaneSimulator(Protocol):
    """Any batched simulator, as the runtime drives it."""

    num_envs: int
    observation_space: spaces.Space[Any]
    """Of one environment, as is the action space."""
    action_space: spaces.Space[Any]
    idles: bool
    seeds_episodes: bool
    """Whether every episode begins with a seed of its own; else one generator continues from the reset."""

    @property
    def inner(self) -> object:
        """What is behind it, for those who ask where its code comes from."""

    def reset(self, seeds: Seeds, rows: Rows) -> None:
        """Begin an episode in every environment; a seed each, of which one that has a single generator takes the
        first. What is seen is written into `rows`, one for each environment."""

    def step(self, actions: NDArray[Any], rows: Rows) -> LaneOutcome:
        """Act; what truly followed, final observations included, is written into `rows`."""

    def begin_episodes(self, ended: Bools, seeds: Seeds, rows: Rows) -> None:
        """Begin the next episode where one has just ended, with `seeds` if it takes some; what is seen is written over
        the final observations. One that idles does so in its next step, and leaves the rows as they are."""

    def can_save_state(self) -> bool: ...

    def save_state(self) -> bytes: ...

    def restore_state(self, state: bytes) -> None:
        """Of a lane that was reset."""

    def close(self) -> None: ...
