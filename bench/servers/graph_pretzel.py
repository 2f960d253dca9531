"""Our server with the risk graph: three models and the graph of them, by name."""

from __future__ import annotations

import sys

import flour
from bench.servers.graph_parts import THRESHOLD, WEIGHTS, WIDTH, read


def main() -> None:
    """Serve the graph until the process is ended."""
    from runtime import Runtime
    from runtime.http.server import Server
    from runtime.http.wire.settings import ServerSettings

    runtime = Runtime(result_bytes=0)  # the same rows come again and again
    for name, part in read(sys.argv[1])._asdict().items():
        runtime.register(name, flour.from_sklearn(part), background=False)
    features = flour.model("features")(flour.vector("X", WIDTH))
    both = [flour.model(name)(features)["probabilities"][1] for name in ("linear", "trees")]
    score = WEIGHTS[0] * both[0] + WEIGHTS[1] * both[1]
    graph = flour.outputs(score=score, approve=score < THRESHOLD)
    runtime.register("decide", graph, background=False)
    Server(runtime, ServerSettings(port=int(sys.argv[2]))).serve_forever()


if __name__ == "__main__":
    main()
