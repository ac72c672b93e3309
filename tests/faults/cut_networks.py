"""Nodes of a Ray cluster in network namespaces of their own, whose cables can be pulled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]

BRIDGE, HEAD, PORT = "htsrl-bridge", "10.177.23.1", 6377
JOIN_SECONDS = 180.0
WITH_TOKEN = {"RAY_AUTH_MODE": "token"}
"""Without it, whoever joins a cluster at an address shows no token, even where there is one."""


def can_make_networks() -> bool:
    """Only the superuser of Linux can, and not in every container."""
    if sys.platform != "linux" or os.geteuid() or not shutil.which("ip"):
        return False
    made = subprocess.run(["ip", "link", "add", BRIDGE, "type", "bridge"], capture_output=True).returncode == 0
    return made and subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True).returncode == 0


class CutNetworks:
    """A head on this machine's end of a bridge, and nodes that reach it through a cable each."""

    def __init__(self, num_nodes: int, folder: Path) -> None:
        self._num_nodes = num_nodes
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return f"{HEAD}:{PORT}"

    def __enter__(self) -> CutNetworks:
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                for one in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
                    one.kill()
            process.wait()
        for node in range(self._num_nodes):
            inside = subprocess.run(["ip", "netns", "pids", _name(node)], capture_output=True, text=True).stdout
            for pid in inside.split():
                with suppress(psutil.NoSuchProcess):
                    psutil.Process(int(pid)).kill()
            subprocess.run(["ip", "netns", "del", _name(node)], capture_output=True)
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True)

    def cut(self, node: int) -> None:
        _ip("link", "set", f"{_name(node)}-c", "down")

    def mend(self, node: int) -> None:
        _ip("link", "set", f"{_name(node)}-c", "up")

    def _begin(self) -> None:
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{HEAD}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        self._ray([], "--head", "--port", str(PORT), "--num-cpus", "0", "--node-ip-address", HEAD)
        for node in range(self._num_nodes):
            own = f"10.177.23.{node + 2}"
            self._wire(_name(node), own)
            inside = ["ip", "netns", "exec", _name(node)]
            self._ray(inside, "--address", self.address, "--num-cpus", "1", "--node-ip-address", own)
            # One after another: at the same time, both would choose the same name for a socket.
            self._wait_for(node + 2)

    def _wire(self, name: str, address: str) -> None:
        _ip("netns", "add", name)
        _ip("link", "add", f"{name}-c", "type", "veth", "peer", "name", "cable", "netns", name)
        _ip("link", "set", f"{name}-c", "master", BRIDGE, "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
        for device in ("cable", "lo"):
            _ip("-n", name, "link", "set", device, "up")

    def _ray(self, prefix: list[str], *arguments: str) -> None:
        command = [*prefix, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *arguments]
        if "--head" in arguments:
            command += ["--include-dashboard", "false"]
        with (self._folder / f"ray-{len(self._processes)}").open("w") as log:
            environment = {
                **os.environ,
                "RAY_worker_niceness": "0",
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_AUTH_MODE": "token",
            }
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def _num_alive(self) -> int:
        script = (
            "import sys, ray; ray.init(sys.argv[1], log_to_driver=False); print(sum(n['Alive'] for n in ray.nodes()))"
        )
        asked = subprocess.run(
            [sys.executable, "-c", script, self.address],
            capture_output=True,
            text=True,
            timeout=JOIN_SECONDS,
            env={**os.environ, **WITH_TOKEN},
        )
        return int(asked.stdout.split()[-1]) if asked.returncode == 0 else 0

    def _wait_for(self, num_alive: int) -> None:
        deadline = time.monotonic() + JOIN_SECONDS
        while self._num_alive() < num_alive:
            logs = "\n".join(path.read_text()[-2000:] for path in sorted(self._folder.glob("ray-*")))
            assert time.monotonic() < deadline, f"the nodes have not joined:\n{logs}"
            time.sleep(1.0)


def _name(node: int) -> str:
    return f"htsrl-n{node}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
