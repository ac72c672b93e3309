"""PettingZoo's parallel environments as teams."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from htsrl.envs.extras import import_simulator
from htsrl.envs.observing import ObservationGuard
from htsrl.envs.team import Flags, Info, Team, TeamStep
from htsrl.errors import ConfigError, RuleBroken
from htsrl.spaces import observation_leaves
from htsrl.spaces.observations import MASK_KEY

PREFIX = "pettingzoo/"


def make_pettingzoo(env_id: str, **env_args: Any) -> PettingZooTeam:
    """The team of `pettingzoo/MODULE`, where `MODULE.parallel_env(**env_args)` makes it.

    MODULE may leave out a leading `pettingzoo.`: both `pettingzoo/mpe2.simple_spread_v3` and
    `pettingzoo/butterfly.knights_archers_zombies_v11` are names.
    """
    import_simulator("pettingzoo", extra="pettingzoo")
    module = _module(env_id.removeprefix(PREFIX))
    if not hasattr(module, "parallel_env"):
        raise ConfigError(f"{env_id}: {module.__name__} has no parallel_env; only agents that act at once make a team")
    team = PettingZooTeam(module.parallel_env(**env_args))
    team.spec = EnvSpec(PREFIX + env_id.removeprefix(PREFIX), entry_point=f"{module.__name__}:parallel_env")
    return team


def _module(name: str) -> Any:
    inside = f"pettingzoo.{name}"
    if _exists(inside):
        return import_simulator(inside, extra="pettingzoo")
    if _exists(name):
        return import_simulator(name, extra="pettingzoo")
    raise ConfigError(
        f"{PREFIX}{name}: there is neither a module {name} nor {inside}; names are like {PREFIX}mpe2.simple_spread_v3, "
        "and pip install htsrl[pettingzoo] brings the usual ones"
    )


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


class PettingZooTeam(Team):
    """A parallel environment whose agents share their spaces; a row per possible agent.

    An agent is active while the environment lists it and the last step did not end it. The rows of others repeat what
    they saw last.
    """

    def __init__(self, parallel_env: Any) -> None:
        self._env = parallel_env
        self._names = list(parallel_env.possible_agents)
        self.num_agents = len(self._names)
        self.observation_space = _shared_space(self._names, parallel_env.observation_space, "observation")
        self.action_space = _shared_space(self._names, parallel_env.action_space, "action")
        self.active: Flags = np.zeros(self.num_agents, np.bool_)
        leaves = observation_leaves(self.observation_space)
        # Observations with parts are left to whoever takes the parts.
        self._checked = ObservationGuard("obs", leaves["obs"]) if "obs" in leaves else None
        self._observations: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[NDArray[Any], Info]:
        super(Team, self).reset(seed=seed)
        seen, info = self._env.reset(seed=seed, options=options)
        self._observations = [self._blank()] * self.num_agents
        self.active = self._rows(dict.fromkeys(self._env.agents, True), np.bool_)
        return self._look(seen), self._with_masks(info)

    def step(self, action: NDArray[Any]) -> TeamStep:  # type: ignore[override]
        actions = {name: self._own(action[row]) for row, name in enumerate(self._names) if self.active[row]}
        seen, rewards, terminations, truncations, info = self._env.step(actions)
        terminated, truncated = self._rows(terminations, np.bool_), self._rows(truncations, np.bool_)
        listed = self._rows(dict.fromkeys(self._env.agents, True), np.bool_)
        self.active = listed & ~terminated & ~truncated
        return self._look(seen), self._rows(rewards, np.float64), terminated, truncated, self._with_masks(info)

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        self._env.close()

    def _look(self, seen: dict[Any, Any]) -> Any:
        """A row per agent, or a list where an observation has parts."""
        for row, name in enumerate(self._names):
            if name in seen:
                self._observations[row] = self._checked(seen[name]) if self._checked else seen[name]
        return np.array(self._observations) if self._checked else list(self._observations)

    def _blank(self) -> Any:
        space = self.observation_space
        return np.zeros(space.shape or (), space.dtype) if self._checked else None

    def _with_masks(self, info: dict[Any, Any]) -> Info:
        """PettingZoo's infos are by agent; masks among them are wanted as a row per agent."""
        own = [info.get(name, {}) for name in self._names]
        if not any(MASK_KEY in of_agent for of_agent in own):
            return info
        for name, of_agent, is_active in zip(self._names, own, self.active, strict=True):
            if is_active and MASK_KEY not in of_agent:
                raise RuleBroken(f"the info of agent {name} has no {MASK_KEY}, that of others has")
        return {**info, MASK_KEY: [of_agent.get(MASK_KEY) for of_agent in own]}

    def _rows(self, values: dict[Any, Any], dtype: Any) -> NDArray[Any]:
        return np.array([values.get(name, 0) for name in self._names], dtype)

    def _own(self, action: Any) -> Any:
        return int(action) if isinstance(self.action_space, spaces.Discrete) else action


def _shared_space(names: list[Any], space_of: Any, kind: str) -> spaces.Space[Any]:
    first: spaces.Space[Any] = space_of(names[0])
    for name in names[1:]:
        if space_of(name) != first:
            raise ConfigError(
                f"{names[0]} has the {kind} space {first}, but {name} has {space_of(name)}; agents that share a policy "
                "need the same; wrap the environment so that they have"
            )
    return first
