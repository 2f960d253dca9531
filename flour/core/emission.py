"""The means of writing native code: the values of one row, and the emitter's vocabulary.

A stage is a loop over rows. Inside it a scalar is a local variable (`ScalarValue`) and a vector
is a sequence of parts (`VectorValue`): a part that can say its j-th element (`at`) costs nothing
until it is read, so fusing is calling and a concatenation is a list. A part without `at`
(sparse) can only push the elements that are not zero.

    x.each(lambda j, v: e.line(f"{acc} += {v}"))     every element (or stored element), in order
    y = e.map(x, lambda j, v: f"({v} * 2.0)")        a new vector, computed where it is read
    z = e.hold(x)                                    the same vector, written to scratch once

The `j` handed to functions is the column number in the whole vector, as an expression; asking for
an element emits lines that compute it, so ask inside the loop that uses it. Everything emitted is a
Python expression or statement over int64 addresses and numbers, in the vocabulary that
`oven.compiler.native` compiles (docs/contributing/native-code.md); widths, addresses and fitted
numbers come from the parameter table, so the text depends on structure alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from flour.core.op import Parameter
from flour.core.types import Type


class Room(NamedTuple):
    """Memory whose size depends on the data: `each` for every byte of the longest row, and `fixed`.

    Never more than `most`. Used as well for numbers of things. Rows are as long as their document,
    or as their words with a byte between them.
    """

    each: int
    fixed: int
    most: int = 2**62

    def times(self, factor: int) -> Room:
        """Room for `factor` times as much."""
        return Room(self.each * factor, self.fixed * factor, min(self.most * factor, 2**62))


At = Callable[[str], str]
Push = Callable[[str, str], None]


class ScalarValue(NamedTuple):
    """One number per row: an expression that is cheap to repeat (a local or a literal).

    A string is the address of its cell: two int64, where its UTF-8 bytes are and how many. A
    length of -1 is None, of -2 NaN.
    """

    expr: str
    dtype: str


class ColumnRun(NamedTuple):
    """A run of consecutive columns of a vector, `size` of them from column `start`.

    `at` takes the position within the part and may emit lines; `each` pushes (column number in
    the whole vector, value).
    """

    start: str
    size: str
    at: At | None
    each: Callable[[Push], None]
    #: `at` is one load from memory, so asking twice costs nothing.
    stored: bool = False
    #: Of a part without `at` that has its elements in the order of the columns (in ordered code)
    #: and none twice: how many are stored at most.
    most: Room | None = None


class VectorValue(NamedTuple):
    """The columns of one row, as parts in order."""

    dtype: str
    width: int
    size: str
    parts: tuple[ColumnRun, ...]

    def each(self, push: Push) -> None:
        """Emit code that pushes every element (of sparse parts: every stored one), in order."""
        for part in self.parts:
            part.each(push)

    @property
    def dense(self) -> bool:
        """True if every part can say any of its elements."""
        return all(part.at is not None for part in self.parts)


class TextValue(NamedTuple):
    """A document: where its UTF-8 bytes are, and how many. Sixteen bytes behind it may be read.

    It has at most `growth` times the bytes of the longest row.
    """

    where: str
    size: str
    growth: int


class TokensValue(NamedTuple):
    """Words: a list of slices of the bytes from `base` on (see oven.compiler.intrinsics.text), and
    their number.

    `most` says how many there are at most, `joined` how many bytes they take with a byte more each.
    """

    base: str
    slices: str
    number: str
    most: Room
    joined: Room


class PairsValue(NamedTuple):
    """Names and numbers: slices of the bytes from `base` on, as many float64, and their number.

    `most` says how many there are at most.
    """

    base: str
    slices: str
    number: str
    values: str
    most: Room


RowValue = ScalarValue | VectorValue
#: A value that one operator hands to the next; documents and words stay inside a stage.
Value = RowValue | TextValue | TokensValue | PairsValue


class Column(NamedTuple):
    """A column of a block: the address of row 0, the bytes from row to row, and its type."""

    base: str
    stride: str
    type: Type
    size: str

    def row(self, i: str) -> str:
        """The address of row `i`."""
        return f"({self.base} + {i} * {self.stride})"


class Emitter(Protocol):
    """The vocabulary an operator writes its native code with."""

    exact: bool
    #: Sparse vectors have to push their elements in the order of the columns.
    ordered: bool
    #: Memory counts, so tables are small: without those for many rows at once ("rows"), or with
    #: them ("blocks"); empty where time counts alone.
    lean: str
    #: The number of rows of the block (kernels only).
    rows: str

    def line(self, text: str) -> None:
        """One statement."""

    def fresh(self, stem: str = "v") -> str:
        """A local name that is not used elsewhere."""

    def let(self, expr: str, dtype: str) -> ScalarValue:
        """Evaluate once, into a new local."""

    def var(self, expr: str, stem: str = "a") -> str:
        """A new local that will be assigned again."""

    def loop(self, count: str, start: str = "0") -> AbstractContextManager[str]:
        """`for j in range(start, count):`, giving the name of j."""

    def block(self, header: str) -> AbstractContextManager[None]:
        """Any compound statement: `if ...:`, `while ...:`, `else:`."""

    def address(self, parameter: Parameter, dtype: str | None = None) -> str:
        """A local holding where the parameter's values are (converted to dtype at bake time)."""

    def at(self, parameter: Parameter, index: str, dtype: str | None = None) -> str:
        """Element `index` of a parameter; a parameter of one element is a loop-invariant local."""

    def size(self, number: int) -> str:
        """A local holding an integer that differs between programs of one structure."""

    def number(self, value: float, dtype: str) -> str:
        """A local holding a number that differs between programs of one structure."""

    def load(self, base: str, index: str, dtype: str, *, constant: bool = False) -> str:
        """Element `index` at an address (`constant`: not written during the call)."""

    def store(self, base: str, index: str, value: str, dtype: str) -> None:
        """Write element `index` at an address."""

    def cast(self, expr: str, source: str, target: str) -> str:
        """The expression converted from one dtype to another, as numpy converts."""

    def add(self, accumulator: str, term: str, dtype: str = "float64") -> None:
        """accumulator += term, in any order unless the program must be exact."""

    def scratch(self, dtype: str, count: int) -> str:
        """A local holding the address of `count` elements that live for one row (or block)."""

    def room(self, room: Room) -> str:
        """A local holding the address of memory for one row, as much as the data needs."""

    def hold(self, value: VectorValue) -> VectorValue:
        """This vector, dense, written to scratch once."""

    def keep(self, value: VectorValue) -> VectorValue:
        """This vector, written to scratch once: of sparse parts, the stored numbers only."""

    def indexable(self, value: VectorValue) -> At:
        """A way to read any element cheaply, any number of times (held if it has to be)."""

    def map(
        self,
        function: Callable[..., str],
        *values: RowValue,
        dtype: str,
        width: int,
        keeps_zero: bool = False,
    ) -> VectorValue:
        """A vector whose element j is function(j, element j of each value); scalars repeat.

        With `keeps_zero`, sparse parts stay sparse; otherwise they are held first.
        """

    def dense(
        self, dtype: str, width: int, at: At, *, size: str | None = None, stored: bool = False
    ) -> VectorValue:
        """A vector that says its elements (`stored`: each is one load)."""

    def sparse(
        self,
        dtype: str,
        width: int,
        each: Callable[[Push], None],
        *,
        size: str | None = None,
        most: Room | None = None,
    ) -> VectorValue:
        """A vector that pushes its stored elements as (column, value), `most` of them."""

    def joined(self, values: Sequence[RowValue], dtype: str, width: int) -> VectorValue:
        """The values side by side, nothing copied."""
