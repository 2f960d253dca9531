"""Python source as a tree, from any thread."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

_TRIES = 20
Tree = TypeVar("Tree")


def parse_source(text: str) -> ast.Module:
    """The tree of statements."""
    return _tried(lambda: ast.parse(text))


def parse_expression(text: str) -> ast.expr:
    """The tree of an expression."""
    return _tried(lambda: ast.parse(text, mode="eval")).body


def _tried(parse: Callable[[], Tree]) -> Tree:
    """Parse, and parse again after a SystemError.

    Up to Python 3.11.7 and 3.12.1 threads share the count of how deeply nodes are nested
    (python/cpython#106905): if another one parses in between, it is wrong at the end.
    """
    for _ in range(_TRIES - 1):
        with suppress(SystemError):
            return parse()
    return parse()
