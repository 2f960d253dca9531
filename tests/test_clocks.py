"""Durations are of a clock that only goes forward; the clock on the wall is for people."""

from __future__ import annotations

import ast
import time
from itertools import count

import pytest

from runtime import Runtime
from runtime.http import Server, ServerSettings
from tests.house import PACKAGES, ROOT, files, parsed
from tests.runtime.http.client import Client
from tests.runtime.plans import shift

FILES = "the age of a file, whose times are of the wall, and may be of another process"
HISTORY = "when a person changed something, for people"
SHOWN = "a time that is shown, logged or exported, and compared with nothing of ours"
NEWER = "which of two is newer, also after a restart; nothing waits for it"

#: Where the clock on the wall is read, and why.
REASONS = {
    "oven/compiler/cache.py": FILES,
    "objectstore/filestore.py": FILES,
    "runtime/repository/repository.py": FILES,
    "runtime/repository/staging.py": FILES,
    "runtime/provenance/log.py": FILES,
    "runtime/repository/route_files.py": HISTORY,
    "runtime/workers/routes.py": HISTORY,
    "runtime/workers/judging.py": HISTORY,
    "runtime/http/access_log.py": SHOWN,
    "runtime/http/page.py": SHOWN,
    "runtime/http/tracing.py": SHOWN,
    "runtime/http/metrics_process.py": SHOWN,
    "runtime/provenance/keeping.py": SHOWN,
    "runtime/repository/object_storage.py": NEWER,
    "runtime/routing/comparison.py": NEWER,
    "runtime/cluster/serving/homes.py": NEWER,
}
_WALL = {"time.time", "time.time_ns", "datetime.now", "datetime.datetime.now", "datetime.utcnow"}


def test_only_some_files_look_at_the_wall() -> None:
    found = set()
    for path in files(*PACKAGES):
        text = path.read_text(encoding="utf-8")
        if "time" not in text or not ("time()" in text or "_ns(" in text or "now(" in text):
            continue
        tree = parsed(path)
        names = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "time"
            for alias in node.names
            if alias.name in {"time", "time_ns"}
        }
        called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        if any(ast.unparse(each) in _WALL | names for each in called if not _is_call(each)):
            found.add(path.relative_to(ROOT).as_posix())
    assert found == REASONS.keys()


def _is_call(node: ast.expr) -> bool:
    return not isinstance(node, ast.Name | ast.Attribute)


@pytest.mark.parametrize("jump", [86_400.0 * 2, -86_400.0 * 2, 1e9])
def test_limits_of_clients_do_not_follow_the_wall(
    jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumps, wall, wall_ns = count(), time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: wall() + next(jumps) * jump)
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + next(jumps) * int(jump * 1e9))

    def statuses(bodies: list[bytes], **settings: float) -> list[int]:
        with Server(runtime, ServerSettings(port=0, **settings)) as server:  # type: ignore[arg-type]
            client = Client(server.port)
            return [client.post("/predict/m", each).status for each in bodies]

    with Runtime(executors=1) as runtime:
        runtime.register("m", shift(1.0), background=False)
        same, new = b"[0,1,2,3]", b"[0,1,2,4]"
        rates = {"anonymous_rate": 0.01, "rate_burst": 300.0}
        assert statuses([same] * 5, **rates) == [200] * 3 + [429] * 2
        assert statuses([same, same, new, new], new_bytes_a_day=9) == [200, 200, 429, 429]
        assert statuses([same] * 5, idle_seconds=60.0, cache_bytes=1 << 16) == [200] * 5
