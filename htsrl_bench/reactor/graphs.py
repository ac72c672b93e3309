"""What the workers of each graph react to, and what the driver makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Outputs = dict[str, Array]
KILOBYTE, MEGABYTE = 1000, 1_000_000
NUM_FEATURES, NUM_ACTIONS, HIDDEN = 81, 5, 64
"""Of what an agent of the paper's traffic junction sees, may do, and has for a policy."""


class Reaction(Protocol):
    """What one worker does: a function of what it is given, of its number and of its own past."""

    def __call__(self, given: Array, out: Outputs) -> None: ...


class Driver(Protocol):
    """What gives the next array, from what the workers made of the last."""

    def begin(self) -> Array: ...

    def advance(self, outputs: Sequence[Outputs]) -> Array: ...


@dataclass(frozen=True)
class ArrayShape:
    """Of what passes between a driver and a worker."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Graph:
    """Workers around one driver."""

    name: str
    num_workers: int
    given: ArrayShape
    outputs: Mapping[str, ArrayShape]
    """Of each worker."""
    reaction: Callable[[int], Reaction]
    """By the worker's number."""
    driver: Callable[[], Driver]

    def empty_outputs(self) -> Outputs:
        return {name: np.empty(of.shape, of.dtype) for name, of in self.outputs.items()}


def hand_over(name: str, num_bytes: int, num_workers: int) -> Graph:
    """Broadcast and gather: everybody returns a copy of what was given, and the first copy is given next."""
    numbers = ArrayShape((num_bytes // 8,), "float64")

    def reaction(number: int) -> Reaction:
        def copy(given: Array, out: Outputs) -> None:
            out["copy"][...] = given

        return copy

    return Graph(name, num_workers, numbers, {"copy": numbers}, reaction, lambda: _Relay(numbers))


class _Relay:
    def __init__(self, numbers: ArrayShape) -> None:
        self._numbers = numbers

    def begin(self) -> Array:
        return np.ones(self._numbers.shape, self._numbers.dtype)

    def advance(self, outputs: Sequence[Outputs]) -> Array:
        return outputs[0]["copy"]


def averaging(num_workers: int) -> Graph:
    """Each moves the common parameters a little; what they come to depends on the order in which they are added up."""
    parameters = ArrayShape((1000,), "float32")

    def reaction(number: int) -> Reaction:
        def move(given: Array, out: Outputs) -> None:
            out["moved"][...] = np.sin(given * np.float32(number + 1)) / np.float32(7)

        return move

    return Graph("averaging", num_workers, parameters, {"moved": parameters}, reaction, _AddUp)


class _AddUp:
    def begin(self) -> Array:
        self._parameters = np.linspace(0, 1, 1000, dtype=np.float32)
        return self._parameters

    def advance(self, outputs: Sequence[Outputs]) -> Array:
        for output in outputs:
            self._parameters = self._parameters + output["moved"]
        return self._parameters


def stepping(name: str, num_workers: int, observation: ArrayShape, make: Callable[[], Any]) -> Graph:
    """An environment in each worker, stepped with random actions, as in the paper's programs."""
    outputs = {"observation": observation, "reward": ArrayShape((), "float64"), "ended": ArrayShape((), "bool")}
    given = ArrayShape((1 + num_workers,), "int64")
    return Graph(
        name, num_workers, given, outputs, lambda number: _Step(make(), number), lambda: _DrawActions(num_workers)
    )


class _DrawActions:
    """The number of the step, then an action for each worker."""

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers

    def begin(self) -> Array:
        self._draw, self._step = np.random.default_rng(1), 0
        return np.zeros(1 + self._num_workers, np.int64)

    def advance(self, outputs: Sequence[Outputs]) -> Array:
        self._step += 1
        return np.concatenate([[self._step], self._draw.integers(0, 2, self._num_workers)])


class _Step:
    def __init__(self, env: Any, number: int) -> None:
        self._env = env
        self._number = number

    def __call__(self, given: Array, out: Outputs) -> None:
        reward, ended = 0.0, False
        if given[0] == 0:
            observation, _ = self._env.reset(seed=self._number)
        else:
            observation, reward, terminated, truncated, _ = self._env.step(int(given[1 + self._number]))
            if ended := terminated or truncated:
                self._env.reset()
        out["observation"][...] = observation
        out["reward"][...] = reward
        out["ended"][...] = ended


def inferring(num_agents: int) -> Graph:
    """A policy in each worker, as small as the paper's; the team's environment is a few operations in the driver."""
    given = ArrayShape((num_agents, NUM_FEATURES), "float32")
    return Graph(
        f"inference, {num_agents} agents",
        num_agents,
        given,
        {"action": ArrayShape((), "int64")},
        _Infer,
        lambda: _Team(num_agents),
    )


class _Team:
    def __init__(self, num_agents: int) -> None:
        self._num_agents = num_agents

    def begin(self) -> Array:
        count = self._num_agents * NUM_FEATURES
        self._seen = np.sin(np.arange(count, dtype=np.float32)).reshape(-1, NUM_FEATURES)
        return self._seen

    def advance(self, outputs: Sequence[Outputs]) -> Array:
        self._seen = np.roll(self._seen, 1, axis=1)
        for agent, output in enumerate(outputs):
            self._seen[agent, 0] = float(output["action"]) / NUM_ACTIONS
        return self._seen


class _Infer:
    def __init__(self, number: int) -> None:
        import torch
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(number)
        self._torch, self._number = torch, number
        self._policy = nn.Sequential(
            nn.Linear(NUM_FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, NUM_ACTIONS), nn.Softmax(dim=-1)
        )

    def __call__(self, given: Array, out: Outputs) -> None:
        with self._torch.no_grad():
            seen = self._torch.from_numpy(np.array(given[self._number])).unsqueeze(0)
            out["action"][...] = self._policy(seen).argmax(dim=-1).item()


def _cartpole() -> Any:
    import gymnasium

    return gymnasium.make("CartPole-v1")


def _pong() -> Any:
    """Whole images, as the paper's program has them."""
    import ale_py
    import gymnasium

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    return gymnasium.make("ALE/Pong-v5", frameskip=4, repeat_action_probability=0.0)


NUM_WORKERS, NUM_ENVS = 16, 15
"""Of the paper's programs."""
SIZES = {"1 kB": KILOBYTE, "100 kB": 100 * KILOBYTE, "10 MB": 10 * MEGABYTE}
HAND_OVERS = tuple(hand_over(name, num_bytes, NUM_WORKERS) for name, num_bytes in SIZES.items())
AVERAGING = averaging(NUM_WORKERS)
CARTPOLE = stepping("CartPole", NUM_ENVS, ArrayShape((4,), "float32"), _cartpole)
PONG = stepping("Pong", NUM_ENVS, ArrayShape((210, 160, 3), "uint8"), _pong)
INFERENCES = (inferring(4), inferring(10))
GRAPHS: Mapping[str, Graph] = {graph.name: graph for graph in (*HAND_OVERS, AVERAGING, CARTPOLE, PONG, *INFERENCES)}
