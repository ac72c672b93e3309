"""Atari games on the raw Arcade Learning Environment (ALE), preprocessed in the usual way and nothing in between."""

from __future__ import annotations

import gymnasium

from htsrl.envs.atari.emulator import FIRE, NOOP, Emulator, UInt8
from htsrl.envs.atari.environment import Atari
from htsrl.envs.atari.frame_stack import FrameStack
from htsrl.envs.atari.make import make_ale

__all__ = ["FIRE", "NOOP", "Atari", "Emulator", "FrameStack", "UInt8", "make_ale"]

# Made bare: `Atari` refuses a step before a reset by itself, and a wrapper would hide `step_into`.
gymnasium.register("htsrl/Atari-v0", f"{__name__}:Atari", order_enforce=False, disable_env_checker=True)
