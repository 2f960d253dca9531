"""Folders of models on fsspec's own file systems: in memory, in files, and over HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from runtime import Runtime
from runtime.cluster.serving import ClusterClient, Scale
from runtime.cluster.serving.state import ClusterState
from runtime.repository import Repository
from runtime.repository.errors import NoFolder, RepositoryError
from runtime.repository.object_storage import RemotePlans
from tests.house import until
from tests.runtime.cluster.clusters import ROW, Asking, cluster
from tests.runtime.repository.folders import age, save_plan

pytestmark = pytest.mark.integrations
fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def bucket() -> Iterator[Any]:
    """A folder of its own in fsspec's memory."""
    files = fsspec.filesystem("memory")
    root = f"/bucket-{uuid4().hex}"
    files.makedirs(root)
    yield Bucket(files, root)
    files.rm(root, recursive=True)


class Bucket:
    """Objects that are put and removed."""

    def __init__(self, files: Any, root: str) -> None:
        self.files, self.root, self.url = files, root, f"memory:/{root}"

    def put(self, tmp_path: Path, name: str, offset: float) -> None:
        path = tmp_path / "made" / "plan.pretzel"
        save_plan(path, offset)
        self.files.pipe_file(f"{self.root}/{name}", path.read_bytes())

    def remove(self, name: str) -> None:
        self.files.rm(f"{self.root}/{name}")


def top(runtime: Runtime, name: str) -> Any:
    return runtime.predict(name, ROW)["top"]


def test_a_folder_in_a_bucket_is_followed(bucket: Bucket, tmp_path: Path) -> None:
    for name, offset in (("a.pretzel", 1.0), ("b/2/b.pretzel", 2.0), ("_c.pretzel", 3.0)):
        bucket.put(tmp_path, name, offset)
    bucket.files.pipe_file(f"{bucket.root}/broken.pretzel", b"no plan")
    with Runtime() as runtime, Repository(bucket.url, runtime, staging=tmp_path / "s") as folder:
        assert {(e.kind, e.name) for e in folder.load_all()} == {
            *(("loaded", "a"), ("loaded", "b"), ("refused", "broken"))
        }
        assert (top(runtime, "a"), top(runtime, "b")) == (1.0, 2.0)
        assert folder.load_all() == ()
        bucket.put(tmp_path, "a.pretzel", 5.0)  # of the same size
        assert [event.kind for event in folder.load_all()] == ["replaced"]
        assert top(runtime, "a") == 5.0
        bucket.remove("b/2/b.pretzel")
        assert [(e.kind, e.name) for e in folder.load_all()] == [("unloaded", "b")]
        assert not (folder.folder.root / "b").exists()


def test_a_watched_bucket(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(tmp_path, "a.pretzel", 1.0)
    with Runtime() as runtime, Repository(bucket.url, runtime, quiet_seconds=0.1) as folder:
        folder.load_all()
        folder.watch(0.05)
        bucket.put(tmp_path, "a.pretzel", 2.0)
        until(lambda: top(runtime, "a") == 2.0)


def test_only_what_has_changed_is_fetched_also_by_the_next_process(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        bucket.put(tmp_path, f"m{number}.pretzel", float(number))
    fetched: list[str] = []
    plain = type(bucket.files).get_file

    def noted(self: Any, remote: str, local: str, **options: Any) -> Any:
        fetched.append(remote.rpartition("/")[2])
        return plain(self, remote, local, **options)

    monkeypatch.setattr(type(bucket.files), "get_file", noted)
    with Runtime() as runtime, Repository(bucket.url, runtime, staging=tmp_path / "s") as folder:
        folder.load_all()
    assert len(fetched) == 5
    bucket.put(tmp_path, "m3.pretzel", 30.0)
    with Runtime() as runtime, Repository(bucket.url, runtime, staging=tmp_path / "s") as folder:
        folder.load_all()
        assert (top(runtime, "m3"), top(runtime, "m4")) == (30.0, 4.0)
    assert fetched[5:] == ["m3.pretzel"]


def test_an_object_that_cannot_be_fetched_keeps_its_version(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put(tmp_path, "a.pretzel", 1.0)
    with Runtime() as runtime, Repository(bucket.url, runtime) as folder:
        folder.load_all()
        bucket.put(tmp_path, "a.pretzel", 2.0)
        bucket.put(tmp_path, "b.pretzel", 3.0)
        plain = type(bucket.files).get_file

        def refused(self: Any, remote: str, local: str, **options: Any) -> Any:
            if remote.endswith("a.pretzel"):
                raise PermissionError("no access to this object")
            return plain(self, remote, local, **options)

        with monkeypatch.context() as patched:
            patched.setattr(type(bucket.files), "get_file", refused)
            folder.load_all()
        assert (top(runtime, "a"), top(runtime, "b")) == (1.0, 3.0)
        folder.load_all()
        assert top(runtime, "a") == 2.0


def test_a_bucket_that_is_gone_keeps_all_models(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(tmp_path, "a.pretzel", 1.0)
    with Runtime() as runtime, Repository(bucket.url, runtime) as folder:
        folder.load_all()
        bucket.files.mv(bucket.root, f"{bucket.root}-away", recursive=True)
        try:
            with pytest.raises(NoFolder, match="memory://"):
                folder.poll()
            assert top(runtime, "a") == 1.0
        finally:
            bucket.files.mv(f"{bucket.root}-away", bucket.root, recursive=True)
        assert folder.load_all() == ()


@pytest.mark.parametrize("url", ["strange://models", "memory://nothing-is-here"])
def test_what_cannot_be_read_is_told(url: str) -> None:
    with Runtime() as runtime, pytest.raises(NoFolder, match=url):
        Repository(url, runtime).load_all()


def test_names_that_lead_elsewhere_are_left_out(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put(tmp_path, "a.pretzel", 1.0)
    bucket.files.store[f"{bucket.root}/../../b.pretzel"] = bucket.files.store[
        f"{bucket.root}/a.pretzel"
    ]
    try:
        with (
            Runtime() as runtime,
            Repository(bucket.url, runtime, staging=tmp_path / "s") as folder,
        ):
            assert [event.name for event in folder.load_all()] == ["a"]
            assert not list(tmp_path.rglob("b.pretzel"))
    finally:
        del bucket.files.store[f"{bucket.root}/../../b.pretzel"]


@contextmanager
def over_http(folder: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_folder_over_http(tmp_path: Path) -> None:
    models = tmp_path / "models"
    for name, offset in (("a", 1.0), ("b", 2.0)):
        save_plan(models / f"{name}.pretzel", offset)
        age(models / f"{name}.pretzel")
    with over_http(models) as url, Runtime() as runtime, Repository(url, runtime) as folder:
        assert [event.kind for event in folder.load_all()] == ["loaded"] * 2
        assert folder.load_all() == ()
        save_plan(models / "a.pretzel", 7.0)
        assert [(event.kind, event.name) for event in folder.load_all()] == [("replaced", "a")]
        assert (top(runtime, "a"), top(runtime, "b")) == (7.0, 2.0)


def test_replicas_that_share_no_directory_fetch_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, machine, plans = (tmp_path / name for name in ("models", "machine", "bucket"))
    machine.mkdir()
    save_plan(models / "a.pretzel", 1.0)
    age(models / "a.pretzel")
    monkeypatch.setenv("TMPDIR", str(machine))  # of the replicas, which are started later
    with (
        cluster(
            tmp_path, f"file://{models}", scale=Scale(2, 2), poll=0.0, plans=f"file://{plans}"
        ) as controller,
        ClusterClient(controller.front.url) as client,
    ):
        controller.wait_ready()
        with Asking(client).on() as asking:
            until(lambda: len(asking.answers) > 20)
            save_plan(models / "a.pretzel", 2.0)
            assert controller.sync() == ["replaced a@1"]
            acknowledged = time.monotonic()
            until(lambda: asking.after(acknowledged))
        fetched = {each.name for each in (machine / "pretzel-plans-worker").glob("*.pretzel")}
        assert fetched == {each.name for each in plans.glob("*.pretzel")}
        assert len(fetched) == 2
        controller.unload("a")
        # Another controller, on a machine that sees only the storage, unloads it, too.
        there = RemotePlans(f"file://{plans}", tmp_path / "elsewhere")
        state = json.loads(there.read("cluster.json"))
        assert (state["withdrawn"], state["wanted"], len(state["answering"])) == (["a"], 2, 2)
        seen = ClusterState(tmp_path / "nowhere" / "cluster.json", there)
        assert all(seen.allows(int(number), key) for number, key in state["answering"].items())
    assert asking.failed == []
    assert asking.after(acknowledged) == {(200, 2.0)}


def test_a_plan_that_is_gone_from_storage_is_told(tmp_path: Path) -> None:
    plans = RemotePlans(f"file://{tmp_path}/bucket", tmp_path / "here")
    path = tmp_path / "one.pretzel"
    path.write_bytes(b"content")
    plans.put(path)
    assert plans.get("/of/another/machine/one.pretzel").read_bytes() == b"content"
    with pytest.raises(RepositoryError, match=r"bucket/two\.pretzel"):
        plans.get("/of/another/machine/two.pretzel")
