"""Arrays, scalars and types of numpy in pickles and in files of joblib, of all its versions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from flour.pickles.standins import Damaged, Purse, StandIn, Unfinished

Array = NDArray[Any]
Order = Literal["C", "F"]
_CODE = re.compile(r"[<>|=]?(?:[?bBhHiIlLqQefdgFDGO]|[biufcSUVO]\d+|[mM]8(?:\[\w+\])?)")
#: How deep arrays of objects may hold one another directly.
_NESTED = 64


def named(module: str, name: str) -> Any:
    """A type of numbers or a function of numpy over elements; None for other names."""
    if module not in ("numpy", "numpy.core._multiarray_umath", "numpy._core._multiarray_umath"):
        return None
    # Not getattr, for which numpy imports modules of its own.
    found = vars(np).get({"bool": "bool_", "str": "str_"}.get(name, name))
    is_number = isinstance(found, type) and issubclass(found, np.generic | np.ndarray)
    return found if is_number or isinstance(found, np.ufunc) or name == "clip" else None


# --- types ---------------------------------------------------------------------------------------


def _dtype(world: Purse, code: object, *_: object) -> Unfinished | np.dtype[Any]:
    """The call `numpy.dtype(code, align, copy)`, whose state follows."""
    kind = _simple(code)
    return Unfinished(lambda state: _with_state(world, kind, state))


def _simple(code: object) -> np.dtype[Any]:
    if isinstance(code, type) and issubclass(code, np.generic):
        return np.dtype(code)
    if not isinstance(code, str) or not _CODE.fullmatch(code):
        raise Damaged(f"{str(code)[:40]!r} is no type of numpy")
    return np.dtype(code)


def _with_state(world: Purse, kind: np.dtype[Any], state: object) -> np.dtype[Any]:
    """A type in the byte order, and with the fields, that its state says."""
    if not isinstance(state, tuple) or len(state) < 5:
        raise Damaged("a type of numpy has another state")
    _, order, subtype, names, fields = state[:5]
    if subtype is not None:
        base, shape = subtype
        return np.dtype((dtype_of(base), shape))
    if names is None:
        return kind.newbyteorder(order) if order in ("<", ">") else kind
    if not isinstance(fields, Mapping) or len(state) < 6:
        raise Damaged("the fields of a type of numpy are no mapping")
    world.pay(len(names))
    some = [fields[name] for name in names]
    return np.dtype(
        {
            "names": [*names],
            "formats": [dtype_of(field[0]) for field in some],
            "offsets": [field[1] for field in some],
            "itemsize": state[5],
        }
    )


def dtype_of(value: object) -> np.dtype[Any]:
    """A type of numpy that has its state."""
    if isinstance(value, np.dtype):
        return value
    raise Damaged("a type of numpy is something else")


# --- arrays --------------------------------------------------------------------------------------


def _array(world: Purse, *_: object) -> Unfinished:
    """The call `numpy.core.multiarray._reconstruct(ndarray, (0,), b"b")`, whose state follows."""
    return Unfinished(lambda state: _of_state(world, state))


def _of_state(world: Purse, state: object) -> Array:
    if not isinstance(state, tuple) or len(state) not in (4, 5):
        raise Damaged("an array has another state")
    shape, kind, by_columns, values = state[-4:]
    return _filled(world, shape, dtype_of(kind), values, "F" if by_columns else "C")


def _of_buffer(
    world: Purse, values: object, kind: object, shape: object, order: Order = "C"
) -> Array:
    """The call `numpy.core.numeric._frombuffer`, of protocol 5."""
    return _filled(world, shape, dtype_of(kind), values, "F" if order == "F" else "C")


def _filled(
    world: Purse, shape: object, kind: np.dtype[Any], values: object, order: Order
) -> Array:
    shape = (shape,) if isinstance(shape, int) else shape
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise Damaged("the shape of an array is none")
    count = prod(shape)
    if kind.hasobject:
        if not isinstance(values, list) or len(values) != count or kind != np.dtype(object):
            raise Damaged(f"an array of shape {shape} has other values")
        world.pay(count)
        found = np.empty(count, object)
        found[:] = [None] * count
        for at, value in enumerate(values):
            found[at] = value
        _check_depth(values)
        whole: Array = found.reshape(shape, order=order)
        return whole
    if isinstance(values, str):  # written by Python 2
        values = values.encode("latin-1")
    if not isinstance(values, bytes | bytearray) or len(values) != count * kind.itemsize:
        raise Damaged(f"an array of shape {shape} has other values")
    return of_bytes(world, bytes(values), kind, shape, order)


def of_bytes(
    world: Purse, raw: bytes | memoryview, kind: np.dtype[Any], shape: tuple[int, ...], order: Order
) -> Array:
    """An array over these bytes; a copy where they are not aligned."""
    if not kind.itemsize:
        world.pay(prod(shape))
        return np.zeros(shape, kind)
    found: Array = np.frombuffer(raw, kind)
    if not found.flags.aligned:
        world.pay(found.nbytes)
        found = found.copy()
    whole: Array = found.reshape(shape, order=order)
    return whole


def _check_depth(values: list[Any]) -> None:
    """Refuse arrays of objects that hold each other too deeply to be taken apart again."""
    for _ in range(_NESTED):
        values = [
            each
            for value in values
            if isinstance(value, np.ndarray) and value.dtype.hasobject
            for each in value.flat
        ]
        if not values:
            return
    raise Damaged("arrays within arrays are nested too deeply")


def _scalar(world: Purse, kind: object, value: object = None) -> Any:
    """The call `numpy.core.multiarray.scalar(dtype, bytes)`."""
    kind = dtype_of(kind)
    return value if kind.hasobject else _filled(world, (1,), kind, value, "C")[0]


def _ufunc(_: object, __: object, name: object) -> Any:
    found = named("numpy", str(name))
    if not isinstance(found, np.ufunc):
        raise Damaged(f"{str(name)[:40]!r} is no function of numpy")
    return found


# --- joblib --------------------------------------------------------------------------------------


class Described(StandIn, names="joblib.NumpyArrayWrapper"):
    """An array in a file of joblib, whose bytes come next."""

    subclass: Any
    shape: Any
    order: Any
    dtype: Any
    numpy_array_alignment_bytes: int | None = None

    def checked(self) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """The type and the shape of the array, once they can be ones."""
        if not isinstance(self.shape, tuple) or not all(
            type(n) is int and n >= 0 for n in self.shape
        ):
            raise Damaged("the shape of an array is none")
        return dtype_of(self.dtype), self.shape


def makers() -> dict[tuple[str, str], Callable[..., Any]]:
    """The functions of numpy that pickles call."""
    cores = ("numpy.core", "numpy._core")
    return {
        ("numpy", "dtype"): _dtype,
        **{(f"{core}.multiarray", "_reconstruct"): _array for core in cores},
        **{(f"{core}.multiarray", "scalar"): _scalar for core in cores},
        **{(f"{core}.numeric", "_frombuffer"): _of_buffer for core in cores},
        **{(core, "_ufunc_reconstruct"): _ufunc for core in cores},
        **{(f"{core}._multiarray_umath", "scalar"): _scalar for core in cores},
    }
