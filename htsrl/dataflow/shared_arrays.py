"""Named arrays over one block of memory that processes share.

The block has no name in the file system: it goes away with the last process that maps it, however that
process ends, and nobody else can open it.
"""

from __future__ import annotations

import copy
import errno
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.block import Block
from htsrl.errors import ConfigError

Array = NDArray[Any]
ALIGNMENT = 64  # a cache line, and what vector instructions like best


@dataclass(frozen=True)
class ArraySpec:
    """One array's name, shape and dtype, and whether checkpoints keep it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kept_by: Literal["version", "env", "filled", "appended"] | None = None
    """version: the first axis is the ring of versions, of which checkpoints keep those in use. env: the second axis is
    the environments, each of which is kept as it stands. filled: of the first axis every version fills
    `rows_per_version` more, until all are, and those are kept. appended: the same of what is not changed before it is
    written over, so that each checkpoint writes what is new. None: the run can do without."""
    rows_per_version: int = 0
    acting_rows: int = 0
    """Of a version's part of a ring, the first rows, which those who act need; they go down to islands."""
    watched_by: Literal["env", "worker"] | None = None
    """Whose rows the first axis has, where nobody's work depends on them and the supervisor looks at them; islands send
    them up as they stand."""

    @property
    def num_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


class SharedArrays:
    """Arrays laid out one after another in a block that starts zeroed."""

    def __init__(self, specs: Sequence[ArraySpec], fd: int | None = None, sparse: bool = False) -> None:
        """Allocate a new block, or map the existing one behind `fd`. One that is `sparse` takes memory only where
        something is written."""
        self.specs = tuple(specs)
        self.num_bytes = sum(_aligned(spec.num_bytes) for spec in self.specs)
        self.fd = _allocate(self.num_bytes, sparse) if fd is None else fd
        self._block = Block(self.fd, self.num_bytes)
        self._arrays: dict[str, Array] = {}
        offset = 0
        for spec in self.specs:
            count = int(np.prod(spec.shape, dtype=np.int64))
            array = np.frombuffer(self._block.buffer, dtype=spec.dtype, count=count, offset=offset)
            self._arrays[spec.name] = array.reshape(spec.shape)
            offset += _aligned(spec.num_bytes)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def named_under(self, prefix: str) -> SharedArrays:
        """The same block, in which arrays whose names begin with the prefix are found without it."""
        view = copy.copy(self)
        own = {name.removeprefix(prefix): array for name, array in self._arrays.items() if name.startswith(prefix)}
        view._arrays = {**self._arrays, **own}
        return view

    def close_fd(self) -> None:
        """Give up the right to hand the block to others; the mapping itself lives as long as its arrays."""
        os.close(self.fd)

    def close(self) -> None:
        """Give the memory back, whoever still holds arrays over it: the run is over, and nobody looks any more."""
        self.close_fd()
        self._block.let_go()


def _aligned(num_bytes: int) -> int:
    return -(-max(num_bytes, 1) // ALIGNMENT) * ALIGNMENT


def _allocate(num_bytes: int, sparse: bool) -> int:
    """A file descriptor of unnamed memory, reserved in full unless it is sparse: running out later would be a SIGBUS in
    mid-run."""
    if sparse and sys.platform == "linux":
        fd = os.memfd_create("htsrl")
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, num_bytes)
        return fd
    available = _available_bytes()
    too_much = ConfigError(
        f"the run needs {num_bytes / 2**20:,.0f} MiB of shared memory and {available / 2**20:,.0f} MiB are free; "
        "lower num_envs, sync_interval, lag or replay_capacity"
    )
    if num_bytes > available:
        raise too_much
    if sys.platform != "linux":
        return _temporary_file(num_bytes)
    fd = os.memfd_create("htsrl")
    try:
        os.fchmod(fd, 0o600)
        os.posix_fallocate(fd, 0, num_bytes)
    except OSError as error:
        os.close(fd)
        if error.errno in (errno.ENOSPC, errno.ENOMEM):
            raise too_much from error
        raise
    return fd


def _temporary_file(num_bytes: int) -> int:
    with tempfile.TemporaryFile() as file:
        file.truncate(num_bytes)
        return os.dup(file.fileno())


def _available_bytes() -> float:
    """What the machine and this process's control group have left."""
    if sys.platform != "linux":
        return math.inf
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    machine = int(fields["MemAvailable"].split()[0]) * 1024
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):  # no such limit
        return machine
    return min(machine, limit - used)
