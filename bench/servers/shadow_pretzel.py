"""Our server with a champion, and a shadow if there is to be one."""

from __future__ import annotations

import sys

import flour
from bench.servers.shadow_parts import SHADOWED, read


def main() -> None:
    """Serve until the process is ended."""
    from runtime import Runtime
    from runtime.http.server import Server
    from runtime.http.wire.settings import ServerSettings

    runtime = Runtime(result_bytes=0)  # the same rows come again and again
    for model in read(sys.argv[1]):
        flow = flour.outputs(probabilities=flour.from_sklearn(model)["probabilities"])
        runtime.register("front", flow, activate=False, background=False)
    runtime.route("front", "front@1", shadow="front@2" if sys.argv[2] == SHADOWED else None)
    Server(runtime, ServerSettings(port=int(sys.argv[3]))).serve_forever()


if __name__ == "__main__":
    main()
