"""The few questions every type rule asks, so that all of them complain in the same words."""

from __future__ import annotations

from typing import TypeGuard

from flour.core.errors import TypeMismatch
from flour.core.types import (
    FLOATS,
    Category,
    Pairs,
    Record,
    Scalar,
    Text,
    Tokens,
    Type,
    Vector,
    Whole,
)


def expect(fine: object, what: str, hint: str | None = None) -> None:
    """Raise TypeMismatch unless `fine`."""
    if not fine:
        raise TypeMismatch(what, hint=hint)


def vector(kind: Type, who: str, width: int | None = None) -> Vector:
    """The type, which must be a numeric vector, as wide as the parameters if that is given."""
    if not isinstance(kind, Vector):
        raise TypeMismatch(f"{who} needs a vector, got {kind}", hint=_to_vector(kind))
    if kind.dtype == "string":
        raise TypeMismatch(f"{who} needs numbers, got {kind}", hint="encode the strings first")
    if width is not None:
        fitted(width, kind, who)
    return kind


def numeric(kind: Type, who: str) -> Vector | Scalar:
    """The type, which must be a number or a vector of numbers."""
    if isinstance(kind, Scalar):
        if kind.dtype == "string":
            raise TypeMismatch(f"{who} needs numbers, got {kind}", hint=_to_vector(kind))
        return kind
    return vector(kind, who)


def tokens(kind: Type, who: str) -> None:
    """The type must be a list of words."""
    expect(isinstance(kind, Tokens), f"{who} needs tokens, got {kind}", "call tokenize() first")


def pairs(kind: Type, who: str) -> None:
    """The type must be names with numbers."""
    expect(isinstance(kind, Pairs), f"{who} needs pairs, got {kind}", "start from flour.pairs()")


def text(kind: Type, who: str) -> None:
    """The type must be a document."""
    fine = isinstance(kind, Text) or is_string(kind)
    expect(fine, f"{who} needs text, got {kind}")


def is_string(kind: Type) -> TypeGuard[Scalar | Category]:
    """True if it is one string per row."""
    return isinstance(kind, Scalar | Category) and kind.dtype == "string"


def holds_text(kind: Type) -> bool:
    """True if the values are documents or strings."""
    return isinstance(kind, Text) or getattr(kind, "dtype", "") == "string"


def is_float(kind: Vector | Scalar) -> bool:
    """True if the values are floats."""
    return kind.dtype in FLOATS


def fitted(width: int, kind: Vector, who: str) -> None:
    """The vector must be as wide as the operator's parameters."""
    expect(
        kind.width == width,
        f"{who} was fitted on {width} columns, got {kind.width}",
        "was a column dropped or added before this step?",
    )


def _to_vector(kind: Type) -> str:
    match kind:
        case Text() | Tokens():
            return "turn the text into features first: tokenize().word_ngrams(...)"
        case Pairs():
            return "look the names up first: named_values([...]) or hashed_values(1024)"
        case Record():
            return "pick columns first: record['name'] or record.columns([...])"
        case Whole():
            return "a value for all rows is no column; only onnxruntime reads it"
        case Scalar(dtype="string") | Category():
            return "encode the category first: one_hot([...]) or ordinal([...])"
        case _:
            return "make it a vector: flour.concat(a, b, ...)"
