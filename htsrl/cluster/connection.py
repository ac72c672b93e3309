"""The Ray that a run's islands live on: a local one that this process starts, or a cluster that it joins.

It is kept from run to run, and ends with this process.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from htsrl.config.placement import available_cores
from htsrl.errors import ConfigError
from htsrl.processes.interrupts import SIGNALS

CONNECT_SECONDS = 60.0
TRY_TO_JOIN = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False)"
LOOPBACK = "127.0.0.1"
NO_TOKEN = "InvalidAuthToken"
"""Of Ray's message. It shows its token to an address only where it is told to."""
QUIETLY: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
MIN_STORE_BYTES = 80 << 20
"""Ray takes no less."""
NO_REPORTS = "RAY_USAGE_STATS_ENABLED"
"""Set to 0, nobody is told that Ray is used."""


_own_address: str | None = None
"""Of the Ray that this process has started last."""
_own_store_bytes = 0
_num_runs = 0
"""Of this process, on whichever Ray it is connected to."""


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, or a part of one that counts as its own."""

    id: str
    address: str
    cpus: float
    store_bytes: float

    @property
    def can_have_islands(self) -> bool:
        return self.cpus >= 1


def is_installed() -> bool:
    return importlib.util.find_spec("ray") is not None


def connect(address: str | None, store_bytes: int = 0) -> ModuleType:
    """Ray, connected. `store_bytes` is for a local one: what will be under way there at once."""
    if not is_installed():
        raise ConfigError("placement=ray needs Ray, which is not installed; pip install 'htsrl[ray]'")
    os.environ.setdefault(NO_REPORTS, "0")
    ray = import_module("ray")
    if ray.is_initialized():
        _check_that_it_is_meant(ray, address)
        if address or _num_runs or not is_own(ray) or store_bytes <= _own_store_bytes:
            return ray
        ray.shutdown()  # an earlier run needed less
    if address is not None:
        _check_that_it_can_be_joined(address)
    with _handlers_kept():
        if address is None:
            _start(ray, store_bytes)
        else:
            ray.init(address, **QUIETLY)
    return ray


@contextmanager
def run_on(address: str | None) -> Iterator[ModuleType]:
    """Ray, connected, which stays as it is for a run."""
    global _num_runs
    ray = connect(address)
    _num_runs += 1
    try:
        yield ray
    finally:
        _num_runs -= 1


def is_own(ray: ModuleType) -> bool:
    """Whether this process has started it, and so all of it is on this machine."""
    return bool(ray.get_runtime_context().gcs_address == _own_address)


def _check_that_it_is_meant(ray: ModuleType, address: str | None) -> None:
    """The one that an earlier run, or the user's own program, has connected this process to."""
    here = ray.get_runtime_context().gcs_address
    ours = ray.util.get_node_ip_address()
    is_meant = not is_own(ray) if address == "auto" else address is None or _same(address, here, ours)
    if not is_meant:
        raise ConfigError(
            f"ray_address={address}, but this process is connected to the Ray at {here} already, and there is one Ray "
            "to a process; call ray.shutdown() first"
        )


def _same(address: str, other: str, ours: str) -> bool:
    """Ray puts `ours`, the machine's own, in the place of the loopback's."""
    hosts, ports = set(), set()
    for host, _, port in (address.rpartition(":"), other.rpartition(":")):
        with suppress(OSError):  # a name that nobody knows is compared as it is
            host = socket.gethostbyname(host)
        hosts.add(ours if host == LOOPBACK else host)
        ports.add(port)
    return len(hosts) == len(ports) == 1


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Ray has one of its own for SIGTERM, which would end a run without its results."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items() if is_main else ():
            signal.signal(number, handler)


def _start(ray: ModuleType, store_bytes: int) -> None:
    """A Ray of this machine alone: all its ports are on the loopback."""
    from ray._private import ray_constants

    cluster_is_enabled = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False  # else Ray puts the machine's own address in place of the loopback's
    try:
        ray.init(
            "local",
            num_cpus=available_cores(),
            object_store_memory=max(store_bytes, MIN_STORE_BYTES),
            include_dashboard=False,
            _node_ip_address=LOOPBACK,
            _system_config={"worker_niceness": 0},  # Ray's is 15, and the learner would be served before its islands
            **QUIETLY,
        )
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = cluster_is_enabled
    global _own_address, _own_store_bytes
    _own_address, _own_store_bytes = ray.get_runtime_context().gcs_address, max(store_bytes, MIN_STORE_BYTES)
    addresses = {node["NodeManagerAddress"] for node in ray.nodes()}
    if addresses != {LOOPBACK}:
        ray.shutdown()
        raise ConfigError(
            f"Ray {ray.__version__} opened ports on {', '.join(addresses)} instead of {LOOPBACK}, where others could "
            "reach it; install the Ray that htsrl is made for: pip install 'htsrl[ray]'"
        )


def _check_that_it_can_be_joined(address: str) -> None:
    """Tried in a process of its own, which can be given up: Ray itself may wait for ever."""
    if not address.rpartition(":")[2].isdecimal() and address != "auto":
        raise ConfigError(f"ray_address={address} must be HOST:PORT, such as 10.0.0.1:6379, or auto")
    try:
        command = [sys.executable, "-P", "-c", TRY_TO_JOIN, address]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        tried = subprocess.run(command, capture_output=True, text=True, timeout=CONNECT_SECONDS, env=environment)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"ray_address={address} does not answer within {CONNECT_SECONDS:g} s; is the cluster's head up (`ray start "
            "--head`), and may this machine reach it?"
        ) from error
    if tried.returncode:
        if NO_TOKEN in tried.stderr:
            raise ConfigError(
                f"ray_address={address} asks for the token of its cluster; have it in ~/.ray/auth_token and "
                "RAY_AUTH_MODE=token in the environment, here and on all nodes"
            )
        lines = [line for line in tried.stderr.splitlines() if line.strip()] or [f"exit code {tried.returncode}"]
        raise ConfigError(
            f"ray_address={address} cannot be joined: {lines[-1]}. Python and Ray must be of the same versions there "
            "as here, and this machine one of the cluster's nodes; `ray status` tells"
        )


def alive_nodes(ray: ModuleType) -> list[Node]:
    """Those that islands can be on, in an order that stays."""
    return [node for node in all_alive(ray) if node.can_have_islands]


def all_alive(ray: ModuleType) -> list[Node]:
    """Also those without cores, such as a head that only manages."""
    found = [
        Node(
            id=node["NodeID"],
            address=node["NodeManagerAddress"],
            cpus=node["Resources"].get("CPU", 0.0),
            store_bytes=node["Resources"].get("object_store_memory", 0.0),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]
    return sorted(found, key=lambda node: (node.address, node.id))


def on_node(ray: ModuleType, node: Node) -> Any:
    """Where to schedule something: there, or nowhere."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id=node.id, soft=False)
