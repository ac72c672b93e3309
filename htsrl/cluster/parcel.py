"""What travels between islands and the learner: JSON and arrays as bytes, of which nothing is unpickled."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.errors import HtsrlError

Arrays = Mapping[str, NDArray[Any]]
LENGTH = struct.Struct("<Q")
KINDS = "biuf"
"""Of arrays: truth values and numbers."""


class BrokenParcel(HtsrlError):
    """What came from another machine is no parcel, or not what was to be in it; nothing of it was used."""


def pack(document: Any, arrays: Arrays) -> bytes:
    shapes = {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
    head = json.dumps([document, shapes]).encode()
    parts: list[Any] = [LENGTH.pack(len(head)), head]
    parts += [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays.values() if array.size]
    return b"".join(parts)


def unpack(data: bytes) -> tuple[Any, dict[str, NDArray[Any]]]:
    """The document, and the arrays, which cannot be written to."""
    try:
        begin = LENGTH.size + LENGTH.unpack_from(data)[0]
        document, shapes = json.loads(data[LENGTH.size : begin])
        arrays = {}
        for name, (kind, shape) in shapes.items():
            dtype = np.dtype(kind)
            if dtype.kind not in KINDS or min(shape, default=0) < 0:
                raise ValueError(f"{name!r} is {kind} {shape}")
            count = math.prod(shape)
            arrays[name] = np.frombuffer(data, dtype, count, begin if count else 0).reshape(shape)
            begin += count * dtype.itemsize
        if begin != len(data):
            raise ValueError(f"{len(data)} bytes, of which {begin} are told of")
    except (ValueError, TypeError, AttributeError, KeyError, struct.error) as error:
        raise BrokenParcel(f"what came is no parcel: {error}") from error
    return document, arrays
