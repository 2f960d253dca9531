"""Check of emitted code before it is compiled: only arithmetic over addresses is allowed.

Operators write code as text, and some of the text comes from static parameters, which may come from
a file. Operators check these; this is a second check: text is compiled only if it is one function
in the vocabulary of native code.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Container

from flour.core.parsing import parse_source
from oven.errors import CompileError

_ALLOWED = (
    *(ast.Assign, ast.AugAssign, ast.Expr, ast.For, ast.While, ast.If, ast.Break, ast.Continue),
    *(ast.Pass, ast.Return, ast.Call, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp),
    *(ast.Tuple, ast.Name, ast.Constant),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context),
)
_NUMBERS = ("math.inf", "math.nan", "math.pi")


def vet(source: str, name: str, vocabulary: Collection[str], parameters: int = 4) -> None:
    """Raise CompileError unless the source is one function that only uses the vocabulary.

    Functions before it are its own words: each may call those above it.
    """
    problem = _problem(source, name, vocabulary, parameters)
    if problem:
        raise CompileError.of(name, source, problem)


def _problem(source: str, name: str, vocabulary: Collection[str], parameters: int) -> str:
    try:
        body = parse_source(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"this is not Python: {error}"
    functions = [item for item in body if isinstance(item, ast.FunctionDef)]
    if not body or functions != body or functions[-1].name != name:
        return f"this is not one function called {name}"
    known, found = {*vocabulary}, ""
    for item in functions:
        is_helper = item is not functions[-1]
        count = len(item.args.args) if is_helper else parameters
        if item.decorator_list or item.returns or not _plain(item.args, count):
            return f"the function has {count} plain parameters"
        if is_helper and item.name in {*known, name}:
            return f"{item.name} is a name of its own in native code"
        inside = (each for statement in item.body for each in ast.walk(statement))
        found = found or next((bad for each in inside if (bad := _complaint(each, known))), "")
        known.add(item.name)
    return found


def _plain(arguments: ast.arguments, count: int) -> bool:
    """So many names: defaults and annotations would run when the function is defined."""
    names = [item.arg for item in arguments.args]
    return len(names) == count and ast.unparse(arguments) == ", ".join(names)


def _complaint(item: ast.AST, vocabulary: Container[str]) -> str:
    """The problem with one node of the code; empty if there is none."""
    if isinstance(item, ast.Attribute) and ast.unparse(item) in _NUMBERS:
        return ""
    if not isinstance(item, _ALLOWED):
        return f"{type(item).__name__} has no place in native code"
    if isinstance(item, ast.Call):
        plain = isinstance(item.func, ast.Name) and item.func.id in vocabulary
        if not plain or item.keywords:
            return f"{ast.unparse(item.func)!r:.60} is not in the vocabulary of native code"
    if isinstance(item, ast.Constant) and not isinstance(item.value, bool | int | float):
        return f"{item.value!r:.60} is not a number"
    return ""
