"""The order in which nodes can run; cycles, missing values and values made twice are errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flour.onnx.errors import DamagedModel
from flour.onnx.model import NodeDef


def ordered(
    nodes: Sequence[NodeDef], own: Iterable[str], outside: Iterable[str], outputs: Sequence[str]
) -> list[NodeDef]:
    """The nodes, each behind those it reads from, otherwise as they are in the file.

    `own` are the graph's inputs and constants, `outside` the values of graphs around it.
    """
    own = {"", *own}
    available = own.union(outside)
    makers = _makers(nodes, own)
    order: list[NodeDef] = []
    waiting = {i: _missing(node, available.difference(makers)) for i, node in enumerate(nodes)}
    for index, names in waiting.items():
        for name in names:
            if name not in makers:
                raise DamagedModel(
                    "no node makes a value that is read",
                    where=nodes[index].place,
                    found=repr(name),
                )
    _sort(nodes, waiting, makers, order)
    if len(order) < len(nodes):
        done = set(map(id, order))
        stuck = next(node for node in nodes if id(node) not in done)
        raise DamagedModel(
            "nodes wait for each other in a circle",
            where=stuck.place,
            found=", ".join(stuck.inputs),
        )
    for name in outputs:
        if name not in makers and name not in available:
            raise DamagedModel("no node makes an output", where="outputs", found=repr(name))
    return order


def _makers(nodes: Sequence[NodeDef], own: set[str]) -> dict[str, int]:
    makers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.outputs:
            if name and (name in makers or name in own):
                raise DamagedModel("a value is made twice", where=node.place, found=repr(name))
            makers[name] = index
    makers.pop("", None)
    return makers


def _missing(node: NodeDef, available: set[str]) -> set[str]:
    read = set(node.inputs)
    for inner in node.graphs():
        read |= inner.free_names()
    return read - available


def _sort(
    nodes: Sequence[NodeDef],
    waiting: dict[int, set[str]],
    makers: dict[str, int],
    order: list[NodeDef],
) -> None:
    """Append the nodes to `order`, depth first, without recursion."""
    state = [0] * len(nodes)  # 0 new, 1 being visited, 2 done
    for root in range(len(nodes)):
        stack = [root]
        while stack:
            index = stack[-1]
            if state[index] == 2:
                stack.pop()
                continue
            before = sorted({makers[name] for name in waiting[index]})
            fresh = [maker for maker in before if state[maker] != 2]
            if not fresh:
                state[index] = 2
                order.append(nodes[index])
                stack.pop()
            elif state[index] == 1 or any(state[maker] == 1 for maker in fresh):
                return
            else:
                state[index] = 1
                stack.extend(reversed(fresh))
