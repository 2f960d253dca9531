"""Rows of the table of operators for those that ONNX's tensors need; see tests/cases.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.core.types import INTS, Scalar, Text, Type, Vector
from flour.ops import indexed, onnx_cast, onnx_text, pairwise, segments, text, unary
from tests.case import LIBM, REASSOCIATES, Case, indices, rows

SIGNED = ("int8", "int16", "int32", "int64")


def whole(rng: np.random.Generator, kind: Type, count: int) -> Any:
    """Whole numbers of both signs (where there are), zero, and the ends of what fits."""
    assert isinstance(kind, Vector | Scalar)
    limits = np.iinfo(kind.dtype)
    odd = [0, 1, 2, limits.max, limits.min, (limits.max - 1) // 2]
    low = -9 if limits.min else 0
    shape = (count, kind.width) if isinstance(kind, Vector) else (count,)
    few = rng.integers(low, 10, size=shape)
    ends = rng.choice(np.array(odd, kind.dtype), size=shape)
    return np.where(rng.random(shape) < 0.3, ends, few.astype(kind.dtype))


def below_one(rng: np.random.Generator, kind: Type, count: int) -> Any:
    """Places inside and outside of five columns."""
    assert isinstance(kind, Vector)
    if kind.dtype.startswith("float"):
        return rng.normal(size=(count, kind.width)).astype(kind.dtype)
    return rng.integers(-2, 7, size=(count, kind.width)).astype(kind.dtype)


def ints(op: Any, *dtypes: str, widths: tuple[int, ...] = (5, 5)) -> list[Case]:
    """The operator over whole numbers."""
    return [
        Case(op, tuple(Vector(width, dtype) for width in widths), draw=whole, label=f"-{dtype}")
        for dtype in dtypes
    ]


def few_texts(rng: np.random.Generator, kind: Type, count: int) -> Any:
    """Strings out of so few that many are equal, some of them None and some NaN."""
    shape = (count, kind.width) if isinstance(kind, Vector) else (count,)
    texts = ["", "a", "b", "日本", "eight by", "nine byte", "nine bytE", None, np.nan]
    return rng.choice(np.array(texts, object), shape)


CASES = [
    # --- flour/ops/onnx_text.py
    Case(onnx_cast.WriteFloats(), (Vector(3, "float32"),), native=False),
    Case(onnx_cast.WriteWhole(), (Vector(3, "int64"),), draw=whole, native=False),
    # --- flour/ops/onnx_text.py
    Case(onnx_text.CutWords((", ", "a+b?"), 2), (Text(),), native=False),
    # --- flour/ops/pairwise.py
    Case(pairwise.SameText(), (Vector(5, "string"), Vector(5, "string")), draw=few_texts),
    Case(pairwise.SameText(), (Vector(3, "string"), Scalar("string")), draw=few_texts),
    # --- flour/ops/text.py, flour/ops/text.py
    Case(text.MatchesWhole(r"(?a)\w+(?: \w\w)?"), (Vector(5, "string"),), draw=few_texts),
    Case(text.JoinTexts(), (Text(), Text()), native=False),
    # --- flour/ops/pairwise.py
    *rows(pairwise.LargerOf(), 5, 5),
    *rows(pairwise.SmallerOf(), 5, 5),
    *ints(pairwise.LargerOf(), "uint64", "int8"),
    *ints(pairwise.SmallerOf(), "uint64", "int8"),
    *rows(pairwise.Above(), 5, 5),
    *rows(pairwise.AtLeast(), 5, 5),
    *rows(pairwise.Same(), 5, 5),
    *ints(pairwise.Above(), "uint64"),
    *ints(pairwise.AtLeast(), "int32"),
    Case(pairwise.Same(), (Scalar("bool"), Scalar("bool"))),
    Case(pairwise.Both(), (Vector(5, "bool"), Vector(5, "bool"))),
    Case(pairwise.Either(), (Vector(5, "bool"), Scalar("bool"))),
    Case(pairwise.OnlyOne(), (Scalar("bool"), Vector(5, "bool"))),
    *ints(pairwise.BitAnd(), "uint8", "int64"),
    *ints(pairwise.BitOr(), "uint16", "int32"),
    *ints(pairwise.BitXor(), "uint64", "int8"),
    *ints(pairwise.ShiftLeft(), "int8", "uint64"),
    *ints(pairwise.ShiftRight(), "uint16", "int64"),
    *ints(pairwise.WholeQuotient(), *INTS),
    *ints(pairwise.Modulo(), *INTS),
    *ints(pairwise.Remainder(), *INTS),
    *rows(pairwise.Modulo(), 5, 5),
    *rows(pairwise.Remainder(), 5, 5),
    *ints(pairwise.PowerOf(), "int32", "int64", "uint8", "uint64"),
    *rows(pairwise.PowerOf(), 5, 5, tolerance=1e-15, why=LIBM),
    # --- flour/ops/unary.py
    *rows(unary.Asin(), 5, tolerance=1e-15, why=LIBM),
    *rows(unary.Acos(), 5, tolerance=1e-15, why=LIBM),
    *rows(unary.Atan(), 5, tolerance=1e-15, why=LIBM),
    *rows(unary.Asinh(), 5, tolerance=1e-15, why=LIBM),
    *rows(unary.Acosh(), 5, tolerance=1e-15, why=LIBM),
    *rows(unary.Atanh(), 5, tolerance=1e-15, why=LIBM),
    *rows(unary.IsInfinite(), 5),
    *rows(unary.IsInfinite(above=False), 5),
    Case(unary.Not(), (Vector(5, "bool"),)),
    *ints(unary.BitNot(), "uint8", "int64", widths=(5,)),
    # --- flour/ops/segments.py
    *rows(segments.SegmentSum(4), 12, tolerance=1e-15, why=REASSOCIATES, odd=False),
    *ints(segments.SegmentSum(4), "int32", "uint64", widths=(12,)),
    *rows(segments.SegmentProduct(3), 12, tolerance=1e-15, why=REASSOCIATES, odd=False),
    *ints(segments.SegmentProduct(3), "uint8", widths=(12,)),
    *rows(segments.SegmentMax(4), 12),
    *rows(segments.SegmentMin(4), 12),
    *ints(segments.SegmentMax(4), "uint64", widths=(12,)),
    *ints(segments.SegmentMin(4), "int8", widths=(12,)),
    *(
        case
        for smallest in (False, True)
        for last in (False, True)
        for case in rows(segments.SegmentPlace(4, smallest, last), 12, label=f"-{smallest}-{last}")
    ),
    *(
        case
        for own in (False, True)
        for back in (False, True)
        for case in rows(
            segments.RunningSum(4, own, back),
            8,
            tolerance=1e-15,
            why=REASSOCIATES,
            odd=False,
            label=f"-{own}-{back}",
        )
    ),
    *ints(segments.RunningSum(4), "int32", widths=(8,)),
    *rows(segments.TopPlaces(6, 3), 12),
    *rows(segments.TopPlaces(6, 6, smallest=True), 12),
    *ints(segments.TopPlaces(6, 2), "uint64", widths=(12,)),
    # --- flour/ops/indexed.py
    Case(indexed.PickAt(), (Vector(5), Vector(3, "int64")), draw=below_one),
    Case(indexed.PickAt(), (Vector(5, "float32"), Vector(3, "int32")), draw=below_one),
    Case(indexed.InRange(4), (Vector(3, "int64"),), draw=indices(4), odd=False),
    Case(indexed.InRange(4), (Scalar("int64"),), draw=indices(4), odd=False),
    *(
        Case(
            indexed.PutAt(how),
            (Vector(5), Vector(3, "int64"), Vector(3)),
            draw=below_one,
            label=f"-{how}",
        )
        for how in indexed.REDUCTIONS
    ),
    *rows(indexed.MatrixProducts(2, 3, 2), 12, 12, tolerance=1e-15, why=REASSOCIATES, odd=False),
    *ints(indexed.MatrixProducts(2, 3, 2), "int32", widths=(12, 12)),
]
