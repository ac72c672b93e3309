"""Executors and actors on islands, the learner and its gradient workers here."""

from __future__ import annotations

from htsrl.cluster.connection import alive_nodes, connect
from htsrl.cluster.islands import Islands
from htsrl.cluster.nodes import check_nodes
from htsrl.cluster.plan import check_can_have_islands, with_islands
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.errors import ConfigError
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.supervisor import Listeners, Supervisor

ROOM = 4
"""Parcels of an interval that a local Ray has room for: some are under way while others are read."""


def place_on_islands(blueprint: Blueprint) -> Blueprint:
    """The blueprint of a run whose environments live on the nodes of a Ray, which is there afterwards."""
    check_can_have_islands(blueprint)
    placement, num_bytes = blueprint.config.placement, interval_bytes(blueprint)
    ray = connect(placement.ray_address, ROOM * num_bytes)
    nodes = alive_nodes(ray)
    if not nodes:
        raise ConfigError("no node of the Ray cluster has a core for an island; `ray status` tells what there is")
    room = min(node.store_bytes for node in nodes)
    if room < num_bytes / (placement.nodes or len(nodes)):
        raise ConfigError(
            f"a node's object store of {room / 2**20:,.0f} MiB has no room for an island's part of the "
            f"{num_bytes / 2**20:,.0f} MiB of an interval; use a shorter sync_interval, more nodes, or `ray start "
            "--object-store-memory`"
        )
    if placement.ray_address is not None:
        check_nodes(ray, nodes, blueprint)
    count = placement.nodes or len(nodes)
    shares = [nodes[place % len(nodes)] for place in range(count)]
    return with_islands(blueprint, [node.cpus / shares.count(node) for node in shares])


def interval_bytes(blueprint: Blueprint) -> int:
    """About what islands send of one interval, capsules aside."""
    spec = blueprint.trajectory
    return sum(array.num_bytes for array in spec.arrays()) // spec.num_storages


def run_ray(blueprint: Blueprint, block: SharedArrays, listeners: Listeners) -> None:
    """Train to the end, reporting after every update; leaves no island behind."""
    ray = connect(blueprint.config.placement.ray_address)
    islands = Islands(ray, blueprint, block, listeners.on_restart)
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
