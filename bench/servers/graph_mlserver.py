"""MLServer with the risk graph, in one process, metrics off.

MLServer itself does not compose models: what clients call is a model that asks the others through
the server's own handlers, as a request of a client's would go, but for the network.
"""

from __future__ import annotations

import asyncio
import sys

from mlserver import MLServer, ModelSettings, Settings
from mlserver.settings import ModelParameters

from bench.servers.graph_mlserver_models import Decide


async def main() -> None:
    """Serve the graph until the process is ended."""
    file, port = sys.argv[1], int(sys.argv[2])
    server = MLServer(
        Settings(
            host="127.0.0.1",
            http_port=port,
            grpc_port=port + 1,
            parallel_workers=0,
            metrics_endpoint=None,
            debug=False,
        )
    )
    Decide.infer = server._data_plane.infer  # noqa: SLF001 (it offers no other way)
    kinds = {"features": "Step", "linear": "Step", "trees": "Step", "decide": "Decide"}
    models = [
        ModelSettings(
            name=name,
            implementation=f"bench.servers.graph_mlserver_models.{kind}",
            parameters=ModelParameters(uri=file),
        )
        for name, kind in kinds.items()
    ]
    await server.start(models)


if __name__ == "__main__":
    asyncio.run(main())
