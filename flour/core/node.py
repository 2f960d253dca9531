"""Nodes: an operator applied to nodes, interned, so that equal programs are the same object.

The grammar of a program, whole:

    program  := {output name: node}
    node     := operator(node, ...)          a DAG; the digest covers operator and inputs
    operator := Name(field=value, ...)       a class of flour.ops, see flour/core/op.py
    source   := Source(name, type)           an operator without inputs: the program's inputs
    type     := Scalar | Category | Text | Tokens | Vector | ...    see flour/core/types.py
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from flour.core.errors import FlourError, TypeMismatch
from flour.core.op import Op
from flour.core.raw_columns import Made
from flour.core.types import INTS, LARGEST_SINGLE, Extent, Later, Type, width_of
from objectstore import combine


class Node:
    """One value of a program. Make it with `node`: equal ones are the same object."""

    __slots__ = ("__weakref__", "digest", "inputs", "op", "type")

    op: Op
    inputs: tuple[Node, ...]
    type: Type
    digest: str

    @staticmethod
    def placeholder(op: Op, inputs: tuple[Node, ...], kind: Type) -> Node:
        """A node that stands for one of this type in a program that is not there: an object apart.

        It belongs to no program, equals no other node, and is never made again.
        """
        made = _made(op, inputs, "")
        object.__setattr__(made, "type", kind)
        return made

    def __setattr__(self, key: str, value: object) -> None:
        raise AttributeError("nodes are immutable")

    def __repr__(self) -> str:
        return f"<{self.op.name} {self.digest[:8]}: {self.type}>"


#: The node in the place of another one, of its rebuilt inputs.
Change = Callable[[Node, tuple[Node, ...]], Node]
NOWHERE: Mapping[Node, Iterable[object]] = {}

_nodes: WeakValueDictionary[str, Node] = WeakValueDictionary()
_lock = threading.Lock()


def node(op: Op, inputs: Sequence[Node], old: Node | None = None) -> Node:
    """The node of this operator over these inputs; its type is worked out, or TypeMismatch.

    It is that of `old`, a node of the same operator, if the types of their inputs are the same.
    """
    digest = combine(op.digest, *(item.digest for item in inputs))
    found = _nodes.get(digest)
    if found is not None:
        return found
    made = _made(op, tuple(inputs), digest)
    same = old is not None and old.op is op and _types_are(old.inputs, inputs)
    object.__setattr__(made, "type", old.type if old is not None and same else _infer(op, inputs))
    with _lock:
        return _nodes.setdefault(digest, made)


def _made(op: Op, inputs: tuple[Node, ...], digest: str) -> Node:
    """A node that has no type yet."""
    made = Node.__new__(Node)
    keep = object.__setattr__
    keep(made, "op", op)
    keep(made, "inputs", inputs)
    keep(made, "digest", digest)
    return made


def _types_are(some: Sequence[Node], others: Sequence[Node]) -> bool:
    return all(one.type is other.type for one, other in zip(some, others, strict=True))


def _infer(op: Op, inputs: Sequence[Node]) -> Type:
    kinds = [item.type for item in inputs]
    if Later in map(type, kinds) and not op.takes_later:
        return Later()
    try:
        return op.infer(*kinds)
    except TypeMismatch as problem:
        if problem.found is None:
            problem.found = ", ".join(f"{item.type} from {item.op.name}" for item in inputs)
        raise
    except TypeError as problem:
        found = ", ".join(map(str, kinds)) or "nothing"
        raise TypeMismatch(f"{op.name} cannot take {len(kinds)} inputs", found=found) from problem


def topological(roots: Iterable[Node]) -> list[Node]:
    """Every node the roots need, inputs before readers, in a reproducible order."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack: list[tuple[Node, Iterator[Node]]] = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack.append((root, iter(root.inputs)))
        while stack:
            current, rest = stack[-1]
            for item in rest:  # goes on where it was left
                if item not in seen:
                    seen.add(item)
                    stack.append((item, iter(item.inputs)))
                    break
            else:
                order.append(current)
                stack.pop()
    return order


def made_of(order: Iterable[Node], numbers: Made | None = None) -> dict[Node, Made]:
    """The raw columns that each value is made of, by these numbers, or as they come in order."""
    made, last = dict[Node, Made](), 0
    for item in order:
        width, kinds = width_of(item.type), [source.type for source in item.inputs]
        if item.op.name == "Source":
            made[item], last = np.arange(last, last + width), last + width
            made[item] = made[item] if numbers is None else numbers[made[item]]
        else:
            found = item.op.made_of(width, [made[source] for source in item.inputs], kinds)
            made[item] = np.asarray(found, np.int64)
    return made


def categories_of(order: Iterable[Node], made: Mapping[Node, Made]) -> dict[int, list[Any]]:
    """The categories that encoders know of each raw column."""
    found = dict[int, list[Any]]()
    for item in order:
        op: Any = item.op
        if op.name in ("Categorise", "CategoriseText"):
            known = op.texts.to_list() if op.name == "CategoriseText" else op.values.array.tolist()
            runs = pairwise(op.starts.array.tolist())
            for number, run in zip(made[item.inputs[0]].tolist(), runs, strict=True):
                if number >= 0:
                    found.setdefault(number, []).extend(known[slice(*run)])
    return found


def rebuild(roots: Iterable[Node], change: Change) -> list[Node]:
    """The roots with every node passed through `change(node, its rebuilt inputs)`."""
    roots = list(roots)
    done = rebuilt(roots, change)
    return [done[root] for root in roots]


def rebuilt(
    roots: Iterable[Node], change: Change, places: Mapping[Node, Iterable[object]] = NOWHERE
) -> dict[Node, Node]:
    """Replacements of all nodes that the roots need; errors say in which of its places."""
    done: dict[Node, Node] = {}
    for item in topological(roots):
        try:
            done[item] = change(item, tuple(done[source] for source in item.inputs))
        except FlourError as problem:
            problem.where = problem.where or " and ".join(map(str, places.get(item, ())))
            raise
    return done


def readers(roots: Iterable[Node]) -> dict[Node, list[Node]]:
    """The readers of each node, in their topological order."""
    found: dict[Node, list[Node]] = {}
    for item in topological(roots):
        found.setdefault(item, [])
        for source in item.inputs:
            found[source].append(item)
    return found


def extents(
    order: Iterable[Node], checked: Callable[[Node, Extent], Extent] | None = None
) -> dict[Node, Extent]:
    """The extents of nodes, inputs before readers; `checked` may change each before it is used."""
    known: dict[Node, Extent] = {}
    for item in order:
        dtype = getattr(item.type, "dtype", "")
        given = [known[each] for each in item.inputs]
        passes = item.op.moves or item.op.same_values
        if (dtype in INTS or dtype == "bool") and not passes:
            found = Extent(nan=False, largest=1e20, counts=item.op.counting)
        else:
            found = item.op.extent(given, [each.type for each in item.inputs])
        if item.op.name == "Over" and item.inputs[1].op.name == "OneIfTiny" and given[0].finite:
            found = Extent(nan=False, largest=1.0)  # a row over its own length
        if dtype == "float32" and found.largest > LARGEST_SINGLE:
            found = found._replace(largest=np.inf)
        known[item] = checked(item, found) if checked else found
    return known
