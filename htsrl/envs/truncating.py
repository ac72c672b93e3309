"""An environment that is allowed to fail (`on_env_error = "truncate"` or `"exclude"`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from htsrl.envs.agents import Outcome, agents_of
from htsrl.envs.observing import Rows
from htsrl.envs.team import Info
from htsrl.spaces import Interface

ERRORS = (Exception, SystemExit)


class TruncatingAgents:
    """Agents whose episode is cut short when their environment raises; the next reset is a new environment's."""

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], interface: Interface) -> None:
        self._make = make
        self._interface = interface
        self._agents = agents_of(make(), interface)
        self._is_broken = False
        self.num_agents = self._agents.num_agents
        self.is_team = self._agents.is_team
        self.to_env = self._agents.to_env

    @property
    def env(self) -> gymnasium.Env[Any, Any]:
        return self._agents.env

    @property
    def active(self) -> Any:
        return self._agents.active

    def reset(self, seed: int, rows: Rows) -> Info:
        """Raises if this fails, too: whoever asks decides what comes of an episode that has not begun."""
        if self._is_broken:
            self._renew()
        try:
            return self._agents.reset(seed, rows)
        except ERRORS:
            self._is_broken = True
            raise

    def step(self, action: Any, rows: Rows) -> Outcome:
        active = self.active
        try:
            return self._agents.step(action, rows)
        except ERRORS:
            self._is_broken = True
        rewards, ended = np.zeros_like(active, np.float64), np.zeros_like(active, np.bool_)
        return Outcome(rewards, ended, active, 0.0, over=True, cut=True, info={}, failed=True)

    def look_again(self) -> None:
        self._agents.look_again()

    def close(self) -> None:
        self._agents.close()

    def _renew(self) -> None:
        try:
            self._agents.close()
        except ERRORS:
            pass  # it has failed already
        self._agents = agents_of(self._make(), self._interface)
        self._is_broken = False
