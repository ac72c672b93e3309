"""A look at an environment's interface."""

from __future__ import annotations

from typing import Any

import gymnasium

from htsrl.config import Network
from htsrl.envs.random_actions import has_mask_in_observation
from htsrl.errors import EnvironmentFailure
from htsrl.spaces import Interface
from htsrl.spaces.observations import MASK_KEY


def interface_of(env: gymnasium.Env[Any, Any], network: Network) -> Interface:
    """What an agent of `env` sees and does with this network; resets it once, to see whether info has masks."""
    try:
        _, info = env.reset(seed=0)
    except Exception as error:
        raise EnvironmentFailure(f"the environment raised {type(error).__name__} in reset(seed=0): {error}") from error
    masks_in_info = MASK_KEY in info and not has_mask_in_observation(env)
    squashes = network.bounded_actions == "squash"
    return Interface(env.observation_space, env.action_space, masks_in_info, squashes)
