"""Named arrays as the bytes of a safetensors file, and back.

The file is laid out here, not by the package, which takes three times the CPU, or copies all of it and holds the GIL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

CODES = {
    "|b1": "BOOL",
    "|i1": "I8",
    "|u1": "U8",
    "<i2": "I16",
    "<u2": "U16",
    "<i4": "I32",
    "<u4": "U32",
    "<i8": "I64",
    "<u8": "U64",
    "<f2": "F16",
    "<f4": "F32",
    "<f8": "F64",
}
"""What safetensors calls NumPy's dtypes."""
ALIGNMENT_BYTES = 8


def to_pieces(arrays: Mapping[str, NDArray[Any]]) -> list[memoryview]:
    """The parts of a file in order: its header, then every array's bytes, not copied where they are contiguous."""
    # Wide items first keeps every array aligned, as the format's own writer does.
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    entries: dict[str, Any] = {}
    end = 0
    for name in names:
        array = arrays[name]
        if array.dtype.str not in CODES:
            raise TypeError(f"array {name!r} has dtype {array.dtype}; a checkpoint holds {', '.join(CODES)}")
        start, end = end, end + array.nbytes
        entries[name] = {"dtype": CODES[array.dtype.str], "shape": array.shape, "data_offsets": [start, end]}
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % ALIGNMENT_BYTES)
    return [memoryview(len(header).to_bytes(8, "little") + header), *(_bytes_of(arrays[name]) for name in names)]


def from_bytes(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file; ValueError for bytes that are none, or that hold what NumPy cannot."""
    try:
        return dict(load(data))
    except (SafetensorError, ValueError, KeyError) as error:
        raise ValueError(f"is not a safetensors file for NumPy: {str(error)[:200]!r}") from error


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
