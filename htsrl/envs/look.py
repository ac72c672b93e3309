"""A look at an environment's interface."""

from __future__ import annotations

from typing import Any

import gymnasium

from htsrl.config import Network
from htsrl.spaces import Interface
from htsrl.spaces.observations import MASK_KEY


def interface_of(env: gymnasium.Env[Any, Any], network: Network) -> Interface:
    """What an agent of `env` sees and does with this network; resets it once, to see whether info has masks."""
    _, info = env.reset(seed=0)
    squashes = network.bounded_actions == "squash"
    return Interface(env.observation_space, env.action_space, MASK_KEY in info, squashes)
