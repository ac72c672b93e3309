"""What a failed environment leaves behind: the actions as they were stored, and as it was given them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from htsrl import A2C, Config, EnvironmentFailure, Experiment, Network, Placement, train

LAST_STEP = 12


class Crane(gymnasium.Env[Any, Any]):
    """Notes what it is told to do, and breaks."""

    told: list[Any]

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Dict(
            {"gear": spaces.Discrete(3, start=5), "pull": spaces.Tuple([spaces.Box(-2.0, 3.0, (2,), np.float32)])}
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        Crane.told = []
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Crane.told.append({"gear": action["gear"], "pull": [action["pull"][0].tolist()]})
        if len(Crane.told) > LAST_STEP:
            raise ValueError("the rope is torn")
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("bounded_actions", ["clip", "squash"])
def test_a_reproducer_has_the_actions_as_the_environment_got_them(tmp_path: Path, bounded_actions: Any) -> None:
    network = Network(hidden_sizes=(8,), bounded_actions=bounded_actions)
    experiment = Experiment(Crane, algorithm=A2C(), network=network, num_envs=1, sync_interval=5, total_steps=50)
    with pytest.raises(EnvironmentFailure, match="the rope is torn"):
        train(Config(experiment, Placement(backend="inline", run_dir=tmp_path / "run", progress="off")))
    reproducer = json.loads((tmp_path / "run" / "failed_environment_0.json").read_text())
    assert len(Crane.told) == LAST_STEP + 1
    assert reproducer["env_actions"] == Crane.told
    assert [action[0] + 5 for action in reproducer["actions"]] == [told["gear"] for told in Crane.told]
