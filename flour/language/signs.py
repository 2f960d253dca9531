"""Python's signs between two flows, and between a flow and a number: x + y, age > 30, a & ~b.

One table says which operator each sign is. Rules for dtypes are numpy's: two flows meet in their
common dtype, and a plain Python number takes the dtype of the flow it meets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar, Union

import numpy as np
from numpy.typing import ArrayLike

from flour.core.check import holds_text
from flour.core.errors import ParameterError, TypeMismatch
from flour.core.types import FLOATS, Scalar, Type, Vector
from flour.language.shorthands import Shorthands

if TYPE_CHECKING:
    from typing_extensions import Self  # Python 3.11 has it

#: The other side of an operation on a flow.
Operand: TypeAlias = Union["Signs", ArrayLike]
S = TypeVar("S", bound="Signs")


def _sign(
    pair: str, fitted: str = "", *, bools: str = "", texts: str = "", turned: bool = False
) -> Callable[[S, Operand], S]:
    """The method of a sign: the operator of two flows, and that of a flow and fitted numbers.

    `bools` and `texts` are the operators of two flows of those; `turned` swaps the two sides.
    """

    def method(self: S, other: Operand) -> S:
        if isinstance(other, Signs) or not fitted:
            return self._met(other, pair, bools, texts, turned=turned)
        if fitted == "Equal" and holds_text(self.type):
            return self.isin([other])
        array = self._array(other)
        if fitted in _COMPARISONS:
            return self._apply(fitted, (), operand=array)
        if not self._floats() or (fitted == "Power" and array.ndim):
            return self._met(other, pair, turned=turned)
        return self._apply(fitted, (), **{"exponent" if fitted == "Power" else "operand": other})

    return method


def _dtype(kind: Type) -> str:
    """The dtype of numbers or strings; empty for other types."""
    return str(getattr(kind, "dtype", ""))


_COMPARISONS = ("Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual")


class Signs(Shorthands):
    """The signs of Python as methods of a flow."""

    __slots__ = ()

    #: numpy arrays leave `array + flow` to us instead of making an array of flows.
    __array_ufunc__ = None

    __add__ = _sign("Plus", "Add", texts="JoinTexts")
    __radd__ = _sign("Plus", "Add", turned=True)
    __sub__ = _sign("Minus", "Subtract")
    __mul__ = _sign("Times", "Multiply")
    __rmul__ = _sign("Times", "Multiply", turned=True)
    __truediv__ = _sign("Over", "Divide")
    __rtruediv__ = _sign("Over", "Quotient", turned=True)
    __mod__ = _sign("Modulo")
    __rmod__ = _sign("Modulo", turned=True)
    __pow__ = _sign("PowerOf", "Power")
    __rpow__ = _sign("PowerOf", turned=True)
    __and__ = __rand__ = _sign("BitAnd", bools="Both")
    __or__ = __ror__ = _sign("BitOr", bools="Either")
    __xor__ = __rxor__ = _sign("BitXor", bools="OnlyOne")
    __lshift__ = _sign("ShiftLeft")
    __rlshift__ = _sign("ShiftLeft", turned=True)
    __rshift__ = _sign("ShiftRight")
    __rrshift__ = _sign("ShiftRight", turned=True)
    __gt__ = _sign("Above", "Greater")
    __ge__ = _sign("AtLeast", "GreaterEqual")
    __lt__ = _sign("Above", "Less", turned=True)
    __le__ = _sign("AtLeast", "LessEqual", turned=True)
    __eq__ = _sign("Same", "Equal", texts="SameText")  # type: ignore[assignment]  # a flow, not a bool
    #: By identity: two flows of one program are told apart, as `==` cannot tell.
    __hash__ = object.__hash__

    def __ne__(self, other: Operand) -> Self:  # type: ignore[override]  # a flow, not a bool
        same = isinstance(other, Signs) or holds_text(self.type)
        return ~(self == other) if same else self._apply("NotEqual", (), operand=self._array(other))

    def __rsub__(self, other: ArrayLike) -> Self:
        if not self._floats():
            return self._met(other, "Minus", turned=True)
        return self.negate().add(other)

    def __neg__(self) -> Self:
        return self.negate()

    def __abs__(self) -> Self:
        return self.abs()

    def __invert__(self) -> Self:
        return self._apply("Not" if _dtype(self.type) == "bool" else "BitNot", ())

    def where(self, yes: Operand, no: Operand) -> Self:
        """`yes` where x is true, else `no`: flows, numbers, or two strings."""
        if isinstance(yes, str) and isinstance(no, str):
            return self.cast("int64")._apply("TakeText", (), [no, yes])  # noqa: SLF001 (a flow as well)
        sides = [s if isinstance(s, Signs) else self._constant(np.asarray(s)) for s in (yes, no)]
        return self._apply("Where", sides)

    # --- what has no answer before the program runs ----------------------------------------------

    def __bool__(self) -> NoReturn:
        raise self._not_yet(
            "a flow is neither true nor false before the program runs",
            "for and, or, not write &, |, ~ with brackets: (x > 0) & (y < 1); for a choice write "
            "flour.where(x > 0, a, b); programs are compared by their .digest",
        )

    def __iter__(self) -> NoReturn:
        raise self._not_yet(
            "a flow has no items to go through before the program runs",
            "a program's outputs are in .outputs; columns are picked as x[0] or x[:, 2:5]",
        )

    def __contains__(self, item: object) -> NoReturn:
        raise self._not_yet(
            "`in` has no answer before the program runs",
            "a program's outputs are in .outputs; for values write x.isin([...])",
        )

    def _not_yet(self, what: str, hint: str) -> TypeMismatch:
        return TypeMismatch.here(what, found=repr(self), hint=hint)

    # --- both sides in one form ------------------------------------------------------------------

    def _met(
        self, other: Operand, pair: str, bools: str = "", texts: str = "", *, turned: bool = False
    ) -> Self:
        """The operator of two values, on self and the other."""
        met: Any = other if isinstance(other, Signs) else self._constant(self._array(other))
        if texts and holds_text(self.type) and holds_text(met.type):
            pair = texts
        elif bools and {_dtype(self.type), _dtype(met.type)} == {"bool"}:
            pair = bools
        first, second = (met, self) if turned else (self, met)
        made: Self = first._apply(pair, (second,))  # noqa: SLF001 (a flow as well)
        return made

    def _floats(self) -> bool:
        """True if fitted numbers can be used as they are, or an operator has to complain."""
        kind = self.type
        return not isinstance(kind, Scalar | Vector) or kind.dtype in (*FLOATS, "string")

    def _array(self, value: object) -> Any:
        """The numbers that a flow meets; plain Python ones take the flow's dtype if they can."""
        try:
            dtype = _dtype(self.type)
            if isinstance(value, bool | int | float) and dtype not in ("", "string"):
                return np.array(value, np.result_type(np.dtype(dtype), value))
            array = np.asarray(value)
            if array.dtype.kind not in "biuf":
                raise TypeError(f"{type(value).__name__} is no number")
            return array
        except (OverflowError, TypeError, ValueError) as problem:
            raise ParameterError.here(
                f"a flow of {self.type} cannot meet this",
                found=f"{value!r}: {problem}"[:120],
                hint="use a flow, a number or an array of numbers; strings meet only strings",
            ) from None

    def _constant(self, values: Any) -> Self:
        """These numbers for every row."""
        return self._apply("Fill", (), values=values.reshape(-1), scalar=values.ndim == 0)
