"""categorise(text(i))  →  table(i)

Why      graphs compare labels of their models with words, and a label is a number until it is
         looked up: without texts in between, it is all one run of native code.
Unless   the encoder is strict and refuses a label.
Numerics none: the encoder's own codes.
"""

from __future__ import annotations

import numpy as np

from flour.core.errors import InputError
from flour.core.node import Node, node
from flour.core.types import Scalar
from flour.ops.categorise import CategoriseText
from flour.ops.structure import Take, TakeText
from objectstore import Blob
from oven.optimise.pattern import BITS, Match, Rule, hole, op


def _build(m: Match) -> Node | None:
    look_up = m.op("labels", TakeText)
    try:
        codes = m.root.op.reference(look_up.reference(np.arange(len(look_up.table))))
    except InputError:
        return None
    return node(Take(Blob.of(codes)), m["labels"].inputs)


RULE = Rule(
    op(CategoriseText)(op(TakeText, name="labels")(hole("place"))),
    _build,
    BITS,
    lambda m: isinstance(m["labels"].type, Scalar),
)
