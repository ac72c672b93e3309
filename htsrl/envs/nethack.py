"""NetHack: the surroundings and the status line as one vector, and games that a seed repeats."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.utils import seeding
from numpy.typing import NDArray

from htsrl.envs.extras import import_simulator
from htsrl.errors import ConfigError

Info = dict[str, Any]
Float32 = NDArray[np.float32]

SYMBOLS = {
    0: "stone", 1: "wall", 12: "doorway", 13: "open door", 15: "closed door", 17: "obstacle", 19: "floor",
    21: "corridor", 23: "up", 24: "down", 25: "up", 26: "down", 27: "furniture", 32: "liquid", 33: "floor",
    34: "liquid", 35: "floor", 37: "obstacle", 39: "floor", 41: "liquid", 42: "trap", 65: "effect",
}  # fmt: skip
"""Where each stretch of NetHack's symbols for the dungeon (its defsym.h) begins, and what it shows."""

STATUS_SCALES = {
    "X": 79, "Y": 21, "STR25": 25, "STR125": 125, "DEX": 25, "CON": 25, "INT": 25, "WIS": 25, "CHA": 25,
    "SCORE": 1000, "HP": 100, "HPMAX": 100, "DEPTH": 50, "GOLD": 1000, "ENE": 100, "ENEMAX": 100, "AC": 10,
    "HD": 30, "XP": 30, "EXP": 1000, "TIME": 5000, "HUNGER": 6, "CAP": 5, "DNUM": 8, "DLEVEL": 50, "ALIGN": 1,
}  # fmt: skip
"""What each number of the status line is divided by; the conditions, bits of one number, become flags."""

STATUS_LIMIT = 10.0


def make_nethack(
    env_id: str, *, crop: int = 9, max_episode_steps: int = 5000, **env_args: Any
) -> gymnasium.Env[Any, Any]:
    """The task that nle registers as `env_id`, seeded by its resets.

    Observation: see `Surroundings`; `crop` is the side, in cells, of the square that is seen. More arguments are nle's
    own, `character="val-hum-law-fem"` for example. After `max_episode_steps` an episode is truncated.
    """
    if crop < 1 or crop % 2 == 0:
        raise ConfigError(f"crop={crop} must be odd and at least 1, so that the hero is in its middle")
    if env_id.startswith("NetHackChallenge"):
        raise ConfigError(f"{env_id} does not let itself be seeded, so no run could be repeated; use NetHackScore-v0")
    import_simulator("nle", extra="nethack")
    spec = gymnasium.spec(env_id)
    assert spec.entry_point is not None
    # Past its own limit nle says "terminated" and shows the screen after quitting, so the limit is ours to keep. Its
    # moon and its nights are those of the computer's clock if not fixed.
    arguments = {"fix_moon_phase": True, "observation_keys": ("glyphs", "blstats"), **spec.kwargs, **env_args}
    create: Any = spec.entry_point if callable(spec.entry_point) else load_env_creator(spec.entry_point)
    game = create(max_episode_steps=sys.maxsize, **arguments)
    game.spec = spec
    return gymnasium.wrappers.TimeLimit(Surroundings(game, crop), max_episode_steps)


class Surroundings(gymnasium.ObservationWrapper[Float32, Any, dict[str, Any]]):
    """What kind of thing is on each cell around the hero, one-hot, then the status line, scaled; messages are left out.

    Kinds are those of `SYMBOLS`, monsters, pets and what is only felt to be there, corpses, statues, and objects by
    class. A reset draws NetHack's two seeds from its own and forbids the game to reseed itself.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], crop: int) -> None:
        super().__init__(env)
        nethack = import_simulator("nle.nethack", extra="nethack")
        self._rng, _ = seeding.np_random()
        self._crop = crop
        kinds = [_kind(nethack, glyph) for glyph in range(nethack.MAX_GLYPH)] + ["stone"]  # the last: no glyph
        names = sorted(set(kinds))
        self._one_hot_of_glyph = np.eye(len(names), dtype=np.float32)[[names.index(kind) for kind in kinds]]
        self._nowhere = kinds.index("stone")
        self._xy = (nethack.NLE_BL_X, nethack.NLE_BL_Y)
        self._status = [getattr(nethack, f"NLE_BL_{name}") for name in STATUS_SCALES]
        self._scales = np.array(list(STATUS_SCALES.values()), np.float32)
        self._condition = nethack.NLE_BL_CONDITION
        self._condition_bits = np.arange(nethack.BL_MASK_BITS)
        size = crop * crop * len(names) + len(self._status) + len(self._condition_bits)
        self.observation_space = spaces.Box(-STATUS_LIMIT, STATUS_LIMIT, (size,), np.float32)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Float32, Info]:
        if seed is not None:
            self._rng, _ = seeding.np_random(seed)
        game: Any = self.env.unwrapped
        core, display = map(int, self._rng.integers(2**31, size=2))
        game.seed(core, display, False)
        game._frozen_steps = 0  # nle counts on from the game before, so the penalty for idling would remember it
        return super().reset(seed=seed, options=options)

    def observation(self, observation: dict[str, Any]) -> Float32:
        glyphs, numbers = observation["glyphs"], observation["blstats"]
        x, y = numbers[list(self._xy)]
        padded = np.pad(glyphs, self._crop // 2, constant_values=self._nowhere)
        cells = self._one_hot_of_glyph[padded[y : y + self._crop, x : x + self._crop]]
        status = np.clip(numbers[self._status] / self._scales, -STATUS_LIMIT, STATUS_LIMIT)
        conditions = numbers[self._condition] >> self._condition_bits & 1
        return np.concatenate((cells.ravel(), status, conditions), dtype=np.float32)


def _kind(nethack: Any, glyph: int) -> str:
    if nethack.glyph_is_pet(glyph):
        return "pet"
    if nethack.glyph_is_invisible(glyph) or nethack.glyph_is_warning(glyph):
        return "felt"
    if nethack.glyph_is_monster(glyph):
        return "monster"
    if nethack.glyph_is_body(glyph):
        return "corpse"
    if nethack.glyph_is_statue(glyph):
        return "statue"
    if nethack.glyph_is_normal_object(glyph):
        return f"object {ord(nethack.objclass(nethack.glyph_to_obj(glyph)).oc_class)}"
    if nethack.GLYPH_CMAP_OFF <= glyph < nethack.GLYPH_EXPLODE_OFF:
        symbol = glyph - nethack.GLYPH_CMAP_OFF
        return SYMBOLS[max(start for start in SYMBOLS if start <= symbol)]
    return "effect"
