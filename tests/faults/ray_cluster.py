"""A cluster of several raylets on this machine, in a process of its own: `python ray_cluster.py NUM_NODES`.

It prints the address, and the pid of every node's raylet; each line that it reads adds a node, and it ends with its
standard input.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

HEAD = {"num_cpus": 0, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args=HEAD)
    print(cluster.address, flush=True)
    for _ in range(int(sys.argv[1])):
        _add_node(cluster)
    for _ in sys.stdin:
        _add_node(cluster)
    cluster.shutdown()


def _add_node(cluster: Cluster) -> None:
    node = cluster.add_node(num_cpus=1)
    (raylet,) = node.all_processes["raylet"]
    print(raylet.process.pid, flush=True)


if __name__ == "__main__":
    main()
