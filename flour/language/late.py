"""Flows whose types are not known yet, as they name models: what is done to them is written down.

`flour.model("risk")(row)["probabilities"][1] > 0.9` is a program of nodes like any other; three of
them are `Deferred`: a word of the language with its arguments. `link` says these words again, with
the models in place, so that a mistake is found where the author made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from flour.core.errors import ParameterError, TypeMismatch
from flour.core.modules import load_operator
from flour.core.node import Node, node
from flour.core.op import REGISTRY
from flour.core.provenance import here
from flour.core.types import Later
from flour.language.flow import Flow, LateFlow

#: Attributes that work on a flow whatever its types are.
_AS_USUAL = frozenset({"digest", "inputs", "named", "node", "nodes", "on", "origins", "rebuilt"})
_NOT_YET = frozenset({"plan", "reference", "to_onnx"})
_SIGNS = (
    *("add", "sub", "mul", "truediv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"),
    *("radd", "rsub", "rmul", "rtruediv", "rmod", "rpow", "rand", "ror", "rxor", "rlshift"),
    *("rrshift", "eq", "ne", "lt", "le", "gt", "ge", "neg", "abs", "invert", "getitem"),
)


def deferred(word: str, *given: object) -> Flow:
    """The flow of a word of the language that is said when types are known."""
    flows: list[Flow] = []
    arrays: list[Any] = []
    arguments = tuple(_encoded(value, flows, arrays) for value in given)
    load_operator("")
    op = REGISTRY["Deferred"](word, arguments, tuple(arrays))
    return Flow({"output": node(op, [flow.node for flow in flows])}, here(), tuple(flows))


def _encoded(value: object, flows: list[Flow], arrays: list[Any]) -> object:  # noqa: PLR0911 (one for each kind)
    """An argument as data."""
    match value:
        case Flow():
            flows.append(value)
            return ("flow", len(flows) - 1)
        case list() | tuple():
            kind = "list" if isinstance(value, list) else "tuple"
            return (kind, *(_encoded(item, flows, arrays) for item in value))
        case Mapping():
            return ("dict", *((str(k), _encoded(v, flows, arrays)) for k, v in value.items()))
        case slice():
            return ("slice", value.start, value.stop, value.step)
        case np.ndarray() if value.dtype.kind in "biuf":
            arrays.append(value)
            return ("array", len(arrays) - 1)
        case np.generic():
            return ("value", value.item())
        case None | bool() | int() | float() | str():
            return ("value", value)
    raise ParameterError.here(
        "this cannot be part of a graph",
        found=repr(value)[:80],
        hint="a graph is data: flows, numbers, strings, lists, arrays of numbers",
    )


def said(
    word: str,
    arguments: tuple[Any, ...],
    arrays: object,
    flows: list[Flow],
    functions: Mapping[str, Callable[..., Flow]],
) -> Flow:
    """The word with its arguments, now that all types are known; some words are functions."""
    *given, named = [_decoded(value, flows, arrays) for value in arguments]
    if word in functions:
        return functions[word](*given, **named)
    if word not in METHODS:
        raise ParameterError("this is no word of the language", found=word[:80])
    made = getattr(given[0], word)(*given[1:], **named)
    if isinstance(made, Flow):
        return made
    raise TypeMismatch(f"{word} gives no flow here", found=repr(made)[:80])


def _decoded(value: Any, flows: list[Flow], arrays: Any) -> Any:  # noqa: PLR0911 (one for each kind)
    match value:
        case ("flow", int(place)):
            return flows[place]
        case ("array", int(place)):
            return arrays[place].array
        case ("list", *items):
            return [_decoded(item, flows, arrays) for item in items]
        case ("tuple", *items):
            return tuple(_decoded(item, flows, arrays) for item in items)
        case ("dict", *pairs):
            return {key: _decoded(item, flows, arrays) for key, item in pairs}
        case ("slice", start, stop, step):
            return slice(start, stop, step)
        case ("value", plain):
            return plain
    raise ParameterError("this is no argument of a graph", found=repr(value)[:80])


def has_later(flow: Flow) -> bool:
    """True if the type of an output is not known yet."""
    return any(isinstance(item.type, Later) for item in flow.outputs.values())


def is_graph(flow: object) -> bool:
    """True if a program has to be linked before it can run."""
    return isinstance(flow, Flow) and any(item.op.name in GRAPH for item in flow.nodes())


#: Operators that stand for something else until a graph is linked.
GRAPH = frozenset({"ModelCall", "Deferred"})


def _recording(word: str) -> Callable[..., Flow]:
    def call(self: Flow, *given: object, **named: object) -> Flow:
        if word == "__getitem__" and len(self.outputs) > 1:
            key: Any = given[0]
            return Flow.__getitem__(self, key)
        return deferred(word, self, *given, named)

    call.__name__ = word
    call.__doc__ = f"What `{word}` makes of this flow, once its type is known."
    return call


def _refusing(word: str) -> Callable[..., Any]:
    def call(self: Flow, *_: object, **__: object) -> Any:
        raise TypeMismatch.here(
            f"a graph has no {word} before the models that it names are put in",
            found=", ".join(addresses(self)),
            hint="register it: runtime.register(name, graph)",
        )

    call.__name__ = word
    return call


def addresses(flow: Flow) -> list[str]:
    """The models that a graph names, each once."""
    named = (item.op for item in flow.nodes() if item.op.name == "ModelCall")
    found = (str(getattr(op, "address", "")) for op in named)
    return [address for address in dict.fromkeys(found) if address]


def _words() -> Iterator[str]:
    """The methods of a flow that depend on its types."""
    for name in dir(Flow):
        plain = not name.startswith("_") and callable(getattr(Flow, name))
        if plain and name not in _AS_USUAL | _NOT_YET | {"retype", "show", "input"}:
            yield name
    yield from (f"__{name}__" for name in _SIGNS)


METHODS = frozenset(_words())
for _word in METHODS:
    setattr(LateFlow, _word, _recording(_word))
for _word in _NOT_YET:
    setattr(LateFlow, _word, _refusing(_word))
#: By identity, as of all flows: a class that defines `==` loses it.
LateFlow.__hash__ = Flow.__hash__  # type: ignore[method-assign]  # the same method


def output_nodes(flow: Flow) -> tuple[Node, ...]:
    """The nodes of all outputs."""
    return tuple(flow.outputs.values())
