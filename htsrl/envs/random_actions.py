"""Random actions, among those that a mask allows: what a look at an environment plays."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.envs.team import Info, team_size_of
from htsrl.spaces.actions import action_layout
from htsrl.spaces.masks import Mask, MaskReader
from htsrl.spaces.observations import MASK_KEY


class RandomActions:
    """A function of the seed, and of the masks given; the environment's own space is not drawn from."""

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        self._space = copy.deepcopy(env.action_space)
        self._space.seed(seed)
        self._generator = np.random.default_rng(seed)
        self._team_size = team_size_of(env)

    def draw(self, mask: Any = None) -> Any:
        """An action, or one for each agent of a team, whose mask is then a list."""
        if self._team_size is None:
            return self._one(mask)
        actions = [self._one(None if mask is None else mask[agent]) for agent in range(self._team_size)]
        return actions if isinstance(self._space, spaces.Dict | spaces.Tuple) else np.array(actions)

    def _one(self, mask: Any) -> Any:
        if mask is None:
            return self._space.sample()
        layout = action_layout(self._space)
        # A mask that allows nothing is for others to complain of.
        allowed = np.split(MaskReader(layout)(mask, is_last=True), np.cumsum(layout.categories)[:-1])
        drawn = [*map(self._choice, allowed), *self._generator.normal(size=layout.num_continuous)]
        row: NDArray[Any] = np.array(drawn).astype(layout.dtype)
        return layout.to_env(row[0] if layout.is_single_choice else row)

    def _choice(self, allowed: Mask) -> int:
        return int(self._generator.choice(np.flatnonzero(allowed)))


def mask_among(env: gymnasium.Env[Any, Any], observation: Any, info: Info) -> Any:
    """The action mask, wherever it is, for a team one for each agent; None where there is none."""
    if not has_mask_in_observation(env):
        return info.get(MASK_KEY)
    if team_size_of(env) is None:
        return observation[MASK_KEY]
    return [None if seen is None else seen[MASK_KEY] for seen in observation]


def has_mask_in_observation(env: gymnasium.Env[Any, Any]) -> bool:
    return isinstance(env.observation_space, spaces.Dict) and MASK_KEY in env.observation_space.spaces
