"""choose(c, text(i), text(j), ...)  →  text(choose(c, place(i), place(j), ...))

Why      a choice among numbers is native code, one among strings a step of numpy over objects; and
         an exported plan has labels of text only where they are looked up last.
Unless   a branch is no look-up: a text of the caller.
Numerics none: the same strings.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from flour.core.node import Node, node
from flour.ops.graph import Choose, ChooseText
from flour.ops.structure import Take, TakeText
from objectstore import Blob, Strings
from oven.optimise.pattern import BITS, Match, Rule, op, rest


def _build(m: Match) -> Node | None:
    count = len(m.root.inputs) // 2
    values = m.root.inputs[count:]
    tables = [item.op.table.to_list() for item in values if isinstance(item.op, TakeText)]
    if len(tables) < len(values):
        return None
    m.take(*dict.fromkeys(values))
    places = {text: place for place, text in enumerate(dict.fromkeys(chain(*tables)))}
    numbers = [
        node(Take(Blob.of(np.array([places[text] for text in table]))), item.inputs)
        for item, table in zip(values, tables, strict=True)
    ]
    return node(TakeText(Strings.of(places)), [node(Choose(), [*m.root.inputs[:count], *numbers])])


RULE = Rule(op(ChooseText)(rest("parts")), _build, BITS, beside=(TakeText,))
