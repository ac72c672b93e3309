"""An environment's spaces as JSON, so that a policy can be built without the environment.

Only Gymnasium's own kinds of space can be written: a class of somebody else's would be code to import.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.errors import ConfigError, RunFolderError
from htsrl.spaces.interface import Interface

MAX_ELEMENTS = 2**24
"""Of one part of a space: a picture of 2048 x 2048 with 4 channels. More is no observation, but an attack on memory."""
DTYPES = {np.dtype(name).name for name in "?bhilqBHILQefd"}


def interface_document(interface: Interface) -> dict[str, Any] | None:
    """What `read_interface` reads; None where a space is of a kind that only its own code knows."""
    try:
        return {
            "observation_space": _described(interface.observation_space),
            "action_space": _described(interface.action_space),
            "masks_in_info": interface.masks_in_info,
            "squashes": interface.squashes,
        }
    except TypeError:
        return None


def read_interface(document: Any) -> Interface:
    """The interface that `interface_document` described; RunFolderError for any other document."""
    try:
        match document:
            case {
                "observation_space": seen,
                "action_space": done,
                "masks_in_info": bool(masks_in_info),
                "squashes": bool(squashes),
            }:
                interface = Interface(_space(seen), _space(done), masks_in_info, squashes)
                assert interface.observations is not None
                assert interface.actions is not None
                return interface
            case _:
                raise ValueError("it lacks an entry that every description has")
    except ConfigError as error:
        raise RunFolderError(f"describes spaces that cannot be trained on: {error}") from error
    except (ValueError, TypeError, KeyError, AssertionError, OverflowError, RecursionError, MemoryError) as error:
        raise RunFolderError(f"does not describe spaces: {type(error).__name__}: {str(error)[:200]}") from error


def _described(space: spaces.Space[Any]) -> dict[str, Any]:
    kind = type(space)
    if isinstance(space, spaces.Dict) and kind is spaces.Dict:
        if not all(isinstance(key, str) for key in space.spaces):
            raise TypeError("keys of a Dict space are text in JSON")
        return {"Dict": [[key, _described(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple) and kind is spaces.Tuple:
        return {"Tuple": [_described(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete) and kind is spaces.Discrete:
        return {"Discrete": {"n": int(space.n), "start": int(space.start)}}
    if isinstance(space, spaces.MultiDiscrete) and kind is spaces.MultiDiscrete:
        numbers = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
        return {"MultiDiscrete": {**numbers, "dtype": np.dtype(space.dtype).name}}
    if isinstance(space, spaces.MultiBinary) and kind is spaces.MultiBinary:
        return {"MultiBinary": {"n": int(space.n) if isinstance(space.n, int | np.integer) else list(space.shape)}}
    if isinstance(space, spaces.Box) and kind is spaces.Box:
        bounds = {"low": _bound(space.low), "high": _bound(space.high)}
        return {"Box": {"shape": list(space.shape), "dtype": np.dtype(space.dtype).name, **bounds}}
    raise TypeError(f"{kind.__name__} is not one of Gymnasium's own spaces")


def _bound(bounds: NDArray[Any]) -> Any:
    """One number where all are the same, else all of them, in one list; infinities as text, for JSON has none."""
    flat = [_finite(bound) for bound in bounds.flatten().tolist()]
    return flat[0] if len(set(flat)) == 1 else flat


def _finite(bound: Any) -> Any:
    return str(bound) if isinstance(bound, float) and math.isinf(bound) else bound


def _space(document: Any) -> spaces.Space[Any]:
    match document:
        case {"Dict": list(parts), **rest} if not rest:
            # Gymnasium sorts the keys of a plain dictionary, and the order decides which weight is whose.
            return spaces.Dict(OrderedDict((_text(key), _space(part)) for key, part in parts))
        case {"Tuple": list(parts), **rest} if not rest:
            return spaces.Tuple([_space(part) for part in parts])
        case {"Discrete": {"n": int(n), "start": int(start)}}:
            return spaces.Discrete(n, start=start)
        case {"MultiDiscrete": {"nvec": list(nvec), "start": list(start), "dtype": str(dtype)}}:
            return spaces.MultiDiscrete(np.array(nvec, np.int64), dtype=_dtype(dtype), start=np.array(start, np.int64))
        case {"MultiBinary": {"n": int(n)}}:
            return spaces.MultiBinary(*_shape([n]))
        case {"MultiBinary": {"n": list(shape)}}:
            return spaces.MultiBinary(_shape(shape))
        case {"Box": {"shape": list(shape), "dtype": str(dtype), "low": low, "high": high}}:
            kind, sizes = _dtype(dtype), _shape(shape)
            return spaces.Box(_bounds(low, sizes, kind), _bounds(high, sizes, kind), dtype=kind)
    raise ValueError(f"{str(document)[:60]} is not a space")


def _text(key: Any) -> str:
    if not isinstance(key, str):
        raise ValueError(f"{key!r} is not the name of a part")
    return key


def _dtype(name: str) -> Any:
    if name not in DTYPES:
        raise ValueError(f"{name[:40]!r} is not a dtype of numbers")
    return np.dtype(name).type


def _shape(sizes: list[Any]) -> tuple[int, ...]:
    if not all(isinstance(size, int) and 0 <= size <= MAX_ELEMENTS for size in sizes) or len(sizes) > 16:
        raise ValueError(f"{str(sizes)[:60]} is not a shape")
    if math.prod(sizes) > MAX_ELEMENTS:
        raise ValueError(f"a space of shape {str(sizes)[:60]} has more than {MAX_ELEMENTS} elements")
    return tuple(sizes)


def _bounds(bounds: Any, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    numbers = [_number(bound) for bound in (bounds if isinstance(bounds, list) else [bounds])]
    flat = np.array(numbers, dtype)
    return np.full(shape, flat[0], dtype) if not isinstance(bounds, list) else flat.reshape(shape)


def _number(bound: Any) -> Any:
    if isinstance(bound, str) and bound in ("inf", "-inf"):
        return float(bound)
    if isinstance(bound, int | float | bool):
        return bound
    raise ValueError(f"{str(bound)[:40]!r} is not a bound")
