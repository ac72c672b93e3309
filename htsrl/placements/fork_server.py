"""Processes that have imported what workers need, and fork them: a worker starts in milliseconds, not in seconds.

A fork server has one thread, runs no code of the user's and computes nothing, so a fork of it is as good as a fresh
interpreter: no locks, threads or descriptors of anybody else. It forks twice, and the process in the middle ends at
once; who asked adopts the worker, so that it is a child of the supervisor's like any other.

    supervisor                      fork server                     worker
    memfd + descriptors   ------->  fork, fork, wait for the one in the middle
    pid                   <-------  (the worker has been adopted)
    equipment, assignment ------------------------------------->    asks to die with its parent, works

This is the side of those who ask; `fork_serving.py` is the server's. Who asks waits for the answer, and so is the only
one who writes to the socket. A server that was killed is noticed by the end of its socket; the next worker gets a new
one.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import pickle
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from htsrl.numerics import KEPT_MEMORY, ONE_THREAD

FLAG = "--fork-server"
PR_SET_CHILD_SUBREAPER = 36
START_SECONDS = 120.0
"""For the imports of a server, on a machine that is busy."""
MAX_FDS = 200
"""In one message; the kernel takes 253."""
ANSWER = struct.Struct("i")
# fmt: off
READ_ONCE = (
    "PYTHON", "LD_", "GLIBC_", "MALLOC_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_",
    "NPY_", "TORCH", "ATEN_", "CUDA_",
)
# fmt: on
"""How the names of variables begin that libraries read when they are loaded: with others, a server is of no use."""


@dataclass(frozen=True)
class WorkerOrder:
    """A worker, as the supervisor would have started it itself."""

    fds: Sequence[int]
    """Their numbers in the supervisor, and so in the worker."""
    arguments: Sequence[str]
    path: Sequence[str]
    environment: dict[str, str]
    libraries: Sequence[str] = ()
    """Modules that the server imports first, and has from then on; none of the user's."""


class Forked:
    """A worker that a fork server made: as much of `subprocess.Popen` as a supervisor needs."""

    def __init__(self, pid: int, stdin: IO[bytes]) -> None:
        self.pid = pid
        self.stdin = stdin
        self.returncode: int | None = None

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


class ForkServer:
    """The side of those who ask."""

    def __init__(self, computes: bool) -> None:
        ours, theirs = socket.socketpair()
        flags = [str(os.getpid()), FLAG, str(theirs.fileno()), *(["--computes"] if computes else [])]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "htsrl.placements.worker", *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=worker_environment(),
                process_group=0,
            )
        self._socket = ours
        self._is_ready = False
        self.circumstances = _circumstances()

    def fork(self, order: WorkerOrder) -> Forked:
        """Raises OSError where the server has died, or cannot fork."""
        self.wait_until_ready()
        read_fd, write_fd = os.pipe()
        with ExitStack() as passed, ExitStack() as unless_it_works:
            passed.callback(os.close, read_fd)
            unless_it_works.callback(os.close, write_fd)
            content = passed.enter_context(open(os.memfd_create("htsrl-order"), "w+b"))
            pickle.dump(order, content)
            content.flush()
            here = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            passed.callback(os.close, here)
            output = [_open_or_null(fd, passed) for fd in (1, 2)]
            with _adopting():
                self._send([content.fileno(), here, read_fd, *output, *order.fds])
                pid = self._answer()
            unless_it_works.pop_all()
        return Forked(pid, os.fdopen(write_fd, "wb"))

    def wait_until_ready(self) -> None:
        if not self._is_ready:
            self._answer()
            self._is_ready = True

    def _send(self, fds: Sequence[int]) -> None:
        for first in range(0, len(fds), MAX_FDS):
            socket.send_fds(self._socket, [ANSWER.pack(len(fds) - first)], fds[first : first + MAX_FDS])

    def _answer(self) -> int:
        """A pid, or 0 where the server has only something to say: that it is ready."""
        ready = select.poll()  # `select` refuses descriptors above 1,023, which a run on many threads has
        ready.register(self._socket, select.POLLIN)
        if not ready.poll(START_SECONDS * 1000):
            raise TimeoutError(f"a fork server (pid {self._process.pid}) did not answer for {START_SECONDS:g} s")
        data = self._socket.recv(ANSWER.size)
        if len(data) < ANSWER.size:
            raise ConnectionError(f"a fork server (pid {self._process.pid}) has died")
        (pid,) = ANSWER.unpack(data)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return int(pid)

    def close(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


class ForkServers:
    """The servers of this process: one for workers that compute, one for those that do without torch."""

    def __init__(self) -> None:
        self._servers: dict[bool, ForkServer] = {}
        self._owner = os.getpid()
        self._asking = threading.Lock()
        self._deadly: tuple[Any, ...] | None = None

    def make_ready(self, kinds: Collection[bool] = (False, True)) -> None:
        """Have both, or those that will be asked, import what they need, at the same time."""
        with self._asking, suppress(ConnectionError, TimeoutError):  # whoever asks them for a worker finds out
            for computes in kinds:
                self._started(computes)
            for computes in kinds:
                self._ready(computes)

    def fork(self, computes: bool, order: WorkerOrder) -> Forked:
        """A server that has died meanwhile is replaced, once; raises ConnectionError where none can live."""
        with self._asking:
            try:
                return self._ready(computes).fork(order)
            except (ConnectionError, TimeoutError):
                self._drop(computes)
                return self._ready(computes).fork(order)

    def _ready(self, computes: bool) -> ForkServer:
        """One that has imported everything; where it dies of that, none is started again under these circumstances."""
        server = self._started(computes)
        try:
            server.wait_until_ready()
        except (ConnectionError, TimeoutError):
            self._drop(computes)
            self._deadly = server.circumstances
            raise
        return server

    def _started(self, computes: bool) -> ForkServer:
        if self._owner != os.getpid():  # a fork of a process that has some
            self._servers, self._owner = {}, os.getpid()
        server, circumstances = self._servers.get(computes), _circumstances()
        if circumstances == self._deadly:
            raise ConnectionError("no fork server can live here")
        if server and server.circumstances != circumstances:
            self._drop(computes)
            server = None
        if server is None:
            server = self._servers[computes] = ForkServer(computes)
        return server

    def _drop(self, computes: bool) -> None:
        if server := self._servers.pop(computes, None):
            server.close()

    def close(self) -> None:
        if self._owner == os.getpid():
            for computes in (False, True):
                self._drop(computes)


fork_servers = ForkServers()
"""They are kept from run to run, and end with this process."""
atexit.register(fork_servers.close)


def worker_environment() -> dict[str, str]:
    # The path, and -P: a worker imports what this process would, and not more.
    return {**os.environ, **ONE_THREAD, **KEPT_MEMORY, "PYTHONPATH": os.pathsep.join(sys.path)}


def _circumstances() -> tuple[Any, ...]:
    """What a worker takes over from the process that it was forked from, and cannot be told."""
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    read_once = sorted((name, value) for name, value in os.environ.items() if name.startswith(READ_ONCE))
    umask = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask:")]
    return limits, read_once, umask, os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)


def _open_or_null(fd: int, opened: ExitStack) -> int:
    try:
        os.fstat(fd)
    except OSError:  # of a process that has closed it
        return opened.enter_context(open(os.devnull, "r+b")).fileno()
    return fd


@contextmanager
def _adopting() -> Iterator[None]:
    """Whoever loses its parent below this process becomes its child."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
