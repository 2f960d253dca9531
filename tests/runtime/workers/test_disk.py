"""A disk without room: what is served goes on, what is new is refused, and comes when there is."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import oven
from tests.house import ended, until
from tests.runtime.plans import shift_flow
from tests.runtime.repository.folders import age, save_plan
from tests.runtime.workers.house import ROW, serving


def children(process: int) -> list[int]:
    """The processes that it has started, by any of its threads."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    return [int(each) for path in found for each in path.read_text(encoding="ascii").split()]


def test_a_full_disk(tmp_path: Path) -> None:
    """No file of the server's may be longer than so many bytes, which is how a full disk looks."""
    models = tmp_path / "models"
    save_plan(models / "a.pretzel", 1.0)
    size = (models / "a.pretzel").stat().st_size
    with serving(models, 2, "--poll", "0.05", TMPDIR=str(tmp_path)) as served:
        before = served.workers()
        processes = [*children(served.process.pid), served.process.pid]
        assert set(processes) > set(before.values()), "the process that prepares models is another"
        for process in processes:
            resource.prlimit(process, resource.RLIMIT_FSIZE, (size // 2, resource.RLIM_INFINITY))
        save_plan(models / "a.pretzel", 2.0)
        age(models / "a.pretzel")
        oven.bake(shift_flow(5.0)).save(models / "new.pretzel", durable=False)
        age(models / "new.pretzel")
        until(lambda: {e["name"] for e in served.of("refused")} >= {"a", "new"}, "not refused")
        assert {served.ask("/predict/a", ROW)[1]["top"] for _ in range(8)} == {1.0}
        assert served.ask("/predict/new", ROW)[0] == 404
        assert served.ask("/v2/repository/models/new/load", {})[0] == 400
        assert served.workers() == before
        for process in processes:
            resource.prlimit(process, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert served.ask("/v2/repository/models/new/load", {})[0] == 200
        assert served.ask("/v2/repository/models/a/load", {})[0] == 200
        assert {served.ask("/predict/a", ROW)[1]["top"] for _ in range(8)} == {2.0}
        assert {served.ask("/predict/new", ROW)[1]["top"] for _ in range(8)} == {5.0}


def test_no_worker_comes_up(tmp_path: Path) -> None:
    """A store that cannot be opened ends the command, with the reason, and leaves nobody behind."""
    save_plan(tmp_path / "models" / "a.pretzel", 1.0)
    (tmp_path / "store").write_text("no directory", encoding="utf-8")
    given = ("--port", "0", "--workers", "2", "--store", tmp_path / "store")
    command = (sys.executable, "-m", "runtime", "serve", tmp_path / "models")
    done = ended(*command, *given, timeout=180)
    assert done.returncode == 1, done.stderr
    assert "no worker comes up" in done.stderr
    assert "ended: " in done.stderr
