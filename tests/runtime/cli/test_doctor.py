"""`pretzel doctor`, in installations that lack something."""

from __future__ import annotations

import socket
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from oven.compiler import cache, machine
from oven.explain import installation
from runtime.cli import doctoring
from tests.house import at_most
from tests.runtime.cli.conftest import Pretzel


def _found(pretzel: Pretzel, check: str, code: int = 0) -> tuple[str, str]:
    """The worst state, and the text, of a check."""
    ran = pretzel("doctor", "--json", "--port", 0)
    assert ran.code == code, ran.out
    named = [each for each in ran.data if each["check"] == check]
    worst = max((each["state"] for each in named), key=("good", "note", "bad").index)
    return worst, " ".join(f"{each['found']} {each['advice']}" for each in named)


def test_an_installation_that_works(pretzel: Pretzel) -> None:
    ran = pretzel("doctor", "--port", 0)
    assert ran.code == 0, ran.out
    assert "a plan" in ran.out
    assert "bad" not in {line.split()[0] for line in ran.out.splitlines()[1:] if line}


@pytest.mark.parametrize(
    ("check", "run", "place", "name", "value", "says"),
    [
        ("compiler", "_compiler", machine, "llvmlite", None, "interpreted"),
        ("entries", "_python", installation, "object_layout", lambda: None, "its objects differ"),
        ("packs", "_machine_code", cache, "at_hand", tuple, "first calls wait"),
        ("processor", "_processor", doctoring, "_cpu_share", lambda: 0.5, "may use 0.5"),
        ("open files", "_limits", doctoring, "_FILES", 1 << 40, "ulimit -n"),
    ],
)
def test_notes_say_what_is_missing(
    *,
    pretzel: Pretzel,
    monkeypatch: pytest.MonkeyPatch,
    check: str,
    run: str,
    place: object,
    name: str,
    value: object,
    says: str,
) -> None:
    monkeypatch.setattr(place, name, value)
    monkeypatch.setattr(doctoring, "CHECKS", [getattr(doctoring, run)])
    state, text = _found(pretzel, check)
    assert (state, says in text) == ("note", True), text


def test_wrong_answers_are_bad(pretzel: Pretzel, monkeypatch: pytest.MonkeyPatch) -> None:
    import oven

    monkeypatch.setattr(oven.Plan, "run", lambda *_: {"x": [8.0]})
    assert _found(pretzel, "compiler", 1) == (
        "bad",
        f"{machine.version()}, a plan answers wrongly: [8.0] ",
    )
    monkeypatch.setattr(oven, "bake", lambda _: 1 / 0)
    assert "ZeroDivisionError" in _found(pretzel, "compiler", 1)[1]


def test_a_cache_that_others_can_write_to(
    pretzel: Pretzel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path))
    state, text = _found(pretzel, "code cache")
    assert (state, "other users can write" in text) == ("note", True)


def test_a_cache_that_cannot_be_written(
    pretzel: Pretzel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the permissions, the user that these tests run as may know nothing."""
    monkeypatch.setattr(doctoring, "CHECKS", [doctoring._cache])
    monkeypatch.setenv("PRETZEL_CACHE", "/proc/none/code")
    state, text = _found(pretzel, "code cache")
    assert (state, "/proc/none/code cannot be written: No such" in text) == ("note", True), text
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path / "code"))
    with at_most(0):
        state, text = _found(pretzel, "code cache")
    assert (state, "cannot be written: File too large" in text) == ("note", True), text
    assert _found(pretzel, "code cache")[0] == "good"
    assert (tmp_path / "code").stat().st_mode & 0o077 == 0
    (tmp_path / "file").touch()
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path / "file"))
    assert "it is no folder" in _found(pretzel, "code cache")[1]


@pytest.mark.parametrize(
    ("versions", "state", "says", "code"),
    [
        ({"numpy": "1.25.2"}, "bad", "pip install 'numpy", 1),
        ({"numpy": "99.0"}, "bad", "numpy 99.0 is not of a tested version", 1),
        ({"numpy": None}, "bad", "numpy: not installed", 1),
        ({"numba": None}, "good", "llvmlite", 0),
        ({"uvloop": None}, "note", "uvloop: not installed for `pretzel serve`", 0),
    ],
)
def test_libraries(
    *,
    pretzel: Pretzel,
    monkeypatch: pytest.MonkeyPatch,
    versions: dict[str, str | None],
    state: str,
    says: str,
    code: int,
) -> None:
    known = {"numpy": "2.4.1", "numba": "0.68.1", "llvmlite": "0.50.0", "uvloop": "0.23.0"}

    def version(name: str) -> str:
        if found := {**known, **versions}.get(name):
            return found
        raise PackageNotFoundError(name)

    bounds = ("numpy<2.6,>=1.26", "numba>=0.60", "llvmlite>=0.43", "uvloop>=0.22; extra == 'serve'")
    wanted: list[Any] = [*bounds, "tomli>=2; python_version < '3.11'", "nose; extra == 'test'"]
    monkeypatch.setattr(doctoring, "requires", lambda _: wanted)
    monkeypatch.setattr(doctoring, "version", version)
    found, text = _found(pretzel, "libraries", code)
    assert (found, says in text) == (state, True), text


def test_a_port_that_is_taken(pretzel: Pretzel) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ran = pretzel("doctor", "--port", server.getsockname()[1])
    assert ran.code == 1
    assert "serve on another one" in ran.out
