"""Randomness as a function, not a stream: who draws a number, and when, cannot change it.

Every number comes from a counter-based generator (Philox) whose key names the run and the purpose and
whose counter names the place: (seed, env, step), (seed, env, episode), (seed, update, epoch).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
DRAWS_PER_TICK = 4  # one tick of a Philox4x64 counter yields four 64-bit words


class Purpose(IntEnum):
    """Keeps the uses of one seed apart."""

    ACTION_NOISE = 1
    RESET = 2
    SHUFFLE = 3
    NETWORK = 4
    EVALUATION_RESET = 5
    EVALUATION_NOISE = 6
    REPLAY = 7
    LEARNING = 8


def _philox(seed: int, purpose: Purpose, index: int = 0, counter: tuple[int, int] = (0, 0)) -> np.random.Philox:
    key = np.array([seed, (int(purpose) << 32) | index], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([*counter, 0, 0], dtype=np.uint64))


def reset_seed(seed: int, env: int, episode: int, purpose: Purpose = Purpose.RESET) -> int:
    """The seed that environment `env` is reset with for its `episode`-th episode."""
    return int(_philox(seed, purpose, env, (episode, 0)).random_raw()) >> 33


def network_seed(seed: int, model: str = "") -> int:
    """The seed of the initial values of the policy, or of another model by its name."""
    return int(_philox(seed, Purpose.NETWORK, zlib.crc32(model.encode())).random_raw()) >> 1


def shuffled(seed: int, update: int, epoch: int, size: int) -> NDArray[np.int64]:
    """The order in which epoch `epoch` of update `update` visits its `size` steps."""
    generator = np.random.Generator(_philox(seed, Purpose.SHUFFLE, epoch, (0, update)))
    return generator.permutation(size)


def replay_draws(seed: int, update: int, gradient_step: int, population: int, size: int) -> NDArray[np.int64]:
    """Which of `population` transitions a gradient step of an update learns from, drawn with replacement."""
    generator = np.random.Generator(_philox(seed, Purpose.REPLAY, gradient_step, (0, update)))
    return generator.integers(0, population, size)


@dataclass(frozen=True)
class ActionNoise:
    """What one action needs of randomness: Gumbel columns for discrete parts, then normal ones for continuous."""

    gumbel: int = 0
    normal: int = 0

    @property
    def columns(self) -> int:
        return self.gumbel + self.normal

    def draw(
        self, seed: int, env: int, first_step: int, num_steps: int, purpose: Purpose = Purpose.ACTION_NOISE
    ) -> Float32:
        """The noise of `num_steps` steps of one environment, a row each; a row depends on its step alone."""
        uniforms = self.gumbel + 2 * self.normal
        ticks = -(-uniforms // DRAWS_PER_TICK)
        raw = _philox(seed, purpose, env, (first_step * ticks, 0)).random_raw(num_steps * ticks * DRAWS_PER_TICK)
        uniform = _open_unit_interval(raw.reshape(num_steps, -1)[:, :uniforms])
        gumbel, radius, angle = np.split(uniform, [self.gumbel, self.gumbel + self.normal], axis=1)
        noise = np.concatenate([-np.log(-np.log(gumbel)), _box_muller(radius, angle)], axis=1)
        return noise.astype(np.float32)


def _open_unit_interval(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Never 0 and never 1, so that both logarithms above are finite."""
    return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _box_muller(radius: NDArray[np.float64], angle: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)
