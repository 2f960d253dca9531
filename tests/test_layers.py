"""Circles of imports, those for type checkers and those inside functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pytest

from tests.house import PACKAGES, ROOT, files, parsed, run_python

pytestmark = pytest.mark.once

#: So many files may know one another; more are one file in disguise.
LARGEST_CIRCLE = 6

Graph = Mapping[str, set[str]]


def imported() -> dict[str, set[str]]:
    """Return what each module of ours imports of ours, wherever the import stands."""
    paths = {_name(path.relative_to(ROOT).with_suffix("").parts): path for path in files(*PACKAGES)}
    return {
        name: {each for each in _targets(parsed(path), set(paths)) if each != name}
        for name, path in paths.items()
    }


def _name(parts: tuple[str, ...]) -> str:
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _targets(tree: ast.Module, known: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in known or node.module in known:
                    yield full if full in known else node.module


def reached(graph: Graph, start: str) -> set[str]:
    """Return every module that one leads to."""
    found: set[str] = set()
    stack = [start]
    while stack:
        new = graph[stack.pop()] - found
        found |= new
        stack.extend(new)
    return found


def circles(graph: Graph) -> list[set[str]]:
    """Return the sets of modules that lead to one another, the largest first."""
    leads = {name: reached(graph, name) for name in graph}
    found = {
        frozenset(other for other in leads[name] if name in leads[other])
        for name in graph
        if name in leads[name]
    }
    return sorted((set(each) for each in found), key=len, reverse=True)


def test_circles_are_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(graph) == [{"a", "b", "c"}, {"d", "e"}]


def test_no_large_circle_of_imports() -> None:
    large = [sorted(each) for each in circles(imported()) if len(each) > LARGEST_CIRCLE]
    assert large == []


def test_the_language_does_not_load_the_compiler() -> None:
    run_python(
        "import sys, flour\n"
        "flour.vector('x', 2).sum().reference([[1.0, 2.0]])\n"
        "assert 'oven' not in sys.modules\n"
    )
