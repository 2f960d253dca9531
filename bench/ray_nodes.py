"""Ray on several addresses of this machine's loopback device, with its state in Redis or not.

A head that keeps its state in Redis can be killed and started again, alone or with its node.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from bench.machine import ROOT

#: Not 127.0.0.1, which Ray replaces by another address of the machine.
HEAD, NODES = "127.0.0.2", ("127.0.0.3", "127.0.0.4", "127.0.0.5")
#: How long Ray's processes wait for a head that is gone: they end after 60 s by default.
_PATIENCE = {"RAY_gcs_rpc_server_reconnect_timeout_s": "600"}


class Redis(NamedTuple):
    """A running server."""

    address: str
    password: str


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens at."""
    with socket.create_server((host, 0)) as trial:
        return int(trial.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def redis_server(place: Path) -> Iterator[Redis | None]:
    """A server that keeps everything in memory; None where redis-server is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    port, password = free_port(), os.urandom(16).hex()
    place.mkdir(parents=True, exist_ok=True)
    settings = {"bind": "127.0.0.1", "port": port, "requirepass": password, "dir": place}
    (place / "redis.conf").write_text(
        "\n".join(f"{name} {value}" for name, value in settings.items())
        + '\nsave ""\nappendonly no\n'
    )
    process = subprocess.Popen([program, place / "redis.conf"], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 10.0
        while not _listens(port):
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError("redis-server does not start")
            time.sleep(0.02)
        yield Redis(f"127.0.0.1:{port}", password)
    finally:
        process.kill()
        process.wait()


class RayNodes:
    """A head and other nodes; this process is a driver on the first of those."""

    def __init__(self, redis: Redis | None, cpus: float, nodes: int = 2) -> None:
        import ray
        from ray.cluster_utils import Cluster

        os.environ.update(_PATIENCE)
        self.ray = ray
        self._node = {"num_cpus": cpus, "object_store_memory": 80 << 20}
        self._head = {"node_ip_address": HEAD, "include_dashboard": False}
        self._head |= self._node | {"gcs_server_port": free_port(HEAD)}
        if redis is not None:
            outside = {"external_addresses": [redis.address] * 2, "redis_password": redis.password}
            self._head |= outside
        self.cluster = Cluster(initialize_head=True, head_node_args=self._head)
        for address in NODES[:nodes]:
            self.add(address)
        variables = {"PYTHONPATH": str(ROOT), "PRETZEL_CACHE": os.environ.get("PRETZEL_CACHE", "")}
        ray.init(
            address=self.address,
            _node_ip_address=NODES[0],
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={"env_vars": variables},
        )

    @property
    def address(self) -> str:
        """Of the head; it stays the same."""
        return f"{HEAD}:{self._head['gcs_server_port']}"

    def add(self, address: str) -> Any:
        """Start a node; Ray gives up after 30 s, which a busy machine may need."""
        for _ in range(3):
            with suppress(Exception):  # Ray raises no other class
                return self.cluster.add_node(node_ip_address=address, **self._node)
        return self.cluster.add_node(node_ip_address=address, **self._node)

    def kill(self, node: Any) -> None:
        """Kill all processes of a node, which may be the head's."""
        self.cluster.remove_node(node, allow_graceful=False)

    def on_head(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function of a module in a process of the head's node."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        where = NodeAffinitySchedulingStrategy(self.cluster.head_node.node_id, soft=False)
        options = {"num_cpus": 0, "scheduling_strategy": where}
        self.ray.get(self.ray.remote(_called).options(**options).remote(function, arguments))

    def kill_gcs(self) -> None:
        """Kill the head's GCS, which knows the actors."""
        self.cluster.head_node.kill_gcs_server()

    def start_gcs(self) -> None:
        """Start it again, at its port."""
        self.cluster.head_node.start_gcs_server()

    def start_head(self) -> None:
        """Start the head's node again, after `kill`."""
        self.cluster.add_node(**self._head)

    def close(self) -> None:
        """End everything."""
        self.ray.shutdown()
        self.cluster.shutdown()
        for name in _PATIENCE:
            os.environ.pop(name, None)


def _called(function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    function(*arguments)  # what it returns may be of use there only
