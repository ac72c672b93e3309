"""How an environment is brought back: from a state that it saved, or by playing its episode again.

Both put bytes on a heap of the environment at the end of each rollout. A saved state takes the next heap each time. The
actions of an episode are appended to those of the rollouts before, with a hash of what was seen and earned; whoever
plays them again compares, so an environment that does not reproduce is found out and named.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Protocol

import gymnasium
import numpy as np
import xxhash
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from numpy.typing import NDArray

from htsrl.dataflow.capsules import Capsule, Capsules
from htsrl.envs.agents import Agents
from htsrl.envs.observing import Rows
from htsrl.envs.state import saves_its_state
from htsrl.envs.waiting import Awaited, OnThread
from htsrl.errors import EnvironmentFailure, NotReproduced
from htsrl.roles.shared import Shared

SEGMENT = struct.Struct("<IQ")  # steps, and the hash of what they led to
KNOWN_WRAPPERS = (OrderEnforcing, PassiveEnvChecker, TimeLimit, Awaited, OnThread)
HeapPart = tuple[int, int]
"""Which heap, and how many bytes of it count."""


class Recall(Protocol):
    """Keeps what one environment needs to come back."""

    is_log: bool

    def keep(self, before: Capsule | None, storage: int, episode_row: int | None) -> HeapPart:
        """Put the end of a rollout on a heap.

        `before` is the capsule that the rollout started from, and `episode_row` the row with the episode's first
        observation, None where it began in an earlier rollout.
        """

    def bring_back(self, capsule: Capsule, seed: int) -> None:
        """Take a new environment to where `capsule` was kept, in the episode that began with `seed`."""


def recall_of(index: int, agents: Agents, shared: Shared) -> Recall:
    """By saved state where the environment has one that holds everything, else by its actions."""
    if saves_its_state(agents.env) and wrapper_with_unknown_state(agents.env) is None:
        return StateRecall(index, agents, shared.capsules)
    return ActionRecall(index, agents, shared)


class StateRecall:
    """Of an environment with `save_state() -> bytes` and `restore_state(bytes)`."""

    is_log = False

    def __init__(self, index: int, agents: Agents, capsules: Capsules) -> None:
        self._index = index
        self._agents = agents
        self._capsules = capsules

    def keep(self, before: Capsule | None, storage: int, episode_row: int | None) -> HeapPart:
        state: bytes = self._agents.env.get_wrapper_attr("save_state")()
        heap = self._capsules.heap_after(before)
        self._capsules.write(self._index, heap, 0, state)
        return heap, len(state)

    def bring_back(self, capsule: Capsule, seed: int) -> None:
        env = self._agents.env
        env.reset(seed=seed)  # wrappers refuse to step before one
        env.get_wrapper_attr("restore_state")(self._capsules.read(self._index, capsule))
        for wrapper in _wrappers(env):
            if isinstance(wrapper, TimeLimit):
                wrapper._elapsed_steps = capsule.length  # type: ignore[assignment]  # declared as None
        self._agents.look_again()


class ActionRecall:
    """Of any environment that is a function of its reset's seed and the actions since."""

    is_log = True

    def __init__(self, index: int, agents: Agents, shared: Shared) -> None:
        self._index = index
        self._agents = agents
        self._capsules = shared.capsules
        self._inside = shared.exchange.inside
        storages = shared.storages
        columns = storages.spec.columns_of(index)
        self._num_steps = storages.spec.num_steps
        self._actions = storages["actions"][:, :, columns]
        self._rewards = storages["rewards"][:, :, columns]
        self._observations = {name: array[:, :, columns] for name, array in storages.observations.items()}

    def keep(self, before: Capsule | None, storage: int, episode_row: int | None) -> HeapPart:
        first = episode_row or 0
        actions = self._actions[storage, first:]
        first_seen = first + 1 if episode_row is None else first
        seen = [array[storage, first_seen : self._num_steps + 1] for array in self._observations.values()]
        data = SEGMENT.pack(len(actions), hash_of(seen, self._rewards[storage, first:])) + actions.tobytes()
        heap, offset = self._capsules.heap_after(before), 0
        if before is not None and episode_row is None:
            heap, offset = before.heap, before.num_bytes
        self._capsules.write(self._index, heap, offset, data)
        return heap, offset + len(data)

    def bring_back(self, capsule: Capsule, seed: int) -> None:
        seen, step = self._empty_rows(1), 0
        self._agents.reset(seed, _row(seen, 0))
        data = self._capsules.read(self._index, capsule)
        for actions, expected in segments(data, self._actions.shape[2:], self._actions.dtype):
            rows, rewards, ended = self._play(actions)
            step += len(actions)
            if ended or hash_of([np.concatenate([seen[name], rows[name]]) for name in rows], rewards) != expected:
                raise NotReproduced(
                    f"environment {self._index} does not reproduce: its episode {capsule.episode} (seed "
                    f"{seed}), played again up to step {step} with the same actions, led to something else in the last "
                    f"{len(actions)} steps. `htsrl check-env` tells what differs; make the environment a function of "
                    "its reset's seed and its actions, or give it save_state and restore_state",
                    env=self._index,
                )
            seen = self._empty_rows(0)  # only the first segment begins with what the reset showed

    def _play(self, actions: NDArray[Any]) -> tuple[Rows, NDArray[Any], bool]:
        """What the actions lead to: observations, rewards, and whether the episode ended."""
        rows, ended = self._empty_rows(len(actions)), False
        rewards = np.empty((len(actions), *self._rewards.shape[2:]), self._rewards.dtype)
        for i, action in enumerate(actions):
            outcome = self._agents.step(self._agents.to_env(action), _row(rows, i))
            self._inside[self._index] += 2  # another step, and still inside
            if outcome.failed:
                raise EnvironmentFailure(f"environment {self._index} failed when it was brought back", self._index)
            rewards[i] = outcome.rewards
            ended |= outcome.over
        return rows, rewards, ended

    def _empty_rows(self, count: int) -> Rows:
        return {name: np.empty((count, *x.shape[2:]), x.dtype) for name, x in self._observations.items()}


def segments(data: bytes, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[tuple[NDArray[Any], int]]:
    """The actions of each rollout, and the hash of what they led to."""
    step_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    position = 0
    while position < len(data):
        num_steps, expected = SEGMENT.unpack_from(data, position)
        begin = position + SEGMENT.size
        position = begin + num_steps * step_bytes
        yield np.frombuffer(data[begin:position], dtype).reshape(num_steps, *shape), expected


def _row(rows: Rows, i: int) -> Rows:
    return {name: array[i, ...] for name, array in rows.items()}


def hash_of(seen: list[NDArray[Any]], rewards: NDArray[Any]) -> int:
    hasher = xxhash.xxh3_64()
    for array in (*seen, rewards):
        hasher.update(np.ascontiguousarray(array).data)
    return hasher.intdigest()


def wrapper_with_unknown_state(env: gymnasium.Env[Any, Any]) -> str | None:
    """The first wrapper that may have a state of its own, which the environment below it knows nothing of."""
    for wrapper in _wrappers(env):
        if "save_state" in vars(type(wrapper)):
            return None
        if type(wrapper) not in KNOWN_WRAPPERS:
            return type(wrapper).__name__
    return None


def _wrappers(env: gymnasium.Env[Any, Any]) -> Iterator[gymnasium.Wrapper[Any, Any, Any, Any]]:
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
