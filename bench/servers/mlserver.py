"""MLServer with a scikit-learn model, in one process, metrics off."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mlserver import MLServer, ModelSettings, Settings
from mlserver.settings import ModelParameters

from bench.workload import Saved


async def main() -> None:
    """Serve every pipeline of a workload until the process is ended."""
    saved, port = Saved(Path(sys.argv[1]), int(sys.argv[2])), int(sys.argv[3])
    settings = Settings(
        host="127.0.0.1",
        http_port=port,
        grpc_port=port + 1,
        parallel_workers=0,
        metrics_endpoint=None,
        debug=False,
    )
    models = [
        ModelSettings(
            name=f"lin{pipeline.number}",
            implementation="bench.servers.mlserver_model.Pickled",
            parameters=ModelParameters(uri=str(pipeline.file("pickle"))),
        )
        for pipeline in saved.pipelines()
    ]
    await MLServer(settings).start(models)


if __name__ == "__main__":
    asyncio.run(main())
