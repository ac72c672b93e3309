"""The arrays of a safetensors file, mapped into memory; its header is believed only where it adds up."""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.array_file import CODES
from htsrl.plain_files import parsed

HEADER_LIMIT_BYTES = 2**20
LENGTH_BYTES = 8
PART_BYTES = 4 << 20
DTYPES = {code: np.dtype(name) for name, code in CODES.items()}


def map_arrays(path: Path, num_bytes: int, sha256: str) -> dict[str, NDArray[Any]]:
    """The arrays, read-only and read from disk where they are looked at; ValueError where the file is another one."""
    with _opened(path, num_bytes) as descriptor:
        mapped = mmap.mmap(descriptor, num_bytes, prot=mmap.PROT_READ)
    if _sum_of(mapped) != sha256:
        raise ValueError("does not match the SHA-256 in the manifest")
    begin, entries = _header(mapped)
    arrays = {}
    end_of_last = begin
    for name, dtype, shape, (start, end) in sorted(_checked(entries), key=lambda entry: entry[3]):
        if begin + start != end_of_last:
            raise ValueError(f"has a gap or an overlap before {name!r}")
        end_of_last = begin + end
        if end_of_last > num_bytes:
            raise ValueError(f"ends before {name!r} does")
        count = math.prod(shape)
        arrays[name] = np.frombuffer(mapped, dtype, count, begin + start).reshape(shape)
    if end_of_last != num_bytes:
        raise ValueError("has bytes that no array claims")
    return arrays


@contextmanager
def _opened(path: Path, num_bytes: int) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is not waited for
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a plain file")
        if status.st_size != num_bytes or num_bytes < LENGTH_BYTES:
            raise ValueError(f"has {status.st_size} bytes where the manifest says {num_bytes}")
        yield descriptor
    finally:
        os.close(descriptor)


def _sum_of(mapped: mmap.mmap) -> str:
    sha256, view = hashlib.sha256(), memoryview(mapped)
    for start in range(0, len(view), PART_BYTES):
        sha256.update(view[start : start + PART_BYTES])
    view.release()
    return sha256.hexdigest()


def _header(mapped: mmap.mmap) -> tuple[int, Mapping[str, Any]]:
    """Where the arrays begin, and what is said of them."""
    length = int.from_bytes(mapped[:LENGTH_BYTES], "little")
    if length > min(HEADER_LIMIT_BYTES, len(mapped) - LENGTH_BYTES):
        raise ValueError(f"has a header of {length} bytes")
    entries = parsed(mapped[LENGTH_BYTES : LENGTH_BYTES + length])
    if not isinstance(entries, dict):
        raise ValueError("has a header that is no object")
    return LENGTH_BYTES + length, entries


Entry = tuple[str, np.dtype[Any], tuple[int, ...], tuple[int, int]]


def _checked(entries: Mapping[str, Any]) -> Iterator[Entry]:
    for name, entry in entries.items():
        match entry:
            case {"dtype": str(code), "shape": list(shape), "data_offsets": [int(start), int(end)]}:
                sizes_are_whole = len(shape) <= 16 and all(type(size) is int and size >= 0 for size in shape)
                if code not in DTYPES or not sizes_are_whole or not 0 <= start <= end:
                    raise ValueError(f"has a header that makes no array of {name[:40]!r}")
                if end - start != math.prod(shape) * DTYPES[code].itemsize:
                    raise ValueError(f"has a header whose sizes of {name[:40]!r} contradict each other")
                yield name, DTYPES[code], tuple(shape), (start, end)
            case _:
                raise ValueError(f"has a header that makes no array of {name[:40]!r}")
