"""Which module imports which, read from the sources: circles, rooms and floors of that graph.

Every import counts, whether it runs with the module, inside a function, or for type checkers only:
each one is a name that a reader of the module has to know.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

#: Names by module: what each one imports.
Graph = dict[str, set[str]]


class Rooms(NamedTuple):
    """The folders of one package, and the files beside them, seen as a graph."""

    rooms: int
    arrows: int
    circles: list[list[str]]
    floors: int


def import_graph(root: Path, packages: Iterable[str]) -> Graph:
    """Return what each module below `root` imports of `packages`, itself left out."""
    paths = dict(_modules(root, packages))
    return {name: _imported(name, path, paths) for name, path in paths.items()}


def _modules(root: Path, packages: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _imported(name: str, path: Path, known: Mapping[str, Path]) -> set[str]:
    return {each for node in ast.walk(parsed(path)) for each in _named(node, known)} - {name}


@functools.cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file, read once per process."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _named(node: ast.AST, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of a statement: `from package import name` means `package.name` if it is one."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    elif isinstance(node, ast.ImportFrom) and node.module in known:
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (each if each in known else str(node.module) for each in inner)


def components(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components, those that are imported before their importers."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    done: list[list[str]] = []
    for start in sorted(graph):
        if start not in numbers:
            _visit(start, graph, numbers, lowest, stack, done)
    return done


def _visit(
    start: str,
    graph: Graph,
    numbers: dict[str, int],
    lowest: dict[str, int],
    stack: list[str],
    done: list[list[str]],
) -> None:
    """Tarjan's algorithm from one module on, without recursion: chains of imports are long."""
    calls = [(start, _enter(start, graph, numbers, lowest, stack))]
    while calls:
        name, rest = calls[-1]
        following = next(rest, None)
        if following is None:
            calls.pop()
            if calls:
                parent = calls[-1][0]
                lowest[parent] = min(lowest[parent], lowest[name])
            if lowest[name] == numbers[name]:
                at = stack.index(name)
                done.append(sorted(stack[at:]))
                del stack[at:]
        elif following not in numbers:
            calls.append((following, _enter(following, graph, numbers, lowest, stack)))
        elif following in stack:
            lowest[name] = min(lowest[name], numbers[following])


def _enter(
    name: str, graph: Graph, numbers: dict[str, int], lowest: dict[str, int], stack: list[str]
) -> Iterator[str]:
    numbers[name] = lowest[name] = len(numbers)
    stack.append(name)
    return iter(sorted(graph[name]))


def circles(graph: Graph) -> list[list[str]]:
    """Return the modules that import one another, circle by circle, the largest first."""
    return sorted((each for each in components(graph) if len(each) > 1), key=len, reverse=True)


def floors(graph: Graph) -> int:
    """Return the number of nodes on the longest path; a circle counts as all of its nodes."""
    height: dict[str, int] = {}
    for component in components(graph):  # what is imported comes first
        below = {each for name in component for each in graph[name]} - set(component)
        height |= dict.fromkeys(
            component, len(component) + max((height[each] for each in below), default=0)
        )
    return max(height.values(), default=0)


def grouped(graph: Graph, group: Callable[[str], str | None]) -> Graph:
    """Return the graph of groups: an arrow where a member imports one of another group."""
    found: Graph = {}
    for name, imported in graph.items():
        if (own := group(name)) is not None:
            arrows = {group(each) for each in imported} - {own, None}
            found.setdefault(own, set()).update(each for each in arrows if each is not None)
    return found


def rooms(graph: Graph, package: str) -> Rooms:
    """Return the rooms of `package`: its folders, and each file beside them; its face is none."""

    def room(name: str) -> str | None:
        inner = name.removeprefix(f"{package}.")
        return None if inner == name else inner.split(".")[0]

    found = grouped(graph, room)
    arrows = sum(map(len, found.values()))
    return Rooms(len(found), arrows, circles(found), floors(found))
