"""A Ray cluster of two nodes on this machine's loopback interface; does what it is told, a word a line."""

from __future__ import annotations

import os
import sys

from ray._private.utils import write_ray_address
from ray.cluster_utils import Cluster

from tests.cluster import patience
from tests.free_ports import free_port

NODE = {"num_cpus": 4, "object_store_memory": 100_000_000, "node_ip_address": "127.0.0.1"}


def main() -> None:
    patience.take()
    # The server for clients forks while gRPC's threads run. What gRPC itself does at a fork leaves some of them stuck;
    # without that, none. Source: https://github.com/ray-project/ray/issues/63202
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    client = free_port()
    cluster = Cluster(
        initialize_head=True, head_node_args={"include_dashboard": False, "ray_client_server_port": client, **NODE}
    )
    try:
        second = cluster.add_node(**NODE)
        write_ray_address(
            cluster.address
        )  # as `ray start` does; another cluster on this machine would make two to find
        print(cluster.address, f"ray://127.0.0.1:{client}", flush=True)
        for word in map(str.strip, sys.stdin):
            if word == "remove":
                cluster.remove_node(second, allow_graceful=False)
            elif word == "add":
                second = cluster.add_node(**NODE)
            print(word, flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
