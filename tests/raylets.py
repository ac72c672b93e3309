"""Several raylets on this machine, as the nodes of a Ray cluster that a run joins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

END_SECONDS = 240.0
OTHER_NUMERICS = {"MKL_CBWR": "COMPATIBLE"}
"""Of a node: another mode of the library for matrices, as on a machine that somebody has set up otherwise."""


class RayCluster:
    """Several raylets on this machine, which a run joins."""

    def __init__(self, num_nodes: int) -> None:
        command = [sys.executable, str(Path(__file__).with_name("ray_cluster.py"))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.address = self._line()
        self.raylets: list[int] = []
        for _ in range(num_nodes):
            self.add_node()

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=END_SECONDS)

    def add_node(self, **variables: str) -> None:
        """With these in the environment of its processes."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(variables)}\n")
        self._process.stdin.flush()
        self.raylets.append(int(self._line()))

    def kill_node(self) -> None:
        os.kill(self.raylets.pop(0), signal.SIGKILL)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()
