"""Executors and actors on islands, the learner and its gradient workers here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

from htsrl.cluster.connection import Node, all_alive, connect, is_own, run_on
from htsrl.cluster.islands import Islands
from htsrl.cluster.nodes import check_nodes
from htsrl.cluster.plan import check_can_have_islands, with_islands
from htsrl.cluster.room import check_room, island_bytes
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.errors import ConfigError
from htsrl.fingerprint import ComparedNodes, Fingerprint
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.supervisor import Listeners, Supervisor

ROOM = 4
"""Parcels of each kind that a local Ray has room for: some are under way while others are read."""


def place_on_islands(blueprint: Blueprint, fingerprint: Fingerprint) -> Blueprint:
    """The blueprint of a run whose environments live on the nodes of a Ray, which is there afterwards."""
    check_can_have_islands(blueprint)
    placement, num_envs = blueprint.config.placement, blueprint.experiment.num_simulators
    versions_of_others = ((placement.nodes or 1) - 1) * island_bytes(blueprint, 0)
    ray = connect(placement.ray_address, ROOM * (island_bytes(blueprint, num_envs) + versions_of_others))
    alive = all_alive(ray)
    nodes = [node for node in alive if node.can_have_islands]
    if not nodes:
        raise ConfigError("no node of the Ray cluster has a core for an island; `ray status` tells what there is")
    count = placement.nodes or len(nodes)
    hosts = [nodes[place % len(nodes)] for place in range(count)]
    placed = with_islands(blueprint, [node.cpus / hosts.count(node) for node in hosts])
    here = ray.get_runtime_context().get_node_id()
    check_room(placed, hosts, driver=next(node for node in alive if node.id == here))
    return replace(placed, nodes=_compared(ray, nodes, blueprint, fingerprint))


def _compared(ray: ModuleType, nodes: Sequence[Node], blueprint: Blueprint, own: Fingerprint) -> ComparedNodes:
    placement = blueprint.config.placement
    if is_own(ray):  # this machine, and nobody can join it
        return ComparedNodes(own, placement.device, {node.id: () for node in nodes})
    return check_nodes(ray, nodes, own, placement.device, placement.allow_different_numerics)


def run_ray(blueprint: Blueprint, block: SharedArrays, listeners: Listeners) -> None:
    """Train to the end, reporting after every update; leaves no island behind."""
    with run_on(blueprint.config.placement.ray_address) as ray:
        islands = Islands(ray, blueprint, block, listeners)
        try:
            supervisor = Supervisor(blueprint, block, listeners, islands)
            try:
                islands.begin()
                supervisor.start()
                supervisor.watch()
            finally:
                supervisor.stop()
        finally:
            islands.end()
