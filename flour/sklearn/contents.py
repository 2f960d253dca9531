"""The steps of an estimator, in memory or read as data: their kinds, parameters and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from flour.language.adapters import NOT_NATIVE, adapter_of, public_name
from flour.pickles.standins import Global
from flour.sklearn.importer import BOOSTERS

#: Where an estimator keeps others that it has fitted.
_INNER = (
    *("best_estimator_", "estimators_", "estimator_", "regressor_"),
    *("calibrated_classifiers_", "transformer_", "estimator"),
)
_PLAIN = (int, float, str, bool, np.generic, Global)
#: How many steps are listed, and how many values are looked at for their sizes.
_MOST, _MOST_VALUES = 200, 1_000_000


class StepContents(NamedTuple):
    """One estimator within a model."""

    step: str
    kind: str
    parameters: dict[str, str]
    bytes: int
    native: bool
    reason: str
    """Why there is no native code for it; empty if there is."""


def steps(estimator: object, path: str = "", most: int = _MOST) -> list[StepContents]:
    """An estimator and, below it, those that it is made of."""
    found = [_step(estimator, path)]
    for name, child in _children(estimator):
        if len(found) < most:
            found += steps(child, f"{path}.{name}".lstrip("."), most - len(found))
    return found


def _children(estimator: object) -> Iterator[tuple[str, Any]]:
    own = vars(estimator)
    named = own.get("steps") or own.get("transformers_") or own.get("transformer_list") or ()
    members = own.get("estimators")
    if isinstance(members, list) and len(own.get("estimators_", ())) == len(members):
        named = [(name, each) for (name, *_), each in zip(members, own["estimators_"], strict=True)]
    for name, child, *_ in named:
        if hasattr(child, "__dict__"):
            yield name, child
    for name in ("final_estimator_",) if named else _INNER:
        value = own.get(name)
        several = [*np.ravel(value)] if isinstance(value, list | np.ndarray) else [value]
        if several and hasattr(several[0], "__dict__") and not isinstance(several[0], type):
            yield f"{name} ({len(several)})" if len(several) > 1 else name, several[0]
            return


def _step(estimator: object, path: str) -> StepContents:
    kind = public_name(type(estimator))
    own, name = kind.startswith("sklearn."), kind.rpartition(".")[2]
    # Private classes are parts of the estimator that holds them.
    native = adapter_of(kind) is not None or kind in BOOSTERS or (own and name[0] == "_")
    parameters = {
        name: str(value)[:80]
        for name, value in vars(estimator).items()
        if name[0] != "_" and name[-1] != "_" and isinstance(value, _PLAIN)
    }
    reason = "" if native else NOT_NATIVE.get(kind, "there is no importer for it")
    return StepContents(path, kind, parameters, _size(estimator), native, reason)


def _size(value: object) -> int:
    """The bytes of arrays and texts in an object, each counted once."""
    rest, seen, size = [value], set[int](), 0
    while rest and len(seen) < _MOST_VALUES:
        each: Any = rest.pop()
        if id(each) in seen or isinstance(each, type):
            continue
        seen.add(id(each))
        size += each.nbytes if isinstance(each, np.ndarray) else 0
        if isinstance(each, bytes | str):
            size += len(each)
        elif isinstance(each, np.ndarray):
            rest += [*each.flat] if each.dtype.hasobject else []
        elif isinstance(each, list | tuple | set):
            rest += each
        elif isinstance(each, dict):
            rest += (*each, *each.values())
        else:
            rest += getattr(each, "__dict__", {}).values()
    return size
