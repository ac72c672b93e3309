"""A lock with many buttons, of which few can be pressed."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.envs.puzzles.arguments import require

Info = dict[str, Any]
MaskIn = Literal["observation", "info", "nowhere"]


class Lock(gymnasium.Env[Any, np.int64]):
    """Of `num_actions` buttons, each of one of `num_colours` colours, one of every colour is legal at each step.

    Observation: the wanted colour as one-hot numbers, then the share of `length` steps that is over. With
    `mask_in="observation"` that is the part "observation" of a Dict, beside "action_mask"; with "info" the mask is
    info["action_mask"]; with "nowhere" there is none. Action: a button; its colour is its number % num_colours. Which
    are legal is drawn anew at every step and can be told from nothing but the mask. Reward: 1 for the legal button of
    the wanted colour, 0 for another legal one, -1 for an illegal one, which terminates the episode; so does step
    `length`. Best: `length` (20). Chance among the legal: length / num_colours (5). Whoever ignores the mask has a
    legal button with a chance of p = num_colours / num_actions at best, and a mean return of (2p - 1) / (1 - p) for a
    long lock: -0.933.
    """

    def __init__(
        self, num_actions: int = 64, num_colours: int = 4, length: int = 20, mask_in: MaskIn = "observation"
    ) -> None:
        require(num_colours >= 2, f"num_colours={num_colours} must be at least 2, or there is nothing to choose")
        require(
            num_actions > num_colours and num_actions % num_colours == 0,
            f"num_actions={num_actions} must be a multiple of num_colours={num_colours}, and not that itself",
        )
        require(length >= 1, f"length={length} must be at least 1")
        require(mask_in in ("observation", "info", "nowhere"), f"mask_in={mask_in!r} is not observation, info, nowhere")
        shown = spaces.Box(0.0, 1.0, (num_colours + 1,), np.float32)
        self.observation_space: spaces.Space[Any] = shown
        if mask_in == "observation":
            self.observation_space = spaces.Dict({"observation": shown, "action_mask": spaces.MultiBinary(num_actions)})
        self.action_space = spaces.Discrete(num_actions)
        self._num_actions = num_actions
        self._num_colours = num_colours
        self._length = length
        self._mask_in = mask_in

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._steps = 0
        self._wanted = self.np_random.integers(self._num_colours, size=self._length + 1)
        self._masks = self._draw_masks()
        return self._seen()

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, Info]:
        button = int(action)
        is_legal = bool(self._masks[self._steps, button])
        reward = float(button % self._num_colours == self._wanted[self._steps]) if is_legal else -1.0
        self._steps += 1
        observation, info = self._seen()
        return observation, reward, not is_legal or self._steps == self._length, False, info

    def _draw_masks(self) -> NDArray[np.int8]:
        """For every step, one legal button of every colour."""
        steps, colours = np.ogrid[: self._length + 1, : self._num_colours]
        rows = self.np_random.integers(self._num_actions // self._num_colours, size=(self._length + 1, colours.size))
        masks = np.zeros((self._length + 1, self._num_actions), np.int8)
        masks[steps, rows * self._num_colours + colours] = 1
        return masks

    def _seen(self) -> tuple[Any, Info]:
        shown = np.zeros(self._num_colours + 1, np.float32)
        shown[self._wanted[self._steps]] = 1.0
        shown[-1] = self._steps / self._length
        if self._mask_in == "nowhere":
            return shown, {}
        mask = self._masks[self._steps].copy()
        if self._mask_in == "info":
            return shown, {"action_mask": mask}
        return {"observation": shown, "action_mask": mask}, {}
