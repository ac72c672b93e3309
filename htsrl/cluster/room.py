"""Whether what islands send, and are sent, has room in the object stores of a Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from htsrl.cluster.connection import Node
from htsrl.errors import ConfigError
from htsrl.placements.blueprint import Blueprint


def rollout_bytes(blueprint: Blueprint, num_envs: int) -> int:
    """About what so many environments send of an interval: their columns, and the states that they save.

    A list of an episode's actions in the place of a state is no larger than the columns' own, but when an island is
    begun again in a long episode.
    """
    spec = blueprint.trajectory
    columns = sum(array.num_bytes for array in spec.arrays()) // spec.num_storages
    return columns * num_envs // spec.num_envs + blueprint.state_bytes * num_envs


def version_bytes(blueprint: Blueprint) -> int:
    """What acts of one version, as every island is sent it."""
    of_versions = [spec for spec in blueprint.block_specs() if spec.acting_rows]
    return sum(spec.num_bytes * spec.acting_rows // (spec.shape[0] * spec.shape[1]) for spec in of_versions)


def island_bytes(blueprint: Blueprint, num_envs: int) -> int:
    """Of the largest parcels that an island may have under way: with the first one come all versions that may act."""
    num_versions = (blueprint.schedule.max_lag or 0) + 1
    return rollout_bytes(blueprint, num_envs) + num_versions * version_bytes(blueprint)


def check_room(blueprint: Blueprint, hosts: Sequence[Node], driver: Node) -> None:
    """`hosts` of the blueprint's islands. All that they send and are sent is in the driver's store, too."""
    needs = Counter[Node]()
    for envs, host in zip(blueprint.islands, hosts, strict=True):
        needs[host] += island_bytes(blueprint, len(envs))
        if host != driver:
            needs[driver] += island_bytes(blueprint, len(envs))
    for node, needed in needs.items():
        if node.store_bytes < needed:
            raise ConfigError(
                f"the object store of node {node.address}, of {node.store_bytes / 2**20:,.0f} MiB, has no room for the "
                f"{needed / 2**20:,.0f} MiB that its islands, or the learner there, may send and be sent at once; use "
                "a shorter sync_interval, more nodes, or `ray start --object-store-memory`"
            )
