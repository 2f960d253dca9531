"""Graphs written as text, for people who do not write Python: `graph.toml`.

    [inputs]                                    # columns of a row: number, whole, text, category...
    age = "number"
    city = "category"
    note = "text"

    [nodes.risk]                                # a model on columns or on other nodes
    model = "risk"
    reads = ["age", "city"]

    [nodes.features]                            # a coroutine, "module:function", or several
    fetch = "shop.features:load"
    reads = ["city"]
    gives = "vector 12"
    timeout = 0.05
    otherwise = 0.0

    [nodes.score]                               # arithmetic over nodes and columns
    value = "0.7 * risk.probabilities[1] + 0.3 * age"

    [nodes.final]                               # the first that holds
    choose = [{ when = "score > 0.9", then = "score" }]
    otherwise = "score / 2"

    [outputs]
    approve = "final < 0.5"

Nodes stand in any order. A node also may be `mean`, `vote` or `weighted` of several.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flour.core.callables import found
from flour.core.errors import FlourError, ParameterError, nearest
from flour.core.parsing import parse_expression
from flour.core.provenance import Origin, at
from flour.core.toml import tomllib
from flour.core.types import Category, Scalar, Text, Type, Vector
from flour.language.flow import Flow, outputs, where
from flour.language.graphs import ensemble, fetch, first_match, model
from flour.language.sources import record
from flour.language.until_sure import until_sure

_TYPES: Mapping[str, Type] = {
    "number": Scalar(),
    "whole": Scalar("int64"),
    "bool": Scalar("bool"),
    "category": Category(),
    "text": Text(),
}
_KINDS = ("model", "value", "choose", "fetch", "mean", "vote", "weighted")
_POLICY = {
    *("gives", "timeout", "deadline", "retries", "backoff", "limit", "keep", "together"),
    *("otherwise", "within"),
}
_OPTIONS: Mapping[str, set[str]] = {
    "model": {"reads"},
    "choose": {"otherwise"},
    "fetch": {"reads", "per", *_POLICY},
    "weighted": {"weights"},
}
_SIGNS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.And: operator.and_,
    ast.Or: operator.or_,
}
_WORDS: Mapping[str, Callable[..., Any]] = {
    "where": where,
    "until_sure": until_sure,
    "abs": operator.abs,
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
}


#: Characters of an expression.
LONGEST = 2000


def read_graph(text: str, file: str) -> Flow:
    """The graph that is written here; a mistake is told with its line."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ParameterError("this is no TOML", where=file, found=str(problem)[:120]) from None
    return _GraphReader(data, text, file).graph()


def _key(tree: ast.expr) -> Any:
    """The text in brackets: a number, a name, several of these, a range."""
    if isinstance(tree, ast.Slice):
        return slice(*(each and ast.literal_eval(each) for each in (tree.lower, tree.upper)))
    return ast.literal_eval(tree)


class _GraphReader:
    """One text on its way to a graph."""

    def __init__(self, data: Mapping[str, Any], text: str, file: str) -> None:
        self._data, self._lines, self._file = data, text.splitlines(), file.rpartition("/")[2]
        self._made: dict[str, Flow] = {}
        self._open: list[str] = []
        self._nodes: Mapping[str, Any] = data.get("nodes", {})
        inputs = {name: self._type(name, kind) for name, kind in data.get("inputs", {}).items()}
        with at(self._place("inputs")):
            self._row = record("row", inputs)

    def graph(self) -> Flow:
        """All outputs."""
        known = {"inputs", "nodes", "outputs"}
        self._check(self._data, known, "outputs", "a graph")
        wanted = self._data.get("outputs") or {}
        made = {}
        for name, text in wanted.items():
            with at(self._place(name)):
                made[name] = self._flow(text, name)
        if not made:
            raise self._wrong(
                "outputs", "a graph has outputs", "", '[outputs]\nscore = "risk.label"'
            )
        return outputs(**made)

    def _type(self, name: str, text: str) -> Type:
        word, _, width = str(text).partition(" ")
        if word == "vector" and width.isdigit():
            return Vector(int(width))
        if text not in _TYPES:
            hint = ", ".join(_TYPES) + ", vector 12"
            raise self._wrong(name, "there is no such type", repr(text), hint)
        return _TYPES[text]

    # --- nodes -------------------------------------------------------------------------------

    def _named(self, name: str, reader: str) -> Flow:
        """A node, or a column of the row."""
        if name in self._made:
            return self._made[name]
        if name in self._nodes:
            if name in self._open:
                circle = " -> ".join([*self._open[self._open.index(name) :], name])
                raise self._wrong(name, "nodes read each other in a circle", circle, "")
            self._open.append(name)
            with at(self._place(name)):
                try:
                    self._made[name] = self._node(name, self._nodes[name])
                except FlourError as problem:  # it is of this node, not of those that read it
                    problem.where = problem.where or str(self._place(name))
                    raise
            self._open.pop()
            return self._made[name]
        columns = self._data.get("inputs", {})
        if name in columns:
            return self._row[name]
        raise self._wrong(
            reader,
            f"there is no node or input {name!r}",
            "",
            nearest(name, [*self._nodes, *columns]),
        )

    def _node(self, name: str, facts: Mapping[str, Any]) -> Flow:
        kinds = [kind for kind in _KINDS if kind in facts]
        if len(kinds) != 1:
            raise self._wrong(name, "a node is one of " + ", ".join(_KINDS), repr(facts)[:80], "")
        (kind,) = kinds
        self._check(facts, {kind, *_OPTIONS.get(kind, ())}, name, f"a node with {kind!r}")
        made: Flow = getattr(self, f"_{kind}")(name, facts)
        return made

    def _model(self, name: str, facts: Mapping[str, Any]) -> Flow:
        return model(facts["model"])(*self._reads(name, facts))

    def _value(self, name: str, facts: Mapping[str, Any]) -> Flow:
        return self._flow(facts["value"], name)

    def _choose(self, name: str, facts: Mapping[str, Any]) -> Flow:
        branches = []
        for each in facts["choose"]:
            self._check(each, {"when", "then"}, name, "a choice")
            branches.append((self._flow(each["when"], name), self._operand(each["then"], name)))
        return first_match(branches, self._operand(facts.get("otherwise"), name))

    def _fetch(self, name: str, facts: Mapping[str, Any]) -> Flow:
        policy = {key: facts[key] for key in _POLICY - {"gives"} if key in facts}
        gives = self._type(name, facts.get("gives", ""))
        if isinstance(gives, Vector) and isinstance(policy.get("otherwise"), int | float):
            policy["otherwise"] = [float(policy["otherwise"])] * gives.width
        reads, places = self._reads(name, facts), facts["fetch"]
        asked = [found(each) for each in ([places] if isinstance(places, str) else places)]
        if "per" in facts:
            policy["per"] = self._flow(facts["per"], name)
        return fetch(asked, *reads, gives=gives, name=name, **policy)

    def _mean(self, name: str, facts: Mapping[str, Any]) -> Flow:
        return ensemble(self._members(name, facts["mean"])).mean()

    def _vote(self, name: str, facts: Mapping[str, Any]) -> Flow:
        return ensemble(self._members(name, facts["vote"])).vote()

    def _weighted(self, name: str, facts: Mapping[str, Any]) -> Flow:
        members = self._members(name, facts["weighted"])
        return ensemble(members).weighted(facts.get("weights", ()))

    def _members(self, name: str, texts: Sequence[str]) -> list[Flow]:
        return [self._flow(text, name) for text in texts]

    def _reads(self, name: str, facts: Mapping[str, Any]) -> list[Flow]:
        """The inputs of a node: columns that follow each other go together."""
        texts = facts.get("reads", ())
        texts = [texts] if isinstance(texts, str) else list(texts)
        columns = [text for text in texts if text in self._data.get("inputs", {})]
        if len(columns) == len(texts) > 1 and "model" in facts:
            return [self._row[columns]]
        return [self._flow(text, name) for text in texts]

    # --- arithmetic --------------------------------------------------------------------------

    def _operand(self, text: object, name: str) -> Any:
        return text if isinstance(text, int | float) else self._said(text, name)

    def _flow(self, text: object, name: str) -> Flow:
        made = self._said(text, name)
        if isinstance(made, Flow):
            return made
        raise self._wrong(
            name, "this is a number where a node or a column is needed", repr(text), ""
        )

    def _said(self, text: object, name: str) -> Any:
        try:
            tree = parse_expression(str(text)[:LONGEST])
        except SyntaxError as problem:
            raise self._wrong(name, "this cannot be read", f"{text!r}: {problem.msg}", "") from None
        try:
            return self._eval(tree, name)
        except FlourError as problem:
            problem.where = problem.where or str(self._place(name))
            raise
        except (TypeError, ValueError) as problem:
            raise self._wrong(
                name, "this has no meaning", f"{text!r}: {problem}"[:160], ""
            ) from None

    def _eval(self, tree: ast.expr, name: str) -> Any:  # noqa: C901, PLR0911 (one for each kind)
        match tree:
            case ast.Constant(value=value) if isinstance(value, str | int | float):
                return value
            case ast.Name(id=label):
                return self._named(label, name)
            case ast.Attribute(value=inside, attr=label):
                return self._eval(inside, name)[label]
            case ast.Subscript(value=inside, slice=key):
                return self._eval(inside, name)[_key(key)]
            case ast.UnaryOp(op=ast.USub(), operand=inside):
                return -self._eval(inside, name)
            case ast.UnaryOp(op=ast.Not(), operand=inside):
                return ~self._eval(inside, name)
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SIGNS:
                return _SIGNS[type(sign)](self._eval(left, name), self._eval(right, name))
            case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in _SIGNS:
                return _SIGNS[type(sign)](self._eval(left, name), self._eval(right, name))
            case ast.BoolOp(op=sign, values=values):
                made = self._eval(values[0], name)
                for other in values[1:]:
                    made = _SIGNS[type(sign)](made, self._eval(other, name))
                return made
            case ast.Call(func=ast.Name(id=word), args=given, keywords=[]) if word in _WORDS:
                return _WORDS[word](*(self._eval(each, name) for each in given))
        words = "names, numbers, + - * / % ** > < == and or not, " + ", ".join(_WORDS)
        raise self._wrong(name, "this is not part of the language", ast.unparse(tree)[:80], words)

    # --- mistakes ----------------------------------------------------------------------------

    def _check(self, facts: Any, known: set[str], name: str, what: str) -> None:
        unknown = [key for key in facts if key not in known]
        if unknown:
            hint = nearest(unknown[0], known) or ", ".join(sorted(known))
            raise self._wrong(name, f"{what} has no {unknown[0]!r}", "", hint)

    def _wrong(self, name: str, what: str, seen: str, hint: str | None) -> ParameterError:
        return ParameterError(what, where=str(self._place(name)), found=seen, hint=hint or None)

    def _place(self, name: str) -> Origin:
        """The line where a node, an input or an output is written."""
        starts = (f"[nodes.{name}]", f"{name} =", f"{name}=", f"[{name}]")
        for number, line in enumerate(self._lines, 1):
            if line.strip().startswith(starts):
                return Origin(self._file, number, name)
        return Origin(self._file, 1, name)
