"""Our server with plans from files."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.contestants.pretzel import Pretzel
from bench.workload import Saved


def main() -> None:
    """Serve every plan of a workload until the process is ended."""
    folder, count, port = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    from runtime.http.server import Server
    from runtime.http.wire.settings import ServerSettings

    me, saved = Pretzel(), Saved(folder, count)
    me.start()
    for pipeline in saved.pipelines():
        me.prepare(pipeline, saved)
        me.load(pipeline, saved)
    Server(me.runtime, ServerSettings(port=port)).serve_forever()


if __name__ == "__main__":
    main()
