"""What a fork server does: it imports once, and then forks a worker for every order, until nobody can ask any more."""

from __future__ import annotations

import gc
import importlib
import io
import os
import pickle
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from fcntl import F_DUPFD_CLOEXEC, fcntl

import numpy as np

from htsrl.placements.fork_server import ANSWER, MAX_FDS, WorkerOrder
from htsrl.processes.kill_points import read_orders
from htsrl.processes.parent_death import die_with_parent
from htsrl.processes.process_name import name_this_process
from htsrl.processes.warnings_once import show_warnings_once


def serve(socket_fd: int, computes: bool) -> None:
    """Fork a worker for every order; returns in the workers alone, as if they had been started with their arguments."""
    die_with_parent(int(sys.argv[1]))
    name_this_process("fork server")
    if computes:
        from htsrl.placements.preparation import import_what_computes

        import_what_computes()
    gc.collect()
    gc.freeze()  # what is not looked at stays shared
    connection = socket.socket(fileno=socket_fd)
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("something that every Python imports here has started a thread: workers take longer to start")
    connection.sendall(ANSWER.pack(0))
    while True:
        fds = _received(connection)
        if not fds:
            sys.exit()  # nobody will ask any more
        _import_libraries(fds[0])
        answer = _fork_twice()
        if answer is None:
            connection.close()
            _become_a_worker(fds)
            return
        for fd in fds:
            os.close(fd)
        connection.sendall(ANSWER.pack(answer))


def _import_libraries(content: int) -> None:
    """What an order asks for, before its worker is forked: the next one has it too."""
    order: WorkerOrder = pickle.loads(os.pread(content, os.fstat(content).st_size, 0))
    missing = [name for name in order.libraries if name not in sys.modules]
    for name in missing:
        with suppress(ImportError):  # the worker finds out, and can say so
            importlib.import_module(name)
    if missing:
        gc.collect()
        gc.freeze()
        if len(os.listdir("/proc/self/task")) > 1:
            sys.exit(f"{', '.join(missing)} started a thread: workers take longer to start")


def _received(connection: socket.socket) -> list[int]:
    """The descriptors of an order, which may come in several messages; none at the end."""
    fds: list[int] = []
    while True:
        data, some, _, _ = socket.recv_fds(connection, ANSWER.size, MAX_FDS)
        fds += some
        if not data or ANSWER.unpack(data)[0] <= len(some):
            return fds


def _fork_twice() -> int | None:
    """The pid of a worker whose parent has ended, less the number of an error, or None in the worker."""
    read_fd, write_fd = os.pipe()
    try:
        between = os.fork()
        if between == 0:
            _fork_and_leave(write_fd)
            return None
        os.close(write_fd)
        os.waitpid(between, 0)  # by then the worker has been adopted
        data = os.read(read_fd, ANSWER.size)
        return int(ANSWER.unpack(data)[0])
    except OSError as error:
        with suppress(OSError):
            os.close(write_fd)
        return -(error.errno or 1)
    finally:
        os.close(read_fd)


def _fork_and_leave(write_fd: int) -> None:
    """Returns in the worker alone."""
    try:
        pid = os.fork()
    except OSError as error:
        pid = -(error.errno or 1)
    if pid:
        if pid > 0:
            os.setpgid(pid, pid)  # here, before anybody could want to kill the group
        os.write(write_fd, ANSWER.pack(pid))
        os._exit(0)
    os.close(write_fd)


def _become_a_worker(fds: Sequence[int]) -> None:
    """Take over what a child of the supervisor would have inherited."""
    content, here, *inherited = fds
    with open(content, "rb") as file:
        file.seek(0)
        order: WorkerOrder = pickle.load(file)
    os.fchdir(here)
    os.close(here)
    _place(inherited, [0, 1, 2, *order.fds])
    os.environ.clear()
    os.environ.update(order.environment)
    sys.path[:], sys.argv[1:] = order.path, order.arguments
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=True)  # the server's went nowhere
    np.random.seed()  # or all workers would draw the same from the global generator
    show_warnings_once()
    read_orders()


def _place(fds: Sequence[int], numbers: Sequence[int]) -> None:
    """Give descriptors their numbers; first out of the way, for a number may be another's."""
    beyond = max(*fds, *numbers) + 1
    moved = [fcntl(fd, F_DUPFD_CLOEXEC, beyond) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)
