"""Coroutines that graph.toml names: from modules that the operator allows by name, no others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import flour
from flour.core.errors import FlourError, PythonRefused
from runtime import Runtime
from runtime.cli import main
from runtime.cli.serving import arguments
from runtime.repository.repository import Repository
from runtime.workers.fleet import Fleet
from runtime.workers.options import WorkerOptions
from tests.runtime.workers.test_fleet import Line, joined

GRAPH = """
[inputs]
city = "category"

[nodes.size]
fetch = "{place}"
reads = ["city"]
gives = "number"

[nodes.double]
value = "size * 2"

[outputs]
double = "double"
size = "size"
"""
MODULE = """
import asyncio
from asyncio import create_subprocess_shell, sleep
from functools import partial

__all__ = ["blocks", "offered", "waits"]

async def load(city):
    return float(len(city))

class Store:
    async def __call__(self, city):
        return await load(city)

    @staticmethod
    async def load(city):
        return await load(city)

async def _add(more, city):
    return more + len(city)

store = Store()
offered = partial(_add, 0.0)
waits = sleep
blocks = len
"""
CITY = {"city": "Oslo"}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that nothing has imported."""
    name = f"shop_features_{abs(hash(tmp_path))}"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "code")
    yield name
    sys.modules.pop(name, None)


def written(folder: Path, place: str) -> Path:
    path = folder / "models" / "sizes" / "graph.toml"
    path.parent.mkdir(parents=True)
    path.write_text(GRAPH.format(place=place))
    return path


@pytest.mark.parametrize("function", ["load", "store", "Store.load", "offered"])
def test_an_allowed_module_is_imported(tmp_path: Path, module: str, function: str) -> None:
    path = written(tmp_path, f"{module}:{function}")
    with Runtime(executors=1, allow_python=[module]) as runtime:
        runtime.register("sizes", path, background=False)
        assert runtime.predict("sizes", CITY)["size"] == 4.0
    graph = flour.load_graph(path, allow_python=[module])
    flour.save_graph(graph, tmp_path / "saved.graph")
    assert flour.load_graph(tmp_path / "saved.graph", allow_python=[module]).digest == graph.digest


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("create_subprocess_shell", "not one of the module"),
        ("asyncio.create_subprocess_shell", "not one of the module"),
        ("asyncio.sleep", "not one of the module"),
        ("load.__call__", "not one of the module"),
        ("load.__class__", "not one of the module"),
        ("gone", "is not here"),
        ("blocks", "not written with async def"),
    ],
)
def test_only_what_the_module_has_is_found(
    tmp_path: Path, module: str, function: str, said: str
) -> None:
    """The author of a graph is not the operator: what a module imports is not offered by it."""
    path = written(tmp_path, f"{module}:{function}")
    with Runtime(executors=1, allow_python=[module]) as runtime:
        with pytest.raises(FlourError, match=said) as refused:
            runtime.register("sizes", path)
        assert str(refused.value.where).startswith("graph.toml:5")
        assert not runtime.endpoints


def test_modules_that_are_not_named_are_not_imported(tmp_path: Path, module: str) -> None:
    path = written(tmp_path, f"{module}:load")
    for allowed in ((), ["json"]):
        with Runtime(executors=1, allow_python=allowed) as runtime:
            with pytest.raises(PythonRefused, match="not allowed") as refused:
                runtime.register("sizes", path)
            assert f"--allow-python {module}" in str(refused.value)
    assert module not in sys.modules
    for make in (Runtime, WorkerOptions):
        with pytest.raises(FlourError, match="such an option"):
            make(allow_python=module)
    with pytest.raises(FlourError, match="list of modules"):
        Repository(tmp_path / "models", Fleet(), allow_python=module)


@pytest.mark.parametrize(
    "name", ["shop_features_gone", "json.gone", "gone.features", "json.tool.x"]
)
def test_a_module_that_is_not_here_is_refused_at_the_start(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "models").mkdir()
    makers = (
        lambda: Runtime(allow_python=["json", name]),
        lambda: Repository(tmp_path / "models", Fleet(), allow_python=[name]),
    )
    for make in makers:
        with pytest.raises(FlourError, match="no such module") as refused:
            make()
        assert f"allow_python={name}" in str(refused.value)
    for workers in "12":
        command = ["serve", str(tmp_path / "models"), "--port", "0", "--workers", workers]
        assert main([*command, "--allow-python", name])
        assert f"allow_python={name}" in capsys.readouterr().err


@pytest.mark.parametrize("apart", [False, True])
def test_a_folder_serves_a_graph_with_coroutines(
    tmp_path: Path,
    module: str,
    apart: bool,  # noqa: FBT001 (a case)
) -> None:
    written(tmp_path, f"{module}:load")
    folder = tmp_path / "models"
    with Runtime(executors=1) as without, Repository(folder, without, apart=apart) as repository:
        (event,) = repository.load_all()
        assert event.kind == "refused"
        assert f"{module}:load" in event.reason
        assert module not in sys.modules
    fleet, allowed = Fleet(), [module]
    with (
        Runtime(executors=1, allow_python=allowed) as runtime,
        Repository(folder, fleet, apart=apart, allow_python=allowed) as repository,
    ):
        assert [event.kind for event in repository.load_all()] == ["loaded"]
        assert apart is (module not in sys.modules), "a supervisor imports nothing"
        joined(fleet, Line(runtime))
        assert runtime.predict("sizes", CITY)["size"] == 4.0


def test_options_pass_modules_on() -> None:
    options = WorkerOptions(allow_python=("shop.features",))
    assert list(WorkerOptions.of_json(options.to_json()).allow_python) == ["shop.features"]
    assert "allow_python" not in WorkerOptions().to_json(), "a former release does not know it"


def test_the_command_takes_modules() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    arguments(parser)
    given = parser.parse_args(["models", "--allow-python", "a", "--allow-python", "b.c"])
    assert given.allow_python == ["a", "b.c"]


@pytest.mark.parametrize("command", ["predict", "inspect", "explain"])
def test_commands_take_the_modules_that_they_may_import(
    tmp_path: Path, module: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path, f"{module}:load").parent
    (tmp_path / "rows.csv").write_text("city\nOslo\nGraz\nParis\n")
    asked = [command, str(folder), *([str(tmp_path / "rows.csv")] if command == "predict" else [])]
    assert main(asked) == 1
    assert f"--allow-python {module}" in capsys.readouterr().err
    assert module not in sys.modules
    assert main([*asked, "--allow-python", module]) == 0
    out = capsys.readouterr().out
    if command == "predict":
        assert out.split() == ["double,size", "8.0,4.0", "8.0,4.0", "10.0,5.0"]
    assert "size" in out
