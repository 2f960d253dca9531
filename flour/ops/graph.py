"""The operators of graphs: models by name, choices, values that are waited for."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flour.core.callables import Function
from flour.core.check import expect, is_string, numeric
from flour.core.errors import (
    CoroutineEnded,
    FlourError,
    FunctionFailed,
    ParameterError,
    TypeMismatch,
    WrongAnswer,
    check_values,
    is_count,
    is_number,
)
from flour.core.op import Array, Arrays, Columns, Op
from flour.core.reference import row_count
from flour.core.sparse import Sparse, densify
from flour.core.types import Later, Scalar, Type, Vector, promote, width_of
from flour.data.coerce import coerce
from flour.language import late  # noqa: F401 (its methods are for the flows of these operators)

if TYPE_CHECKING:
    from asyncio import Future

    from flour.core.emission import Emitter, RowValue


class ModelCall(Op, method="", takes_later=True):
    """A model of the runtime on some flows; linking a graph puts its program in this place.

    `given` has a name for each flow that is passed by name, "" for the others. A plan that is part
    of the graph has no address: its `outputs` are the last inputs.
    """

    address: str
    given: tuple[str, ...]
    outputs: tuple[str, ...] = ()

    def check(self) -> None:
        if not self.given or bool(self.address) is bool(self.outputs):
            raise ParameterError("a model has an address or a program, and is called on flows")

    def infer(self, *inputs: Type) -> Later:
        expect(len(inputs) == len(self.given) + len(self.outputs), "every flow has a name or none")
        return Later()


class Deferred(Op, method="", takes_later=True):
    """A word of the language on flows whose types are not known yet; linking a graph says it.

    `arguments` are data in which ("flow", 1) stands for the second input, and ("array", 0) for
    the first array: see flour.language.late.
    """

    word: str
    arguments: tuple[object, ...]
    arrays: Arrays = ()

    def infer(self, *_: Type) -> Later:
        return Later()


class Choose(Op, method=""):
    """The value behind the first condition that holds, else the last value.

    Inputs are the conditions, then their values, then what there is otherwise. In a graph, a value
    that takes a model to compute is computed only for the rows that ask for it.
    """

    def infer(self, *inputs: Type) -> Type:
        kinds = [numeric(kind, "a choice") for kind in _choices(inputs)]
        widths = {getattr(kind, "width", 0) for kind in kinds}
        expect(len(widths) == 1, "all values of a choice have one width")
        dtype, width = promote(*(kind.dtype for kind in kinds)), widths.pop()
        return Vector(width, dtype) if isinstance(kinds[0], Vector) else Scalar(dtype)

    def reference(self, *inputs: Columns) -> Columns:
        count = len(inputs) // 2
        made = np.array(inputs[-1], np.result_type(*(x.dtype for x in inputs[count:])))
        for i in reversed(range(count)):
            made[inputs[i]] = inputs[count + i][inputs[i]]
        return made

    def emit(self, e: Emitter, *inputs: RowValue) -> RowValue:
        count = len(inputs) // 2
        dtype = promote(*(value.dtype for value in inputs[count:]))

        def choose(_: str, *parts: str) -> str:
            cells = [e.cast(parts[k], inputs[k].dtype, dtype) for k in range(count, len(parts))]
            made = cells.pop()
            for test, cell in reversed([*zip(parts[:count], cells, strict=True)]):
                made = f"({cell} if {test} else {made})"
            return made

        return e.map(choose, *inputs, dtype=dtype)


class ChooseText(Op, method=""):
    """The string behind the first condition that holds, else the last one."""

    def infer(self, *inputs: Type) -> Scalar:
        expect(all(map(is_string, _choices(inputs))), "strings and numbers share no choice")
        return Scalar("string")

    def reference(self, *inputs: Columns) -> Columns:
        count = len(inputs) // 2
        made = np.array(inputs[-1], object)
        for i in reversed(range(count)):
            made[inputs[i]] = np.asarray(inputs[count + i], object)[inputs[i]]
        return made


def _choices(inputs: Sequence[Type]) -> Sequence[Type]:
    """The types of what is chosen among."""
    count = len(inputs) // 2
    expect(count and len(inputs) % 2, "a choice has a value for each condition, and another one")
    fine = all(isinstance(kind, Scalar) and kind.dtype == "bool" for kind in inputs[:count])
    expect(fine, "a choice needs conditions that are true or false", "compare first: x > 0")
    return inputs[count:]


async def _answer(function: Function, values: tuple[object, ...]) -> object:
    """The answer of a coroutine; however it ends, that is an error of this request alone."""
    coming: Awaitable[object] = function.call(*values)
    try:
        return await coming
    except Exception:
        raise
    except BaseException as problem:
        if _is_from_outside(problem):
            raise
        raise CoroutineEnded from problem


def _is_from_outside(problem: BaseException) -> bool:
    """True if the task was cancelled or closed, or the user wants the process to end."""
    import asyncio  # it takes 30 ms, and most programs wait for nothing

    from flour.core.time_limit import is_cancelled

    if isinstance(problem, KeyboardInterrupt):
        return threading.current_thread() is threading.main_thread()
    if isinstance(problem, SystemExit):
        return False
    cancelled = isinstance(problem, asyncio.CancelledError)
    return not cancelled or is_cancelled(asyncio.current_task())


class Fetch(Op, method="", takes_later=True, later=("within",)):
    """The answer of a user's coroutine for each row: a value that is waited for.

    It gets the values that are read, as Python's values and numpy's vectors; `together`, columns
    of all rows of a request. Of several coroutines, the first to answer counts. An answer that is
    late or fails is asked for again `retries` times, each after twice the pause, and then is
    `otherwise`: a value, or with `spare` the last input. With `per`, the input before it says for
    which client a row is asked, and `limit` is for each client. Numbers outside of `within`, the
    least and the largest of all columns or of each, are no answers, and neither is NaN.
    """

    label: str
    function: object
    gives: object
    timeout: float = 0.0
    retries: int = 0
    backoff: float = 0.05
    otherwise: tuple[object, ...] = ()
    spare: bool = False
    limit: int = 0
    keep: float = 0.0
    together: bool = False
    deadline: float = 0.0
    per: bool = False
    within: Array = ()  # type: ignore[assignment]  # canonicalised like any array

    def check(self) -> None:
        functions = [isinstance(each, Function) for each in self.functions]
        fine = bool(functions) and all(functions) and isinstance(self.gives, Type)
        fine = fine and not (self.per and self.together)
        if not fine:
            found = f"gives={self.gives}, per={self.per}, together={self.together}"
            raise ParameterError(
                "a fetch has coroutines, a type, and per= or together=", found=found
            )
        counts = [(name, getattr(self, name)) for name in ("retries", "limit")]
        times = [(name, getattr(self, name)) for name in ("timeout", "backoff", "keep", "deadline")]
        options = [(*each, is_count(each[1]), "a whole number, 0 or more") for each in counts]
        options += [(*each, is_number(each[1]), "seconds, 0 or more") for each in times]
        check_values(options, "a fetch cannot have such an option", None)
        if self.otherwise:
            self.column([self.fallback])
        ends, kind = self.within.array, self.gives
        fine = (
            isinstance(kind, Scalar | Vector)
            and kind.dtype not in ("string", "bool")
            and ends.shape in ((2, 1), (2, width_of(kind)))
        )
        if ends.size and not (fine and np.all((ends[0] <= ends[1]) & np.isfinite(ends))):
            raise ParameterError(
                "within= is the least and the largest number, of all columns or of each",
                found=f"{ends.tolist()} for {kind}"[:120],
            )

    def ends(self, column: int) -> list[float]:
        """The least and the largest number of a column, and the one in place of an answer."""
        values: list[Any] = [_listed(each) for each in self.otherwise]
        every = [*self.within.array, *map(np.ravel, values)]
        return [float(each[column % len(each)]) for each in every]

    def infer(self, *inputs: Type) -> Type:
        expect(len(inputs) > self.spare + self.per, "a fetch reads at least one value")
        if self.spare and not isinstance(inputs[-1], Later) and inputs[-1] != self.gives:
            raise TypeMismatch(f"{self.label} gives {self.gives}, otherwise {inputs[-1]}")
        return self.gives  # type: ignore[return-value]  # checked when it was made

    def remark(self) -> str:
        return self.label

    def mixes_rows(self) -> bool:
        """True where the coroutine sees all rows of a request at once."""
        return self.together

    @property
    def fallback(self) -> object:
        """The value in place of one that cannot be had."""
        return _listed(self.otherwise[0])

    @property
    def functions(self) -> tuple[Any, ...]:
        """The coroutines, of which the first to answer counts."""
        return self.function if isinstance(self.function, tuple) else (self.function,)

    async def ask(self, *values: object) -> object:
        """The answer of one try: of several coroutines, the first that is of the right kind."""
        read = values[: len(values) - self.per]
        if len(self.functions) == 1:
            return await _answer(self.functions[0], read)
        import asyncio  # it takes 30 ms, and most programs wait for nothing

        asked = [asyncio.ensure_future(self._checked(each, read)) for each in self.functions]
        try:
            for number, soonest in enumerate(asyncio.as_completed(asked), 1):
                try:
                    return await soonest
                except Exception:
                    if number == len(asked):
                        raise
        finally:
            for task in asked:
                task.add_done_callback(_dismissed)
                task.cancel()
        raise AssertionError("the last one has answered or raised")

    async def _checked(self, function: Function, values: tuple[object, ...]) -> object:
        return self.checked(await _answer(function, values), values)

    def checked(self, answer: object, values: Sequence[Any]) -> object:
        """The answer for these values, if it is what was promised: one value, or one a row."""
        if answer is None:
            raise self.failed("None")
        if isinstance(answer, np.ndarray) and answer.dtype.kind == "O":
            answer = answer.tolist()
        missing = list[int]()
        if self.together and isinstance(answer, list | tuple):
            missing = [row for row, each in enumerate(answer) if each is None]
            if missing and not self.otherwise:
                raise self.failed(f"None for row {missing[0]}")
            answer = (
                [self.fallback if each is None else each for each in answer] if missing else answer
            )
        made = self.column(answer if self.together else [answer])
        if self.together and row_count(made) != row_count(values[0]):
            raise self.failed(f"{row_count(made)} values for {row_count(values[0])} rows")
        if len(self.within):
            known, (low, high) = np.delete(densify(made), missing, axis=0), self.within.array
            if not np.all((low <= known) & (known <= high)):
                raise self.failed(f"a number that is not within {self.within.array.tolist()}")
        return answer

    def column(self, values: Any) -> Columns:
        """Return an answer as a column of the promised type; WrongAnswer if it is not one."""
        assert isinstance(self.gives, Type), "checked when it was made"
        if isinstance(self.gives, Vector) and isinstance(values, list) and not values:
            values = np.empty((0, self.gives.width), self.gives.dtype)  # a list says no width
        try:
            columns, _ = coerce({self.label: self.gives}, {self.label: values})
        except FlourError as problem:
            raise self.failed(problem.what) from problem
        return columns[self.label]

    def failed(self, said: str) -> WrongAnswer:
        """The error for what the coroutine did."""
        return WrongAnswer(
            f"{self.label} has no answer",
            where=self.label,
            found=said[:200],
            hint=f"it has to give {self.gives}; otherwise= names a value to go on with",
        )

    def rows_of(self, inputs: Sequence[Columns]) -> list[tuple[object, ...]]:
        """The arguments of each call."""
        read = inputs[: len(inputs) - self.spare]
        if self.together:
            return [tuple(read)]
        return list(zip(*(_values(column) for column in read), strict=True))

    def reference(self, *inputs: Columns) -> Columns:
        answers = _run(lambda: self._all(self.rows_of(inputs)))
        return self.column(answers[0] if self.together else answers)

    async def _all(self, rows: list[tuple[object, ...]]) -> list[object]:
        import asyncio  # it takes 30 ms, and most programs wait for nothing

        answers = await asyncio.gather(*(self.ask(*row) for row in rows))
        return [self.checked(answer, row) for answer, row in zip(answers, rows, strict=True)]


def _dismissed(task: Future[Any]) -> None:
    """Look at an error that does not matter any more: asyncio complains of those not looked at."""
    if not task.cancelled():
        task.exception()


def _listed(value: object) -> object:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def _values(column: Columns) -> list[Any]:
    """The value of each row, as Python has it."""
    if isinstance(column, dict):
        names, parts = list(column), [_values(part) for part in column.values()]
        return [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
    if isinstance(column, Sparse):
        column = column.toarray()
    if isinstance(column, np.ndarray) and column.ndim == 1:
        return list(column.tolist())
    return [column[i] for i in range(row_count(column))]


def _run(start: Callable[[], Awaitable[list[object]]]) -> list[object]:
    """The answers, on a thread with an event loop of its own: here may be one already."""
    import asyncio  # as above

    done: list[Any] = []

    async def main() -> list[object]:
        return await start()

    def run() -> None:
        try:
            done.append(asyncio.run(main()))
        except BaseException as problem:  # noqa: BLE001 (it is raised in the caller)
            done.append(problem)

    thread = threading.Thread(target=run, name="pretzel-fetch")
    thread.start()
    thread.join()
    if isinstance(done[0], BaseException):
        raise FunctionFailed(
            "a coroutine of this program failed", found=f"{type(done[0]).__name__}: {done[0]}"[:200]
        ) from done[0]
    answers: list[object] = done[0]
    return answers
