"""Users' own Python functions, called inside the plan where the import allowed it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.callables import Function
from flour.core.check import text, vector
from flour.core.errors import FunctionFailed, ParameterError
from flour.core.op import Columns, Op
from flour.core.types import Text, Tokens, Type, Vector
from flour.data.frames import frame


class Python(Op, abstract=True):
    """A function that is called while predicting; it stays Python, and holds the interpreter."""

    method = ""
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

    With `names` the function gets a pandas frame with these columns, else an array.
    """

    width: int
    dtype: str = "float64"
    names: tuple[str, ...] = ()

    def infer(self, x: Type) -> Vector:
        kind = vector(x, self.name)
        if self.names and len(self.names) != kind.width:
            raise ParameterError("every column has a name", found=f"{kind.width} columns")
        return Vector(self.width, self.dtype)

    def mixes_rows(self) -> bool:
        """True: the function may look at several rows at once."""
        return True

    def reference(self, x: Columns) -> Columns:
        array = self.answer(x)
        if array.shape != (len(x), self.width) or not np.can_cast(array.dtype, self.dtype):
            want = f"{self.dtype} {(len(x), self.width)}"
            raise self.failed(f"{array.dtype} {array.shape}, where the sample gave {want}")
        return array.astype(self.dtype, copy=False)

    def answer(self, x: Columns) -> NDArray[Any]:
        """The function's result for these rows as an array, not checked yet."""
        rows = x.copy()  # the function may write into it
        return np.asarray(self.call(frame(rows, self.names) if self.names else rows))
