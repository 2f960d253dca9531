"""Functions of users' own, run by Python inside the plan, where whoever imported them said so."""

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
        return self._known().name

    def _known(self) -> Function:
        assert isinstance(self.function, Function), "checked when it was made"
        return self.function

    def call(self, argument: object) -> Any:
        """What the function answers; an error of its own says whose it is."""
        try:
            return self._known().call(argument)
        except Exception as problem:
            raise self.failed(f"{type(problem).__name__}: {problem}", argument) from problem

    def failed(self, said: str, argument: object = "") -> FunctionFailed:
        """The error for what the function did."""
        of = f", of {argument[:40]!r}" if isinstance(argument, str) and argument else ""
        return FunctionFailed(
            "a Python function of this program failed",
            found=f"{self._known().name}: {said}"[:200] + of,
            hint="call it with the same argument; the program calls it as the library would",
        )


class PythonText(Python):
    """Each document as a function of the user's own changes it."""

    def infer(self, x: Type) -> Text:
        text(x, self.name)
        return Text()

    def reference(self, x: Columns) -> Columns:
        made = np.empty(len(x), object)
        for i, document in enumerate(x):
            made[i] = self._one(document)
        return made

    def _one(self, document: str) -> str:
        made = self.call(document)
        if not isinstance(made, str):
            raise self.failed(f"{type(made).__name__} where a str was expected", document)
        return str.__str__(made)


class PythonWords(Python):
    """Each document's words as a function of the user's own finds them.

    What is no str among them is left out by `lenient` ones, as no vocabulary has it.
    """

    lenient: bool = False

    def infer(self, x: Type) -> Tokens:
        text(x, self.name)
        return Tokens()

    def reference(self, x: Columns) -> Columns:
        return [self._one(document) for document in x]

    def _one(self, document: str) -> list[str]:
        made = self.call(document)
        if not isinstance(made, Iterable):
            raise self.failed(f"{type(made).__name__} where words were expected", document)
        try:
            words = list(made)  # a generator does its work, and may fail, only now
        except Exception as problem:
            raise self.failed(f"{type(problem).__name__}: {problem}", document) from problem
        strange = [word for word in words if not isinstance(word, str)]
        if strange and not self.lenient:
            raise self.failed(f"{type(strange[0]).__name__} among its words", document)
        return [str.__str__(word) for word in words if isinstance(word, str)]


class PythonColumns(Python):
    """All rows as a function of the user's own transforms them, into so many columns.

    With `names` it is handed a pandas frame of these columns, else an array.
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
        """Nobody knows whether the function looks at one row alone."""
        return True

    def reference(self, x: Columns) -> Columns:
        made = self.answer(x)
        if made.shape != (len(x), self.width) or not np.can_cast(made.dtype, self.dtype):
            want = f"{self.dtype} {(len(x), self.width)}"
            raise self.failed(f"{made.dtype} {made.shape}, where the sample gave {want}")
        return made.astype(self.dtype, copy=False)

    def answer(self, x: Columns) -> NDArray[Any]:
        """What the function makes of these rows, whatever it is."""
        given = x.copy()  # which it may write into
        return np.asarray(self.call(frame(given, self.names) if self.names else given))
