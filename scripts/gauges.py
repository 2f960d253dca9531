"""Print the gauges of the code; `--check` fails where one is beyond its limit.

docs/contributing/gauges.md says what each line counts.
"""

from __future__ import annotations

import ast
import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from class_names import ambiguous
from module_graph import Rooms, circles, import_graph, parsed, rooms
from private_reaches import private_reaches
from request_path import request_path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("flour", "objectstore", "oven", "pretzel", "runtime", "scheduler")
#: What passes of scripts/test took, a line each: tests/suite_time.py writes it.
SUITE_TIMES = ".cache/pytest/suite-times"

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Bound(NamedTuple):
    """What a gauge may show at most: today, checked by continuous integration, and one day."""

    limit: float
    goal: float


#: A limit is what holds today, with little room: lower it when the figure has gone down.
BOUNDS = {
    "product: lines": Bound(136_200, 100_000),
    "circles of imports": Bound(0, 0),
    "largest circle: files": Bound(0, 0),
    "oven: rooms": Bound(11, 11),
    "oven: arrows between rooms": Bound(31, 24),
    "oven: circles of rooms": Bound(0, 0),
    "oven: floors": Bound(6, 6),
    "http: rooms": Bound(12, 12),
    "http: arrows between rooms": Bound(48, 48),
    "http: circles of rooms": Bound(0, 0),
    "http: floors": Bound(9, 9),
    "lines of a file: longest": Bound(600, 600),
    "lines of a function: median": Bound(6, 6),
    "lines of a function: longest": Bound(60, 60),
    "functions without annotations": Bound(0, 0),
    "class names with two meanings": Bound(0, 0),
    "Plan: public methods": Bound(12, 12),
    "parameters: bare Any": Bound(253, 100),
    "Runtime: public methods": Bound(20, 20),
    "tests: private reaches": Bound(0, 0),
    "request: files": Bound(10, 6),
    "request: rooms": Bound(3, 3),
    "request: most entries into a file": Bound(3, 2),
    "HTTP: files": Bound(9, 9),
    "HTTP: rooms": Bound(2, 2),
    "HTTP: most entries into a file": Bound(2, 2),
    "import: files": Bound(30, 24),
    "import: rooms": Bound(6, 6),
    "import: most entries into a file": Bound(62, 8),
    "tests: lines": Bound(105_050, 64_000),
    "last scripts/test: minutes": Bound(6, 6),
}


def measured(root: Path) -> dict[str, float]:
    """Return every gauge of the checkout at `root`, by its name."""
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    functions = [node for path in paths for node in functions_of(parsed(path))]
    return {
        **_of_files([path.read_text(encoding="utf-8").splitlines() for path in paths]),
        **_of_imports(root),
        **_of_functions(functions),
        "class names with two meanings": len(ambiguous(paths)),
        **_of_class(root / "oven/plans/plan.py", "Plan"),
        "tests: lines": sum(_lines(path) for path in (root / "tests").rglob("*.py")),
        **_of_runtime(root / "runtime/runtime.py"),
        "tests: private reaches": len(private_reaches(root, (*PACKAGES, "bench"))),
        **_of_suite(root / SUITE_TIMES),
    }


def functions_of(tree: ast.Module) -> Iterator[Function]:
    """Return every function of a file, methods and functions inside functions included."""
    return (each for each in ast.walk(tree) if isinstance(each, Function))


def public_methods(path: Path, name: str) -> float:
    """Return how many public methods and properties a class has; infinity if it inherits more."""
    (found,) = (
        node
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and node.name == name
    )
    methods = [node for node in found.body if isinstance(node, Function)]
    fields = [node for node in found.body if isinstance(node, ast.AnnAssign)]
    named = [each.name for each in methods]
    named += [each.target.id for each in fields if isinstance(each.target, ast.Name)]
    typed = [node for each in found.body if isinstance(each, ast.If) for node in each.body]
    given = [node.targets[0] for node in typed if isinstance(node, ast.Assign)]
    named += [each.id for each in given if isinstance(each, ast.Name)]
    public = [each for each in named if not each.startswith("_")]
    return float("inf") if found.bases else float(len(public))


def _of_files(files: list[list[str]]) -> dict[str, float]:
    return {
        "product: lines": sum(map(len, files)),
        "product: lines that are not blank": sum(
            bool(line.strip()) for each in files for line in each
        ),
        "product: files": len(files),
        **_lengths("lines of a file", [len(each) for each in files if each]),
    }


def _of_class(path: Path, name: str) -> dict[str, float]:
    """Return how many methods and properties of a class have names without an underscore."""
    body = parsed(path).body if path.exists() else []
    methods = {
        each.name
        for found in body
        if isinstance(found, ast.ClassDef) and found.name == name
        for each in found.body
        if isinstance(each, Function)
    }
    return {f"{name}: public methods": sum(not each.startswith("_") for each in methods)}


def _of_runtime(path: Path) -> dict[str, float]:
    count = public_methods(path, "Runtime") if path.exists() else 0
    return {"Runtime: public methods": count}


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _of_imports(root: Path) -> dict[str, float]:
    graph = import_graph(root, PACKAGES)
    tied = circles(graph)
    return {
        "circles of imports": len(tied),
        "largest circle: files": max(map(len, tied), default=0),
        **_of_rooms("oven", rooms(graph, "oven")),
        **_of_rooms("http", rooms(graph, "runtime.http")),
    }


def _of_rooms(name: str, found: Rooms) -> dict[str, float]:
    return {
        f"{name}: rooms": found.rooms,
        f"{name}: arrows between rooms": found.arrows,
        f"{name}: circles of rooms": len(found.circles),
        f"{name}: floors": found.floors,
    }


def _of_functions(functions: list[Function]) -> dict[str, float]:
    parameters = [each for node in functions for each in parameters_of(node)]
    loose = sum(
        isinstance(each.annotation, ast.Name) and each.annotation.id == "Any" for each in parameters
    )
    return {
        "functions": len(functions),
        **_lengths("lines of a function", [length_of(node) for node in functions]),
        "functions without annotations": sum(not is_annotated(node) for node in functions),
        "parameters": len(parameters),
        "parameters: bare Any": loose,
        "parameters: bare Any, in a hundred": round(100 * loose / max(1, len(parameters)), 1),
    }


def _lengths(what: str, values: list[int]) -> dict[str, float]:
    ranked = sorted(values) or [0]
    return {
        f"{what}: median": statistics.median(ranked),
        f"{what}: nine in ten at most": ranked[(len(ranked) - 1) * 9 // 10],
        f"{what}: longest": ranked[-1],
    }


def length_of(node: Function) -> int:
    """Return the lines of a function from `def` to its end, decorators left out."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def parameters_of(node: Function) -> list[ast.arg]:
    """Return the parameters of a function; `self` and `cls` of a method are none."""
    every = node.args
    named = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
    return [each for each in named if each is not None and each.arg not in {"self", "cls"}]


def is_annotated(node: Function) -> bool:
    """Return whether all parameters and the result of a function have types."""
    return node.returns is not None and all(each.annotation for each in parameters_of(node))


def _of_suite(path: Path) -> dict[str, float]:
    if not path.exists():
        return {}
    passes = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    whole = [each["seconds"] for each in passes if each.get("whole")]
    return {"last scripts/test: minutes": round(whole[-1] / 60, 1)} if whole else {}


def table(gauges: dict[str, float]) -> Iterator[str]:
    """Return the lines of the table: each gauge, what it shows, its limit and its goal."""
    yield f"{'gauge':40} {'now':>9} {'limit':>9} {'goal':>9}"
    for name, value in gauges.items():
        bound = BOUNDS.get(name)
        limit, goal = (_shown(bound.limit), _shown(bound.goal)) if bound else ("", "")
        yield f"{name:40} {_shown(value):>9} {limit:>9} {goal:>9}".rstrip()


def _shown(value: float) -> str:
    return "" if value == float("inf") else f"{value:,.10g}"


def beyond(gauges: dict[str, float]) -> list[str]:
    """Return a complaint for each gauge that shows more than its limit."""
    return [
        f"{name}: {_shown(gauges[name])}, at most {_shown(bound.limit)} "
        "(docs/contributing/gauges.md)"
        for name, bound in BOUNDS.items()
        if gauges.get(name, 0) > bound.limit
    ]


def main(arguments: Iterable[str]) -> int:
    """Print the table; with `--check`, return 1 where a gauge is beyond its limit."""
    gauges = measured(ROOT) | request_path()
    print(*table(gauges), sep="\n")
    complaints = beyond(gauges) if "--check" in arguments else []
    for complaint in complaints:
        print(f"scripts/gauges: {complaint}", file=sys.stderr)
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
