"""Users' own Python functions, called inside the plan where the import allowed it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.callables import Function
from flour.core.check import text, vector
from flour.core.errors import FunctionFailed, ParameterError, TypeMismatch
from flour.core.op import Columns, Op
from flour.core.types import Record, Scalar, Text, Tokens, Type, Vector
from flour.data.frames import as_column, frame, frame_columns


class Python(Op, abstract=True, method=""):
    """A function that is called while predicting; it stays Python, and holds the interpreter."""

    function: object

    def check(self) -> None:
        if not isinstance(self.function, Function):
            raise ParameterError("a Python stage needs a function", found=repr(self.function)[:80])

    def remark(self) -> str:
        return self._function().name

    def _function(self) -> Function:
        assert isinstance(self.function, Function), "checked when it was made"
        return self.function

    def call(self, argument: object) -> Any:
        """The function's result; an error of its own says which function raised it."""
        try:
            return self._function().call(argument)
        except Exception as problem:
            raise self.failed(f"{type(problem).__name__}: {problem}", argument) from problem

    def failed(self, problem: str, argument: object = "") -> FunctionFailed:
        """The error for what the function did."""
        of = f", of {argument[:40]!r}" if isinstance(argument, str) and argument else ""
        return FunctionFailed(
            "a Python function of this program failed",
            found=f"{self._function().name}: {problem}"[:200] + of,
            hint="call it with the same argument; the program calls it as the library would",
        )


class PythonText(Python):
    """Each document, changed by a function of the user's own."""

    def infer(self, x: Type) -> Text:
        text(x, self.name)
        return Text()

    def reference(self, x: Columns) -> Columns:
        texts = np.empty(len(x), object)
        for i, document in enumerate(x):
            texts[i] = self._one(document)
        return texts

    def _one(self, document: str) -> str:
        text = self.call(document)
        if not isinstance(text, str):
            raise self.failed(f"{type(text).__name__} where a str was expected", document)
        return str.__str__(text)


class PythonWords(Python):
    """Each document's words, found by a function of the user's own.

    With `lenient`, values that are no str are left out, as no vocabulary has them.
    """

    lenient: bool = False

    def infer(self, x: Type) -> Tokens:
        text(x, self.name)
        return Tokens()

    def reference(self, x: Columns) -> Columns:
        return [self._one(document) for document in x]

    def _one(self, document: str) -> list[str]:
        result = self.call(document)
        if not isinstance(result, Iterable):
            raise self.failed(f"{type(result).__name__} where words were expected", document)
        try:
            words = list(result)  # a generator does its work, and may fail, only now
        except Exception as problem:
            raise self.failed(f"{type(problem).__name__}: {problem}", document) from problem
        strange = [word for word in words if not isinstance(word, str)]
        if strange and not self.lenient:
            raise self.failed(f"{type(strange[0]).__name__} among its words", document)
        return [str.__str__(word) for word in words if isinstance(word, str)]


class PythonColumns(Python):
    """All rows, transformed by a function of the user's own into `width` columns.

    With `names` the function gets a pandas frame with these columns, or with `series` the only one
    of them, else an array. Columns of several dtypes are inputs of their own. What it answers in
    several dtypes, or as a frame, is a record of columns, which `gives` lists. Strings of a `width`
    of 0 are one a row, as text vectorisers take them.
    """

    width: int
    dtype: str = "float64"
    names: tuple[str, ...] = ()
    series: bool = False
    gives: tuple[tuple[str, str], ...] = ()

    def infer(self, *inputs: Type) -> Type:
        width = len(inputs)
        if width == 1 and isinstance(inputs[0], Vector):
            width = vector(inputs[0], self.name).width
        elif not all(isinstance(kind, Scalar | Text) for kind in inputs):
            raise TypeMismatch(f"{self.name} needs a vector, got {', '.join(map(str, inputs))}")
        if self.names and len(self.names) != width:
            raise ParameterError("every column has a name", found=f"{width} columns")
        if self.gives:
            fields = tuple((name, Scalar(dtype)) for name, dtype in self.gives)
            return Record(fields, positional=self.dtype == "object")
        return Vector(self.width, self.dtype) if self.width else Scalar(self.dtype)

    def mixes_rows(self) -> bool:
        """True: the function may look at several rows at once."""
        return True

    def reference(self, *inputs: Columns) -> Columns:
        answer = self.answer(*inputs)
        if not self.gives:
            shape = (len(inputs[0]), self.width)[: 1 + (self.width > 0)]
            return self._fitting(np.asarray(answer), self.dtype, *shape)
        columns = columns_of(answer)
        if [*columns] != [name for name, _ in self.gives]:
            raise self.failed(f"columns {[*columns]}, where the sample gave {self.gives}"[:150])
        kinds = self.gives
        return {name: self._fitting(columns[name], kind, len(inputs[0])) for name, kind in kinds}

    def _fitting(self, array: NDArray[Any], dtype: str, *shape: int) -> NDArray[Any]:
        """An answer, if it has the shape and dtype that the sample has shown."""
        if array.dtype == object and dtype != "string":
            with suppress(TypeError, ValueError):
                array = array.astype(dtype)
        texts = dtype == "string"
        alike = array.dtype.kind in "OU" if texts else np.can_cast(array.dtype, dtype)
        if array.shape != shape or not alike:
            want = f"{dtype} {shape}"
            raise self.failed(f"{array.dtype} {array.shape}, where the sample gave {want}")
        return array.astype(object if texts else dtype, copy=False)

    def answer(self, *inputs: Columns) -> Any:
        """The function's result for these rows, a frame or an array, not checked yet."""
        rows = [each.copy() for each in inputs]  # the function may write into it
        argument = rows[0]
        if self.names:
            argument = frame(argument if argument.ndim == 2 else rows, self.names)
            argument = argument[self.names[0]] if self.series else argument
        elif argument.ndim == 1 and not self.series:
            argument = np.stack(rows, axis=1, dtype=object, casting="unsafe")
        found = self.call(argument)
        return found if hasattr(found, "columns") else np.asarray(found)


def columns_of(answer: object) -> dict[str, NDArray[Any]]:
    """The columns of a function's answer: those of a frame by name, of an array by number."""
    columns = frame_columns(answer)
    if columns is None:
        columns = {f"x{j}": column for j, column in enumerate(np.asarray(answer).T)}
    return {name: as_column(column) for name, column in columns.items()}
