"""Spaces of images and vectors, images at random, and policies for such observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from htsrl.config import Network
from htsrl.policies.policy import Policy, build_policy


def images(*shape: int) -> spaces.Box[np.uint8]:
    return spaces.Box(0, 255, shape, np.uint8)


def vectors(*shape: int) -> spaces.Box[np.float32]:
    return spaces.Box(-1.0, 1.0, shape, np.float32)


def random_images(num_rows: int, *shape: int) -> Tensor:
    return torch.randint(0, 256, (num_rows, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def policy_for(observations: spaces.Space[Any], actions: spaces.Space[Any], seed: int = 1, **network: Any) -> Policy:
    return build_policy(observations, actions, Network(**network), seed)


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
