"""Starts Ray and its proxy, bound to this machine."""

from __future__ import annotations

import ray
from ray import serve

from bench.servers import SCRATCH


def start(port: int) -> None:
    """Start them; the proxy listens on this port."""
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 << 20,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(SCRATCH / "ray"),
    )
    serve.start(http_options={"host": "127.0.0.1", "port": port})
