"""A block of memory that processes share, at addresses that stay valid however long somebody holds an array over it.

Arrays, tensors and modules over a block refer to one another, so Python frees them when its cyclic collector runs,
which may be long after a run has ended. Until then the addresses must exist, the memory behind them need not: so the
block reserves the addresses and lays the shared memory over them, and when it is let go, empty pages over that.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

import numpy as np

MAP_FIXED = 0x10  # Linux's, which Python does not name


class Block:
    """The first `num_bytes` behind a file descriptor, of which it keeps no copy."""

    def __init__(self, fd: int, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self._can_be_replaced = sys.platform == "linux"
        if not self._can_be_replaced:
            self.buffer = mmap.mmap(fd, num_bytes)
            return
        self.buffer = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._lay_over(mmap.MAP_SHARED, fd)

    def let_go(self) -> None:
        """Give the memory back now; who still reads sees zeros, who still writes writes for nobody."""
        if self._can_be_replaced:
            self._lay_over(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, fd=-1)

    def _lay_over(self, kind: int, fd: int) -> None:
        """In place of what is there, in one system call: no address is ever without memory."""
        address = np.frombuffer(self.buffer, np.uint8).ctypes.data
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        found = _libc().mmap(address, self._num_bytes, protection, kind | MAP_FIXED, fd, 0)
        if found != address:
            error = ctypes.get_errno()
            raise OSError(error, f"cannot map {self._num_bytes:,} bytes of shared memory: {os.strerror(error)}")


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
    libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, *numbers
    libc.mmap.restype = ctypes.c_void_p
    return libc
