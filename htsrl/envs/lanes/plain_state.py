"""The state of a vector environment that is plain numbers: arrays, numbers, and NumPy's generators.

Saved as JSON and bytes and restored into the attributes of another of its kind: nothing in it is ever run, nor any
object made that was not there. What has other objects among its attributes is left alone, for those may hold a state.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from htsrl.errors import RuleBroken

NUMBERS = (bool, int, float, np.generic)
CONSTANTS = (
    *(str, bytes, type, FunctionType, BuiltinFunctionType, MethodType, ModuleType),
    *(EnvSpec, spaces.Space, AutoresetMode),
)
"""What no step changes; spaces have generators, which only those who sample from them draw from."""
MAX_HEADER = 1 << 24


class PlainState:
    """Reads and writes the attributes of one vector environment."""

    def __init__(self, vector: VectorEnv[Any, Any, Any]) -> None:
        self._vector = vector

    def is_plain(self) -> bool:
        """Whether all of its attributes are numbers or constants, and no wrapper has some of its own."""
        return not isinstance(self._vector, VectorWrapper) and all(map(_is_plain, vars(self._vector).values()))

    def save(self) -> bytes:
        header: dict[str, Any] = {}
        arrays: list[bytes] = []
        for name, value in sorted(vars(self._vector).items()):
            if isinstance(value, np.ndarray):
                header[name] = ["array", value.dtype.str, value.shape]
                arrays.append(np.ascontiguousarray(value).tobytes())
            elif isinstance(value, np.random.Generator):
                header[name] = ["generator", value.bit_generator.state]
            elif value is None or isinstance(value, NUMBERS):
                header[name] = ["number", value.item() if isinstance(value, np.generic) else value]
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + b"".join(arrays)

    def restore(self, state: bytes) -> None:
        size = int.from_bytes(state[:8], "little")
        if not 0 < size <= min(MAX_HEADER, len(state) - 8):
            raise RuleBroken("the state of a lane is damaged")
        header, position = json.loads(state[8 : 8 + size]), 8 + size
        for name, (kind, *about) in header.items():
            mine = vars(self._vector).get(name)
            if kind == "array":
                dtype, shape = np.dtype(about[0]), tuple(about[1])
                if dtype.hasobject:
                    raise RuleBroken("the state of a lane is damaged")
                count = int(np.prod(shape, dtype=np.int64))
                array = np.frombuffer(state, dtype, count, position).reshape(shape).copy()
                position += array.nbytes
                setattr(self._vector, name, array)
            elif kind == "generator":
                if not isinstance(mine, np.random.Generator):
                    raise RuleBroken(f"the state of a lane has a generator {name}, which the simulator has not")
                mine.bit_generator.state = about[0]
            elif isinstance(mine, np.generic):
                setattr(self._vector, name, type(mine)(about[0]))
            else:
                setattr(self._vector, name, about[0])


def _is_plain(value: Any) -> bool:
    if value is None or isinstance(value, (*NUMBERS, *CONSTANTS)):
        return True
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    if isinstance(value, np.random.Generator):
        return True
    # Of containers only those of constants: numbers within them might be counters.
    if isinstance(value, Mapping):
        return all(value is None or isinstance(part, CONSTANTS) for part in value.values())
    return isinstance(value, list | tuple) and all(isinstance(part, CONSTANTS) for part in value)
