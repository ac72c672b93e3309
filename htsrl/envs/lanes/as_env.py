"""A lane of one environment as a Gymnasium environment: what evaluates a policy plays one at a time."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from htsrl.config import Experiment
from htsrl.envs.lanes.envpool import PREFIX
from htsrl.envs.lanes.lane import LaneSimulator
from htsrl.envs.lanes.make import lane_of
from htsrl.envs.make import make_env
from htsrl.spaces import Interface


class LaneAsEnv(gymnasium.Env[Any, Any]):
    """Whatever is left of an episode is forgotten at a reset, which begins with its seed."""

    def __init__(self, lane: LaneSimulator) -> None:
        assert lane.num_envs == 1, f"a lane of {lane.num_envs} environments is not one"
        self._lane = lane
        self.observation_space, self.action_space = lane.observation_space, lane.action_space
        self._leaves = Interface(self.observation_space, self.action_space).observations
        self._rows = Interface(self.observation_space, self.action_space).empty_rows(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(2**31)) if seed is None else seed
        self._lane.reset(np.array([drawn]), self._rows)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        outcome = self._lane.step(np.asarray(action)[None], self._rows)
        info = {key: numbers[0] for key, numbers in outcome.info.items()}
        return self._seen(), float(outcome.rewards[0]), bool(outcome.terminated[0]), bool(outcome.truncated[0]), info

    def close(self) -> None:
        self._lane.close()

    def _seen(self) -> Any:
        """The rows as the space nests them."""
        if list(self._leaves) == ["obs"]:
            return self._rows["obs"][0].copy()
        seen: dict[Any, Any] = {}
        for name, leaf in self._leaves.items():
            place = seen
            for key in leaf.path[:-1]:
                place = place.setdefault(key, {})
            place[leaf.path[-1]] = self._rows[name][0].copy()
        return seen


def single_env(experiment: Experiment) -> gymnasium.Env[Any, Any]:
    """One environment of an experiment, which may be of lanes."""
    env, is_named = experiment.env, isinstance(experiment.env, str)
    is_lane = experiment.lanes is not None and not (is_named and not str(env).startswith(PREFIX))
    if not is_lane:
        return make_env(env, experiment.env_args, experiment.imports)
    return LaneAsEnv(lane_of(env, experiment.env_args, experiment.imports, num_envs=1))
