"""MLServer with a champion and its shadow, in one process, metrics off.

What clients call is a model that asks the others through the server's own handlers, as in
`graph_mlserver`.
"""

from __future__ import annotations

import asyncio
import sys

from mlserver import MLServer, ModelSettings, Settings
from mlserver.settings import ModelParameters

from bench.servers.shadow_mlserver_models import Front
from bench.servers.shadow_parts import SHADOWED


async def main() -> None:
    """Serve until the process is ended."""
    file, port = sys.argv[1], int(sys.argv[3])
    settings = Settings(host="127.0.0.1", http_port=port, grpc_port=port + 1, parallel_workers=0)
    settings.metrics_endpoint, settings.debug = None, False
    server = MLServer(settings)
    Front.infer = server._data_plane.infer  # noqa: SLF001 (it offers no other way)
    Front.shadowed = sys.argv[2] == SHADOWED
    kinds = {"champion": "Model", "shadow": "Model", "front": "Front"}
    models = [
        ModelSettings(
            name=name,
            implementation=f"bench.servers.shadow_mlserver_models.{kind}",
            parameters=ModelParameters(uri=file),
        )
        for name, kind in kinds.items()
    ]
    await server.start(models)


if __name__ == "__main__":
    asyncio.run(main())
