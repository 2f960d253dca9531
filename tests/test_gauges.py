"""The gauges: what they count on small trees, and that a figure beyond its limit fails."""

from __future__ import annotations

import ast
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import flour
from tests.house import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import gauges
import module_graph
import private_reaches
import request_path

Files = dict[str, str]


def planted(root: Path, files: Files) -> Path:
    """Write the files below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_an_import_is_the_module_that_it_names(tmp_path: Path) -> None:
    files = {
        "a/__init__.py": "",
        "a/one.py": "from a import two\nfrom a.two import name\nimport numpy\nfrom . import three",
        "a/two.py": "from a import name\ndef f():\n    import a.three",
        "a/three.py": "if TYPE_CHECKING:\n    from a import one",
    }
    assert module_graph.import_graph(planted(tmp_path, files), ["a"]) == {
        "a": set(),
        "a.one": {"a.two"},
        "a.two": {"a", "a.three"},
        "a.three": {"a.one"},
    }


@pytest.mark.parametrize(
    ("arrows", "circles", "floors"),
    [
        ({}, [], 0),
        ({"a": "b", "b": "c", "c": "", "d": "c"}, [], 3),
        ({"a": "b", "b": "a"}, ["ab"], 2),
        ({"a": "b", "b": "c", "c": "bd", "d": ""}, ["bc"], 4),
        ({"a": "b", "b": "a", "c": "ad", "d": "e", "e": "c"}, ["cde", "ab"], 5),
        ({"a": "bc", "b": "d", "c": "d", "d": "a"}, ["abcd"], 4),
    ],
)
def test_circles_and_floors(arrows: dict[str, str], circles: list[str], floors: int) -> None:
    graph = {name: set(others) for name, others in arrows.items()}
    assert ["".join(each) for each in module_graph.circles(graph)] == circles
    assert module_graph.floors(graph) == floors


def test_long_chains_are_followed() -> None:
    graph = {str(n): {str(n + 1)} for n in range(5000)} | {"5000": set()}
    assert module_graph.floors(graph) == 5001


def test_rooms_are_folders_and_the_files_beside_them() -> None:
    graph = {
        "a": {"a.low.x", "a.face"},
        "a.face": {"a.high"},
        "a.high": {"a.high.y"},
        "a.high.y": {"a.low.x", "b"},
        "a.low.x": {"a.low.z"},
        "a.low.z": set(),
        "b": {"a"},
    }
    found = module_graph.rooms(graph, "a")
    assert found == module_graph.Rooms(rooms=3, arrows=2, circles=[], floors=3)


def functions(text: str) -> list[gauges.Function]:
    return list(gauges.functions_of(ast.parse(text)))


def test_functions_are_measured() -> None:
    (outer, method, inner) = functions(
        "@property\ndef outer(a, *b, c=1, **d):\n    return a\n"
        "class K:\n    async def method(self, x: int) -> None:\n"
        "        def inner(y) -> int: ...\n        return\n"
    )
    assert [gauges.length_of(each) for each in (outer, method, inner)] == [2, 3, 1]
    assert [each.arg for each in gauges.parameters_of(outer)] == ["a", "c", "b", "d"]
    assert [each.arg for each in gauges.parameters_of(method)] == ["x"]
    assert [gauges.is_annotated(each) for each in (outer, method, inner)] == [False, True, False]


def test_a_tree_is_measured(tmp_path: Path) -> None:
    files = {
        "flour/__init__.py": "",
        "flour/one.py": "import oven.two\n\ndef f(a: Any, b: list[Any]) -> Any:\n    return a\n",
        "flour/two.py": "class A: ...\n",
        "oven/two.py": "import flour.one\nclass _A: ...\ndef g(self, c):\n    _x = c\n",
        "tests/flour/test_it.py": "from oven.two import _x\n",
        gauges.SUITE_TIMES: '{"seconds": 90.0}\n{"seconds": 120.0, "whole": true}\n'
        '{"seconds": 30.0, "whole": false}\n',
    }
    found = gauges.measured(planted(tmp_path, files))
    assert found["product: lines"] == 9
    assert found["product: lines that are not blank"] == 8
    assert found["class names with two meanings"] == 1
    assert found["circles of imports"] == 1
    assert found["largest circle: files"] == 2
    assert found["functions without annotations"] == 1
    assert found["parameters"] == 3
    assert found["parameters: bare Any"] == 1
    assert found["tests: private reaches"] == 1
    assert found["tests: lines"] == 1
    assert found["last scripts/test: minutes"] == 2.0


def test_a_figure_beyond_its_limit_is_a_complaint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "BOUNDS", {"x": gauges.Bound(3, 1), "y": gauges.Bound(0, 0)})
    assert gauges.beyond({"x": 3, "z": 9}) == []
    assert gauges.beyond({"x": 4}) == ["x: 4, at most 3 (docs/contributing/gauges.md)"]
    assert list(gauges.table({"x": 1234.5}))[1].split() == ["x", "1,234.5", "3", "1"]


@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_the_command_fails_only_when_asked_to_check(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gauges, "BOUNDS", {"lines of a file: longest": gauges.Bound(0, 0)})
    monkeypatch.setattr(gauges, "measured", lambda _: {"lines of a file: longest": 7})
    monkeypatch.setattr(gauges, "request_path", dict)
    assert gauges.main(arguments) == len(arguments)
    said = capsys.readouterr()
    assert "longest" in said.out
    assert bool(said.err) == bool(arguments)


def test_every_bound_is_of_a_gauge(tmp_path: Path) -> None:
    shown = {*gauges.measured(tmp_path), *request_path.request_path(), "last scripts/test: minutes"}
    assert set(gauges.BOUNDS) <= shown
    assert all(bound.goal <= bound.limit for bound in gauges.BOUNDS.values())


def test_a_call_enters_files_of_ours_one_after_the_other() -> None:
    found = request_path.entered(lambda: flour.scalar("a"))
    assert found[0] == "flour.language.sources"
    assert "flour.core.node" in found
    assert all(one != other for one, other in pairwise(found))
    assert request_path.entered(lambda: ast.parse("1")) == []


def test_rooms_are_folders_and_packages_without_any() -> None:
    names = (
        "flour",
        "flour.core.node",
        "oven.debug",
        "scheduler.inline",
        "scheduler",
        "runtime.http",
    )
    rooms = ["", "flour.core", "oven.debug", "scheduler", "scheduler", "runtime.http"]
    assert [*map(request_path.room_of, names)] == rooms
    found = dict(request_path.gauges("x", [["oven.plans.plan", "oven.run.run"] * 2, ["flour"]]))
    assert found == {"x: files": 2, "x: rooms": 2, "x: most entries into a file": 2}


REACHED = {
    "oven/plans/plan.py": "class Plan:\n    def f(self):\n        self._bound = 1\n_LIMIT = 3\n",
    "oven/run/run.py": "def _step(): ...\n",
    "flour/flow.py": "def _raw(): ...\n",
    "tests/oven/helper.py": "def _step(): ...\n",
}


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        ("tests/flour/test_a.py", "plan._bound + plan.bound", ["_bound"]),
        ("tests/flour/test_a.py", "from oven.plans.plan import _LIMIT", ["_LIMIT"]),
        ("tests/flour/test_a.py", "monkeypatch.setattr('oven.run.run._step', 1)", ["_step"]),
        ("tests/flour/test_a.py", "setattr(plan, '_bound', 1)", ["_bound"]),
        ("tests/test_a.py", "flow._raw", ["_raw"]),
        ("tests/flour/test_a.py", "flow._raw", []),
        ("tests/oven/test_a.py", "plan._bound; run._step", []),
        ("tests/oven/plans/test_a.py", "plan._bound; run._step", ["_step"]),
        ("tests/oven/rules/test_a.py", "plan._bound; run._step", []),
        ("tests/flour/test_a.py", "def _step(): ...\nmodule._step", []),
        ("tests/flour/test_a.py", "from tests.oven.helper import _step\n_step()", []),
        ("tests/flour/test_a.py", "row._fields; os._exit(0); '_bound'; self._bound", []),
    ],
)
def test_private_names_of_others_are_seen(
    tmp_path: Path, path: str, text: str, names: list[str]
) -> None:
    root = planted(tmp_path, {**REACHED, path: text})
    found = private_reaches.private_reaches(root, ["flour", "oven"])
    assert [(each.path.as_posix(), each.name) for each in found] == [(path, n) for n in names]
