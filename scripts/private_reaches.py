"""Where tests use private names of a package, or of a room of it, that they do not test.

A name with one leading underscore belongs to the folder that defines it. Tests in `tests/oven` may
use those of `oven`: they change with it. In `tests/runtime` the same name ties the tests of one
package to the insides of another one, so that neither can be changed alone. Where tests have a
folder for a room, as `tests/runtime/http` has, they may use the names of that room only.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from module_graph import parsed

#: Functions that are given an attribute's name as text.
BY_NAME = {"setattr", "getattr", "hasattr", "delattr", "attrgetter"}
#: Public by the documentation of `collections.namedtuple`, in spite of their names.
NAMED_TUPLE = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}


class Reach(NamedTuple):
    """One use: where it is, the name, and the folders that define it."""

    path: Path
    line: int
    name: str
    folders: frozenset[str]

    def __str__(self) -> str:
        """The place, the name, and whose it is."""
        return f"{self.path}:{self.line} uses {self.name} of {' or '.join(sorted(self.folders))}"


def private_reaches(root: Path, packages: Iterable[str]) -> list[Reach]:
    """Return each use in `root / tests` of a private name that only other folders define."""
    owners = _owners(root, packages)
    return [
        Reach(path.relative_to(root), line, name, frozenset(owners[name]))
        for path in sorted((root / "tests").rglob("*.py"))
        for line, name in sorted(_uses(root, path))
        if name in owners and not _among(owners[name], _tested(root, path))
    ]


def _owners(root: Path, packages: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for package in packages:
        for path in (root / package).rglob("*.py"):
            folder = path.parent.relative_to(root).as_posix()
            for name in _defined(path):
                found.setdefault(name, set()).add(folder)
    return found


def _tested(root: Path, path: Path) -> str:
    """Return the folder that a test is about: the deepest with the name of its own."""
    parts = path.relative_to(root / "tests").parts[:-1]
    mirrored = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((each for each in mirrored if (root / each).is_dir()), "none")


def _among(folders: Iterable[str], tested: str) -> bool:
    return any(each == tested or each.startswith(tested + "/") for each in folders)


@functools.cache
def _defined(path: Path) -> frozenset[str]:
    """Private functions, classes, variables and attributes of `self` in a file."""
    return frozenset(filter(is_private, _bound(parsed(path))))


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and _of_itself(node):
            yield node.attr


def _uses(root: Path, path: Path) -> Iterator[tuple[int, str]]:
    """The private names in a file of tests that neither it nor the tests it imports define."""
    tree = parsed(path)
    helpers = [each for each in _helpers(root, tree) if each.is_file()]
    own = frozenset[str]().union(*map(_defined, (path, *helpers)))
    for node in ast.walk(tree):
        for name in _used(node):
            if is_private(name) and name not in own:
                yield getattr(node, "lineno", 0), name


def _helpers(root: Path, tree: ast.Module) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            yield root / (str(node.module).replace(".", "/") + ".py")


def _used(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [] if _of_itself(node) else [node.attr]
    if isinstance(node, ast.ImportFrom):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.Call) and _name_of(node.func) in BY_NAME:
        texts = [each.value for each in node.args if isinstance(each, ast.Constant)]
        return [each.split(".")[-1] for each in texts if isinstance(each, str)]
    return []


def _name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _of_itself(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}


def is_private(name: str) -> bool:
    """Return whether a name has one leading underscore: `_name`, not `__name__` and not `_`."""
    return re.fullmatch(r"_[A-Za-z]\w*", name) is not None and name not in NAMED_TUPLE
