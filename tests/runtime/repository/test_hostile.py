"""Folders made by people who mean no good, or by accident."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import joblib
import numpy as np
import pytest

from runtime import Runtime
from runtime.repository import Repository, RepositoryError
from runtime.repository.errors import UnsafePath
from runtime.repository.files import Folder, natural
from tests.runtime.repository.folders import WIDTH, save_plan


class Bomb:
    """Unpickling it is noticed."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (os.environ["PRETZEL_TEST_BOMB"],)


def states(folder: Path, runtime: Runtime, **facts: int) -> dict[str, tuple[str, str]]:
    repository = Repository(folder, runtime, **facts)  # type: ignore[arg-type]  # max_bytes only
    repository.load_all()
    repository.poll()
    return {line.name: (line.state, line.reason) for line in repository.index()}


def test_links_stay_inside(tmp_path: Path, runtime: Runtime) -> None:
    folder = tmp_path / "models"
    save_plan(tmp_path / "outside.pretzel", 1.0)
    save_plan(tmp_path / "out" / "1" / "m.pretzel", 1.0)
    save_plan(folder / "kept" / "data" / "m.pretzel", 3.0)
    (folder / "file.pretzel").symlink_to(tmp_path / "outside.pretzel")
    (folder / "place").symlink_to(tmp_path / "out")
    save_plan(folder / "versions" / "1" / "m.pretzel", 1.0)
    (folder / "versions" / "2").symlink_to(tmp_path / "out" / "1")
    (folder / "dead.pretzel").symlink_to(tmp_path / "nothing")
    (folder / "inside.pretzel").symlink_to(folder / "kept" / "data" / "m.pretzel")
    found = states(folder, runtime)
    assert "leads out" in found["versions"][1]
    assert found["inside"][0] == found["kept"][0] == "READY"
    assert runtime.predict("inside", np.zeros(WIDTH))["top"] == 3.0
    assert "leads out" in found["file"][1]
    assert "leads out" in found["place"][1]
    assert found["dead"][0] == "UNAVAILABLE"


def test_links_in_circles_end(tmp_path: Path, runtime: Runtime) -> None:
    save_plan(tmp_path / "a" / "1" / "m.pretzel", 1.0)
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    (tmp_path / "b").symlink_to(tmp_path / "b")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x").symlink_to(tmp_path / "deep")
    place = tmp_path
    for _ in range(40):
        place /= "n"
    place.mkdir(parents=True)
    assert states(tmp_path, runtime)["a"][0] == "READY"


def test_what_is_no_file(tmp_path: Path, runtime: Runtime) -> None:
    os.mkfifo(tmp_path / "pipe.pretzel")
    (tmp_path / "folder.pretzel").mkdir()
    (tmp_path / "m").mkdir()
    os.mkfifo(tmp_path / "m" / "model.txt")
    save_plan(tmp_path / "good.pretzel", 1.0)
    found = states(tmp_path, runtime)
    assert found["good"][0] == "READY"
    assert {name for name, (state, _) in found.items() if state == "READY"} == {"good"}
    with pytest.raises(UnsafePath, match="not a regular file"):  # a file when it was found
        Folder(tmp_path).read(tmp_path / "folder.pretzel")


def test_files_beyond_the_limit(tmp_path: Path, runtime: Runtime) -> None:
    save_plan(tmp_path / "good.pretzel", 1.0)
    for name in ("huge.pretzel", "huge.txt", "huge.ubj"):
        with (tmp_path / name.replace("huge", "huge" + name[-3:])).open("wb") as file:
            file.truncate(1 << 40)
    (tmp_path / "set").mkdir()
    with (tmp_path / "set" / "model-settings.json").open("wb") as file:
        file.truncate(1 << 30)
    found = states(tmp_path, runtime, max_bytes=1 << 20)
    assert found.pop("good")[0] == "READY"
    assert len(found) == 4
    assert all("too large" in reason for _, reason in found.values())


def test_names_that_are_none(tmp_path: Path, runtime: Runtime) -> None:
    save_plan(tmp_path / "good.pretzel", 1.0)
    raw = (tmp_path / "good.pretzel").read_bytes()
    names = (
        b"\xff\xfe.pretzel",
        b"a b.pretzel",
        b"a@b@c.pretzel",
        b"new\nline.pretzel",
        b"@.pretzel",
    )
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(raw)
    repository = Repository(tmp_path, runtime)
    events = repository.load_all()
    assert sorted(event.kind for event in events) == ["loaded", *["refused"] * len(names)]
    for event in events:
        f"{event.where} {event.reason} {event.name}".encode()  # can be written anywhere
    repository.index()


def test_pickles_are_not_read_unasked(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRETZEL_TEST_BOMB", str(tmp_path / "boom"))
    folder = tmp_path / "models"
    folder.mkdir()
    for ending in ("pkl", "joblib", "pickle"):
        joblib.dump(Bomb(), folder / f"a{ending}.{ending}")
    shutil.copy(folder / "apkl.pkl", folder / "hidden.pretzel")
    shutil.copy(folder / "apkl.pkl", folder / "hidden2.bst")
    found = states(folder, runtime)
    assert {state for state, _ in found.values()} == {"UNAVAILABLE"}
    assert not (tmp_path / "boom").exists()
    Repository(folder, runtime, trust_pickle=True).load_all()
    assert (tmp_path / "boom").exists(), "the bomb works, when it is asked for"


def test_any_bytes_are_refused_and_nothing_else_happens(tmp_path: Path, runtime: Runtime) -> None:
    rng = np.random.default_rng(3)
    save_plan(tmp_path / "good.pretzel", 1.0)
    heads = (b"", b"PRETZEL\n", b"tree\n", b'{"learner": {}}', b"{L", b"binf", b"\x08\x07")
    for number, head in enumerate(heads):
        for ending in ("pretzel", "txt", "json", "ubj", "model", "bst", "onnx"):
            name = f"{ending}{number}.{ending}"
            (tmp_path / name).write_bytes(head + rng.bytes(int(rng.integers(0, 300))))
    found = states(tmp_path, runtime)
    assert len(found) == len(heads) * 7 + 1
    assert [name for name, (state, _) in found.items() if state == "READY"] == ["good"]
    assert all(reason for name, (_, reason) in found.items() if name != "good")


def test_a_folder_that_is_not_there(tmp_path: Path, runtime: Runtime) -> None:
    with pytest.raises(RepositoryError, match="cannot be read"):
        Repository(tmp_path / "nowhere", runtime)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(RepositoryError, match="cannot be read"):
        Repository(tmp_path / "file", runtime)


def test_versions_are_in_the_order_people_count() -> None:
    names = ["v1.10", "10", "2", "v1.9", "1", "v1", "", "a"]
    assert sorted(names, key=natural) == ["1", "2", "10", "", "a", "v1", "v1.9", "v1.10"]
