"""A cluster of several raylets on this machine, in a process of its own.

It prints the address of its head, which has no cores. Each line that it reads, a JSON object of environment variables,
adds a node with one core, and it prints the pid of that one's raylet. It ends with its standard input.
"""

from __future__ import annotations

import json
import sys

from ray.cluster_utils import Cluster

HEAD = {"num_cpus": 0, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args=HEAD)
    print(cluster.address, flush=True)
    for line in sys.stdin:
        _add_node(cluster, json.loads(line))
    cluster.shutdown()


def _add_node(cluster: Cluster, variables: dict[str, str]) -> None:
    node = cluster.add_node(num_cpus=1, env_vars=variables)
    (raylet,) = node.all_processes["raylet"]
    print(raylet.process.pid, flush=True)


if __name__ == "__main__":
    main()
