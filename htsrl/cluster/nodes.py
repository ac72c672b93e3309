"""Whether every node of a cluster would compute the same bits, asked before it has an island."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from htsrl.cluster.call import Call
from htsrl.cluster.connection import Node, on_node
from htsrl.errors import ConfigError
from htsrl.fingerprint import ComparedNodes, Fingerprint
from htsrl.numerics import fingerprint_of_a_new_process
from htsrl.source_hashes import source_hash

LOOK_SECONDS = 180.0
"""For Ray to start a process on a node, and for that to import torch."""
MISSING = "missing"
Tell = Callable[[str], None]


def look(device: str, in_half: bool, packages: Sequence[str], own_modules: Sequence[str]) -> bytes:
    """On a node: the fingerprint of its workers, as JSON."""
    found = replace(
        fingerprint_of_a_new_process(device, in_half),
        packages={name: _version(name) for name in packages},
        own_modules={name: _source_hash(name) for name in own_modules},
    )
    return json.dumps(asdict(found)).encode()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return MISSING


def _source_hash(module: str) -> str:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # a package around it is missing
        spec = None
    return source_hash(Path(spec.origin)) if spec and spec.origin else MISSING


def check_nodes(ray: ModuleType, nodes: Sequence[Node], own: Fingerprint, device: str, marks: bool) -> ComparedNodes:
    """ConfigError that names the node and what differs there, unless that `marks` the run."""
    asked = {node: _ask(ray, node, own, device) for node in nodes}
    differences = {}
    for node, reference in asked.items():
        try:
            differences[node.id] = differences_of(node.address, own, ray.get(reference, timeout=LOOK_SECONDS))
        except ray.exceptions.RayError as error:
            raise ConfigError(_cannot_run(node.address, error)) from error
        if differences[node.id] and not marks:
            raise ConfigError(
                f"{other_bits(node.address, differences[node.id])}\nLeave it out of the cluster, make it alike, "
                "or say --allow-different-numerics (allow_different_numerics=True), which marks the run for good"
            )
    return ComparedNodes(own, device, differences)


def differences_of(address: str, own: Fingerprint, found: bytes) -> tuple[str, ...]:
    """In words, here before there; ConfigError where something is missing without which nothing can run there."""
    theirs = Fingerprint.from_document(json.loads(found))
    for kind in ("packages", "own_modules"):
        there: Mapping[str, str] = getattr(theirs, kind)
        for name, here in (getattr(own, kind) or {}).items():
            if there[name] == MISSING:
                way_out = f"install {name}=={here} there" if kind == "packages" else "put its file on every node's path"
                raise ConfigError(f"node {address} lacks {name}, which the environment or the policy needs; {way_out}")
    return tuple(own.differences(theirs))


def other_bits(address: str, differences: Iterable[str]) -> str:
    return "\n  ".join([f"node {address} computes other bits than this machine (here / there):", *differences])


def _ask(ray: ModuleType, node: Node, own: Fingerprint, device: str) -> Any:
    remote = ray.remote(look).options(num_cpus=0, scheduling_strategy=on_node(ray, node))
    return remote.remote(device, own.bfloat16 is not None, [*(own.packages or {})], [*(own.own_modules or {})])


def _cannot_run(address: str, error: BaseException) -> str:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
    return f"node {address} cannot run htsrl: {reason}; install the same htsrl there as here"


class Admission:
    """Which of a cluster's nodes may have islands, those that join while a run continues among them."""

    def __init__(self, ray: ModuleType, compared: ComparedNodes, marks: bool, tell: Tell) -> None:
        self._ray = ray
        self._compared = compared
        self._marks = marks
        self._tell = tell
        self._differences = dict(compared.differences)
        self._looks: dict[str, Call] = {}
        self._refused: dict[str, str] = {}

    def admitted(self, nodes: Iterable[Node], ring: Callable[[], None]) -> list[Node]:
        """Of these nodes. One that is new is asked what it computes by, and the bell is rung once it has answered."""
        present = {node.id: node for node in nodes}
        self._looks = {node_id: call for node_id, call in self._looks.items() if node_id in present}
        for node in present.values():
            if node.id not in self._differences and node.id not in self._refused:
                self._look(node, ring)
        return [node for node in present.values() if node.id in self._differences]

    @property
    def is_looking(self) -> bool:
        return bool(self._looks)

    @property
    def refusals(self) -> Iterable[str]:
        """Of nodes that have joined, why they may have no island."""
        return self._refused.values()

    def differences_of(self, node: Node) -> tuple[str, ...]:
        """Of one that is admitted."""
        return self._differences[node.id]

    def _look(self, node: Node, ring: Callable[[], None]) -> None:
        own, device = self._compared.own, self._compared.device
        if node.id not in self._looks:
            self._looks[node.id] = Call(_ask(self._ray, node, own, device), ring, LOOK_SECONDS)
        try:
            if not self._looks[node.id].is_done:
                return
            found = differences_of(node.address, own, self._looks.pop(node.id).result())
        except ConfigError as error:
            self._refuse(node, str(error))
        except (TimeoutError, self._ray.exceptions.RayError) as error:
            self._refuse(node, _cannot_run(node.address, error))
        else:
            if found and not self._marks:
                self._refuse(node, other_bits(node.address, found))
            else:
                self._differences[node.id] = found

    def _refuse(self, node: Node, reason: str) -> None:
        self._looks.pop(node.id, None)
        self._refused[node.id] = reason
        self._tell(f"{reason}\nIt has joined the cluster, and has no island of this run")
