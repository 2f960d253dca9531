"""True if computing a node can produce NaN or infinity, or refuse a row.

Rules that treat 0 · x as 0 ask whether x is finite whatever the inputs are: an input of floats may
be NaN or infinite, unless the program refuses such rows. Overflow is left out of account, as it
needs inputs near the end of the float range. Rules that leave out a branch ask whether it can
refuse a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from flour.core.node import Node, extents, topological


def finite(item: Node) -> bool:
    """True if every value of this node is finite, whatever the program's inputs are."""
    return extents(topological([item]))[item].finite


def may_refuse(item: Node) -> bool:
    """True if computing this node can be an error for some rows (a category never seen, NaN)."""
    return bool(refusing([item]))


def refusing(items: Sequence[Node]) -> set[Node]:
    """The nodes that can refuse a row, of those that are computed for these."""
    return {each for each in topological(items) if each.op.refuses_rows()}
