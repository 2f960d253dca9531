"""A plan as a function of SQL, whichever way DuckDB calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

from flour.core.types import Vector
from flour.data.arrow_reader import Arrow, library
from oven import Plan
from oven.plans.arrow import answers_batch
from runtime.bulk.plans import LIST, chosen, empty_answers, predict_arrow, select, typed_columns
from runtime.bulk.refused import NULL, ROW_ERRORS, check_policy, moved
from runtime.errors import BadCall


class SqlFunction:
    """Behaviour of a registered function, whichever way it is called."""

    def __init__(
        self, plan: Plan, outputs: str | Sequence[str] | None, on_error: str | None = None
    ) -> None:
        check_policy(plan, on_error, (NULL,))
        self._plan, self.on_error = plan, on_error
        self._single = isinstance(outputs, str)
        self._outputs = chosen(plan, outputs)
        #: The inputs that the plan reads.
        self.inputs = plan.inputs
        self.columns = typed_columns(plan)
        (first, kind), *more = plan.inputs.items()
        #: The name for a list of all numbers, where the plan reads numbers side by side.
        self._vector = first if isinstance(kind, Vector) and not more else None
        #: The Arrow type of the answers.
        empty = empty_answers(plan, self._outputs)
        self.returned = (empty.column(0) if self._single else empty.to_struct_array()).type

    def input_types(self) -> list[str]:
        """The types of SQL that the plan's columns have."""
        plain = ((kind, kind.removesuffix(LIST)) for _, kind in self.columns)
        return [_SQL[name] + kind[len(name) :] for kind, name in plain]

    def named(self, columns: Sequence[Arrow]) -> Arrow:
        """A batch of a call's columns."""
        names = [name for name, _ in self.columns]
        if self._vector and len(columns) == 1 and hasattr(columns[0].type, "value_type"):
            names = [self._vector]
        return library().record_batch(list(columns), names=names)

    def check(self, schema: Arrow) -> None:
        """Raise where a call has other columns than the plan reads."""
        names, wanted = schema.names, [name for name, _ in self.columns]
        if self._vector and len(names) == 1 and hasattr(schema.types[0], "value_type"):
            return
        if len(names) == 1 and str(schema.types[0]).startswith("struct"):
            missing = [n for n in wanted if n not in {field.name for field in schema.types[0]}]
            if missing and len(wanted) > 1:
                raise BadCall(f"the struct has no {missing[0]!r}", hint=f"{', '.join(wanted)}")
        elif len(names) != len(wanted):
            raise BadCall(
                f"the function takes {len(wanted)} columns, or one struct of them",
                found=f"{len(names)} columns",
                hint="in this order: " + ", ".join(wanted),
            )

    def answer(self, batch: Arrow) -> Arrow:
        """One array of answers for the rows of a batch."""
        within = f"a chunk of {len(batch):,} rows"
        made, _ = predict_arrow(self._plan, batch, self._outputs, self.on_error, within=within)
        return self._as_one(made)

    def run(self, columns: Mapping[str, Any]) -> dict[str, Any] | None:
        """Every output for columns that are arrays; None if rows are refused that may be."""
        try:
            return self._plan.run(self._plan.reader.nulls.settled(columns))
        except ROW_ERRORS as problem:
            if self.on_error:
                return None
            rows = len(next(iter(columns.values())))
            raise moved(problem, 0, f"a chunk of {rows:,} rows") from None

    def single(self, answers: Mapping[str, Any]) -> object:
        """The one output that is wanted; None where there are several."""
        return answers[self._outputs[0]] if self._single else None

    def as_arrow(self, answers: Mapping[str, Any]) -> Arrow:
        """One array of what `run` has answered."""
        made = answers_batch(answers, self._plan.outputs)
        return self._as_one(select(made, self._plan, self._outputs))

    def _as_one(self, made: Arrow) -> Arrow:
        return made.column(0) if self._single else made.to_struct_array()

    def with_parameters(self) -> Callable[..., Arrow]:
        """Answer the columns of a call from Python, whose parameters DuckDB counts."""

        def answer(*given: Arrow) -> Arrow:
            arrays = [each.combine_chunks() if hasattr(each, "chunks") else each for each in given]
            return self.answer(self.named(arrays))

        named: Any = answer
        places = [
            Parameter(f"c{place}", Parameter.POSITIONAL_ONLY) for place in range(len(self.columns))
        ]
        named.__signature__ = Signature(places)
        return answer


_SQL = {
    "string": "VARCHAR",
    "bool": "BOOLEAN",
    **{f"int{bits}": f"{name}INT" for bits, name in ((8, "TINY"), (16, "SMALL"), (64, "BIG"))},
    **{f"uint{bits}": f"U{name}INT" for bits, name in ((8, "TINY"), (16, "SMALL"), (64, "BIG"))},
    "int32": "INTEGER",
    "uint32": "UINTEGER",
    "float32": "FLOAT",
    "float64": "DOUBLE",
}
_OF_ARROW = _SQL | {"double": "DOUBLE", "float": "FLOAT"}


def sql_type(kind: Arrow) -> str:
    """The type of SQL for an Arrow type."""
    if hasattr(kind, "list_size"):
        return f"{sql_type(kind.value_type)}[{kind.list_size}]"
    if hasattr(kind, "value_type"):
        return f"{sql_type(kind.value_type)}[]"
    if kind.num_fields:
        fields = (f'"{field.name}" {sql_type(field.type)}' for field in kind)
        return f"STRUCT({', '.join(fields)})"
    return _OF_ARROW[str(kind)]
