"""Our server with plans from files."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.contestants.pretzel import Pretzel
from bench.workload import Saved


def main() -> None:
    """Serve every plan of a workload until the process is ended.

    A certificate and its key may come before the port.
    """
    folder, count, *files, port = sys.argv[1:]
    from runtime.http.server import Server
    from runtime.http.wire.settings import ServerSettings

    me, saved = Pretzel(), Saved(Path(folder), int(count))
    me.start()
    for pipeline in saved.pipelines():
        if not me.plan_file(pipeline).exists():
            me.prepare(pipeline, saved)
        me.load(pipeline, saved)
    certificate, key = files or (None, None)
    settings = ServerSettings(port=int(port), tls_cert=certificate, tls_key=key)
    Server(me.runtime, settings).serve_forever()


if __name__ == "__main__":
    main()
