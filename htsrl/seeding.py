"""Randomness as a function, not a stream: who draws a number, and when, cannot change it.

Every number comes from a counter-based generator (Philox) whose key names the run and the purpose and
whose counter names the place: (seed, env, step), (seed, env, episode), (seed, update, epoch).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

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
    REPLICA = 9
    PROMPTS = 10
    TOKENS = 11
    EVALUATION_TOKENS = 12


def _philox(seed: int, purpose: Purpose, index: int = 0, counter: tuple[int, int] = (0, 0)) -> np.random.Philox:
    key = np.array([seed, (int(purpose) << 32) | index], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.array([*counter, 0, 0], dtype=np.uint64))


def reset_seed(seed: int, env: int, episode: int, purpose: Purpose = Purpose.RESET) -> int:
    """The seed that environment `env` is reset with for its `episode`-th episode."""
    return int(_philox(seed, purpose, env, (episode, 0)).random_raw()) >> 33


def reset_seeds(seed: int, envs: Sequence[int], episodes: Sequence[int]) -> NDArray[np.int64]:
    """The same of many environments."""
    seeds = np.empty(len(envs), np.int64)
    generator = _philox(seed, Purpose.RESET)
    start: Any = generator.state
    for place, (env, episode) in enumerate(zip(envs, episodes, strict=True)):
        start["state"]["key"][1] = (int(Purpose.RESET) << 32) | env
        start["state"]["counter"][0] = episode
        generator.state = start
        seeds[place] = int(generator.random_raw()) >> 33
    return seeds


def network_seed(seed: int, model: str = "") -> int:
    """The seed of the initial values of the policy, or of another model by its name."""
    return int(_philox(seed, Purpose.NETWORK, zlib.crc32(model.encode())).random_raw()) >> 1


def replica_seed(seed: int, replica: int) -> int:
    """The seed of what a replica draws when it learns; the first has the run's own."""
    return int(_philox(seed, Purpose.REPLICA, replica).random_raw()) >> 1 if replica else seed


def shuffled(seed: int, update: int, epoch: int, size: int) -> NDArray[np.int64]:
    """The order in which epoch `epoch` of update `update` visits its `size` steps."""
    generator = np.random.Generator(_philox(seed, Purpose.SHUFFLE, epoch, (0, update)))
    return generator.permutation(size)


def prompt_order(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    """The order in which a run on text goes through its `size` prompts for the `epoch`-th time."""
    return np.random.Generator(_philox(seed, Purpose.PROMPTS, 0, (0, epoch))).permutation(size)


def token_noise(
    seed: int, ordinal: int, generation: int, tokens: range, vocabulary: int, purpose: Purpose = Purpose.TOKENS
) -> Float32:
    """Gumbel noise `[tokens, vocabulary]` of one of the completions of the `ordinal`-th prompt that a run drew."""
    ticks = -(-vocabulary // DRAWS_PER_TICK)
    generator = _philox(seed, purpose, generation, (tokens.start * ticks, ordinal))
    raw = generator.random_raw(len(tokens) * ticks * DRAWS_PER_TICK).reshape(len(tokens), -1)[:, :vocabulary]
    return (-np.log(-np.log(_open_unit_interval(raw)))).astype(np.float32)


def replay_draws(seed: int, update: int, gradient_step: int, population: int, size: int) -> NDArray[np.int64]:
    """Which of `population` transitions a gradient step of an update learns from, drawn with replacement."""
    generator = np.random.Generator(_philox(seed, Purpose.REPLAY, gradient_step, (0, update)))
    return generator.integers(0, population, size)


def replay_positions(seed: int, update: int, gradient_step: int, size: int) -> NDArray[np.float64]:
    """Where a gradient step of an update draws by priority: a number from each of `size` equal parts of [0, 1)."""
    generator = np.random.Generator(_philox(seed, Purpose.REPLAY, gradient_step, (0, update)))
    return (np.arange(size) + generator.random(size)) / size


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
        ticks = -(-self._uniforms // DRAWS_PER_TICK)
        raw = _philox(seed, purpose, env, (first_step * ticks, 0)).random_raw(num_steps * ticks * DRAWS_PER_TICK)
        return self._from_raw(raw.reshape(num_steps, -1))

    def draw_many(self, seed: int, envs: range, first_step: int, num_steps: int) -> Float32:
        """The same of neighbouring environments, `[num_steps, len(envs), columns]`."""
        ticks = -(-self._uniforms // DRAWS_PER_TICK)
        raw = np.empty((num_steps, len(envs), ticks * DRAWS_PER_TICK), np.uint64)
        generator = _philox(seed, Purpose.ACTION_NOISE, 0, (first_step * ticks, 0))
        start: Any = generator.state  # a new generator for each takes ten times as long
        for place, env in enumerate(envs):
            start["state"]["key"][1] = (int(Purpose.ACTION_NOISE) << 32) | env
            generator.state = start
            raw[:, place] = generator.random_raw(num_steps * ticks * DRAWS_PER_TICK).reshape(num_steps, -1)
        return self._from_raw(raw)

    @property
    def _uniforms(self) -> int:
        return self.gumbel + 2 * self.normal

    def _from_raw(self, raw: NDArray[np.uint64]) -> Float32:
        uniform = _open_unit_interval(raw[..., : self._uniforms])
        gumbel, radius, angle = np.split(uniform, [self.gumbel, self.gumbel + self.normal], axis=-1)
        noise = np.concatenate([-np.log(-np.log(gumbel)), _box_muller(radius, angle)], axis=-1)
        return noise.astype(np.float32)


def _open_unit_interval(raw: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Never 0 and never 1, so that both logarithms above are finite."""
    return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _box_muller(radius: NDArray[np.float64], angle: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)
