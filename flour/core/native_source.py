"""The source of a native function: its statements, and the uses of its names."""

from __future__ import annotations

import ast
import inspect
import linecache
import operator
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from flour.core.parsing import parse_source

#: The text of an operator, and what it computes of values that are known.
OPERATORS: dict[type, tuple[str, Callable[..., object]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.UAdd: ("+", operator.pos),
    ast.USub: ("-", operator.neg),
    ast.Invert: ("~", operator.invert),
    ast.Not: ("not ", operator.not_),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
    ast.In: ("in", lambda item, many: item in many),
    ast.NotIn: ("not in", lambda item, many: item not in many),
}
#: Functions of numpy whose word is another name.
NUMPY = {f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
#: Functions of numpy that are operators.
INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "greater": ">",
    "greater_equal": ">=",
    "less": "<",
    "less_equal": "<=",
    "equal": "==",
    "not_equal": "!=",
    "logical_and": "and",
    "logical_or": "or",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
}


class FunctionSource(NamedTuple):
    """A function's source."""

    body: list[ast.stmt]
    assigned: Counter[str]
    """The number of times each name is assigned; a parameter's own value counts as well."""
    read: Counter[str]
    local: set[str]
    """All names that have a value in it: its parameters, and those of loops as well."""


def source_of(function: Callable[..., Any]) -> FunctionSource:
    """Read a function."""
    (tree,) = parse_source(_text_of(inspect.unwrap(function))).body
    assert isinstance(tree, ast.FunctionDef)
    assigned, read, local = (
        Counter[str](),
        Counter[str](),
        {each.arg for each in ast.walk(tree.args) if isinstance(each, ast.arg)},
    )
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets):
                assigned.update(name for target in targets for name in _stored(target))
            case ast.AugAssign(target=target):
                assigned.update([*_stored(target)] * 2)
            case ast.Name(id=name, ctx=ast.Load()):
                read[name] += 1
            case ast.Name(id=name):
                local.add(name)
            case ast.Attribute(value=ast.Name(id=name)):
                read[name] -= 1  # it is not read for its dtype
    assigned.update(each.arg for each in tree.args.args if each.arg in assigned)
    return FunctionSource(tree.body, assigned, read, local)


def _stored(target: ast.expr) -> list[str]:
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    return [name.id for name in names if isinstance(name, ast.Name)]


def _text_of(function: Any) -> str:
    """The lines of a function: those after its first one that are blank or stand deeper.

    `inspect.getsource` splits all that follows into tokens, which takes ten times as long.
    """
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)[code.co_firstlineno - 1 :]
    depth = len(lines[0]) - len(lines[0].lstrip())
    named = next(at for at, line in enumerate(lines) if line.lstrip().startswith("def "))
    end = named + 1
    for line in lines[named + 1 :]:
        text = line.lstrip()
        if text and len(line) - len(text) <= depth and not text.startswith(")"):
            break
        end += 1
    return textwrap.dedent("".join(lines[:end]))
