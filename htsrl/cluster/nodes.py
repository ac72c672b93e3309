"""Whether every node of a cluster would compute the same bits, asked before anything starts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any

from htsrl.cluster.connection import Node, on_node
from htsrl.errors import ConfigError
from htsrl.fingerprint import Fingerprint
from htsrl.numerics import fingerprint_of_a_new_process
from htsrl.placements.blueprint import Blueprint

LOOK_SECONDS = 180.0
"""For Ray to start a process on every node, and for that to import torch."""
Found = Mapping[str, Any]


def look(device: str, packages: Sequence[str]) -> bytes:
    """On a node: by what its workers would compute, as JSON."""
    found = {"fingerprint": asdict(fingerprint_of_a_new_process(device)), "packages": {}}
    for name in packages:
        try:
            found["packages"][name] = version(name)
        except PackageNotFoundError:
            found["packages"][name] = None
    return json.dumps(found).encode()


def check_nodes(ray: ModuleType, nodes: Sequence[Node], blueprint: Blueprint) -> None:
    device, packages = blueprint.config.placement.device, dict(blueprint.origins.packages or {})
    remote = ray.remote(look)
    asked = [
        remote.options(num_cpus=0, scheduling_strategy=on_node(ray, node)).remote(device, [*packages]) for node in nodes
    ]
    own = {"fingerprint": asdict(fingerprint_of_a_new_process(device)), "packages": packages}
    for node, reference in zip(nodes, asked, strict=True):
        try:
            found = json.loads(ray.get(reference, timeout=LOOK_SECONDS))
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ConfigError(
                f"node {node.address} cannot run htsrl: {reason}; install the same htsrl there as here"
            ) from error
        check_alike(node.address, own, found)


def check_alike(address: str, own: Found, found: Found) -> None:
    """ConfigError that names the node and what differs there."""
    for name, here in own["packages"].items():
        there = found["packages"].get(name)
        if there is None:
            raise ConfigError(f"node {address} lacks {name}, which the environment needs; install {name}=={here} there")
        if there != here:
            raise ConfigError(f"node {address} has {name} {there}, and {here} is here; install {name}=={here} there")
    ours, theirs = (Fingerprint.from_document(of["fingerprint"]) for of in (own, found))
    if differences := ours.differences(theirs):
        raise ConfigError(
            f"node {address} computes other bits than this machine (here / there):\n  "
            + "\n  ".join(differences)
            + "\nLeave it out of the cluster, or make it like this one"
        )
