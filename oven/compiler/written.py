"""The text of functions for the compiler: plain Python, without types, with numbers for constants.

    text(share_rows)       the function behind those it calls, as one source

A function over words (oven.compiler.words) is written, checked and read as any other. What it calls
of its own kind is compiled into it. Names in capitals are numbers: constants of its module, and
members of enumerations.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from copy import deepcopy
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import TypeGuard, cast

from flour.core.parsing import parse_source
from objectstore import combine
from oven.compiler import words

#: The words of these modules are in the vocabulary themselves.
_VOCABULARY = (words.__name__, "oven.compiler.intrinsics.")


def text(function: Callable[..., object]) -> str:
    """The source of a function, behind those that it calls."""
    return Transcript().text(function)


def inputs(function: Callable[..., object]) -> str:
    """A digest of all that the text of a function depends on: files, its helpers', constants."""
    found, numbers = [cast("FunctionType", function)], ""
    for each in found:
        known, helpers = _known(each)
        numbers += known
        found += [helper for helper in helpers if helper not in found]
    files = (_file(module) for module in dict.fromkeys(each.__module__ for each in found))
    return combine(numbers, *files)


@cache
def _known(function: FunctionType) -> tuple[str, list[FunctionType]]:
    """The constants and the helpers that a function names."""
    names = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    numbers = [each for each in names.items() if isinstance(each[1], int)]
    members = [(name, [*known]) for name, known in names.items() if _is_enumeration(known)]
    helpers = (_helper(function, name) for name in names)
    return repr((numbers, members)), [helper for helper in helpers if helper is not None]


@cache
def definitions(module: str) -> dict[str, ast.FunctionDef]:
    """The functions of a module, as syntax."""
    body = parse_source(inspect.getsource(sys.modules[module])).body
    return {item.name: item for item in body if isinstance(item, ast.FunctionDef)}


@cache
def _file(module: str) -> str:
    return combine(Path(str(sys.modules[module].__file__)).read_bytes())


def _is_enumeration(known: object) -> TypeGuard[type[IntEnum]]:
    return isinstance(known, type) and issubclass(known, IntEnum)


def _helper(function: FunctionType, name: str) -> FunctionType | None:
    """The function of this name that is compiled into another one; None for all other names."""
    found = function.__globals__.get(name)
    plain = isinstance(found, FunctionType) and not found.__module__.startswith(_VOCABULARY)
    return found if plain else None


class Transcript(ast.NodeTransformer):
    """The text of functions, one after the other."""

    def __init__(self) -> None:
        self._written: dict[FunctionType, str] = {}
        #: The one that is being written.
        self._function: FunctionType

    def text(self, function: Callable[..., object]) -> str:
        """The source of a function, behind those that it calls."""
        self._write(cast("FunctionType", function))
        assert len({each.__name__ for each in self._written}) == len(self._written), "one name each"
        return "\n\n".join(self._written.values())

    def _write(self, function: FunctionType) -> None:
        outer = getattr(self, "_function", function)
        self._function = function
        item = definitions(function.__module__)[function.__name__]
        names = ", ".join(each.arg for each in item.args.args)
        (made,) = parse_source(f"def {item.name}({names}): ...").body
        assert isinstance(made, ast.FunctionDef)
        made.body = deepcopy(item.body[1 if ast.get_docstring(item) else 0 :])
        self.generic_visit(made)
        self._written[function] = f"{ast.unparse(ast.fix_missing_locations(made))}\n"
        self._function = outer

    def known(self, name: str) -> object:
        """The function's module has this under a name; None for its own variables."""
        function = self._function
        return None if name in function.__code__.co_varnames else function.__globals__.get(name)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call, of a helper or of a word."""
        made = self.generic_visit(node)
        helper = _helper(self._function, node.func.id) if isinstance(node.func, ast.Name) else None
        if helper is not None and helper not in self._written:
            self._write(helper)
        return made

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A constant of the module as a number, and any other name as it is."""
        known = self.known(node.id)
        return ast.Constant(int(known)) if isinstance(known, int) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A member of an enumeration as a number."""
        kind = self.known(node.value.id) if isinstance(node.value, ast.Name) else None
        return ast.Constant(kind[node.attr].value) if _is_enumeration(kind) else node
