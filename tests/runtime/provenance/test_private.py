"""Private columns: which they may be, what is refused of them, and what graphs hide."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flour
from flour import Flow
from flour.core.errors import FlourError, ParameterError, WrongDtype
from flour.core.types import Record, Scalar, Type
from runtime import Runtime
from runtime.errors import BadRegistration
from runtime.service.private import redacted, without
from tests.house import until

SECRET = "q7-secret"
NOTES = {"private": ("ssn", "phone")}


def program(factor: float = 2.0) -> Flow:
    row = flour.record(ssn=flour.text, phone=float, amount=float, city=flour.text)
    hashed = row["phone"] * 0.5
    words = sum(
        row[name].tokenize().word_ngrams(["Rome"], 1, 1)[0] * 0.0 for name in ("ssn", "city")
    )
    return flour.outputs(score=row["amount"] * factor + hashed * 1e-9 + words, hashed=hashed)


@dataclass
class Version:
    inputs: dict[str, Type]
    private: frozenset[str]


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        made.register("m", program(), notes=NOTES)
        made.register("m", program(3.0), notes=NOTES, activate=False)
        yield made


def test_errors_name_columns_and_keep_their_class(runtime: Runtime) -> None:
    row = {"ssn": "1", "phone": 8.25, "amount": SECRET, "city": "Rome"}
    with pytest.raises(FlourError) as caught:
        runtime.predict("m", row)
    assert "values are not shown" in str(caught.value)
    assert caught.value.__context__ is caught.value.__cause__ is None
    error = WrongDtype("column 'amount' holds 'q7'", found="q7")
    error.__cause__ = ValueError("q7")
    shown = redacted(error, program().inputs())
    assert shown is error
    assert "amount" in str(shown)
    assert "q7" not in "".join(traceback.format_exception(shown))
    foreign = redacted(ValueError("q7"), program().inputs())
    assert isinstance(foreign, ValueError)
    assert "q7" not in str(foreign)


def test_taps_and_segments_of_private_columns_are_refused(runtime: Runtime) -> None:
    with pytest.raises(ParameterError):
        runtime.watch("m", segments=("ssn",))
    with pytest.raises(ParameterError):
        runtime.watch("m", segments=("phone // 10",))


def test_a_step_that_reads_a_private_column_is_not_tapped() -> None:
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, StandardScaler

    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["a", "ssn"])
    parts = [("open", StandardScaler(), ["a"]), ("hidden", MinMaxScaler(), ["ssn"])]
    model = make_pipeline(ColumnTransformer(parts), LogisticRegression())
    flow = flour.from_sklearn(model.fit(rows, np.arange(50) % 2), rows)
    with Runtime() as runtime:
        runtime.register("m", flow, notes={"private": ["ssn"]})
        runtime.tap("m", "open").close()
        with pytest.raises(ParameterError, match="private"):
            runtime.tap("m", "hidden")


def test_private_columns_have_to_be_columns() -> None:
    with Runtime() as runtime:
        for wrong in ("ssn", ("snn",), 3):
            with pytest.raises(BadRegistration):
                runtime.register("m", program(), notes={"private": wrong})
        with suppress(FlourError):
            runtime.unregister("m")
        runtime.register("m", program(), notes={"private": ()})
        assert "m" in runtime.endpoints.routes


@pytest.mark.parametrize("name", ["privat", "Private", "private_columns"])
def test_a_note_that_is_spelt_wrongly_is_refused(name: str) -> None:
    program = flour.outputs(score=flour.record(ssn=float)["ssn"])
    with Runtime() as runtime, pytest.raises(BadRegistration, match="hides nothing"):
        runtime.register("m", program, notes={name: ("ssn",)})


def test_a_version_that_hides_less_is_told(caplog: pytest.LogCaptureFixture) -> None:
    program = flour.outputs(score=flour.record(ssn=float, age=float)["age"])
    with Runtime() as runtime:
        runtime.register("m", program, notes={"private": ("ssn", "age")})
        runtime.register("m", program, notes={"private": ("ssn",)})
        assert "m@2 shows columns that m@1 hides: age" in caplog.text
        caplog.clear()
        runtime.switch("m", "1")
        assert "shows columns" not in caplog.text


def test_rows_without_names_are_dropped() -> None:
    record = Record((("a", Scalar()), ("b", Scalar())))
    version = Version({"in": record}, frozenset({"a"}))
    assert without([[1, 2]], version) is None
    assert without({"a": 1, "b": 2, "c": 3}, version) == {"a": None, "b": 2}
    assert without([{"a": 1, "b": 2}], version, str) == [{"a": "1", "b": 2}]
    assert without({"in": [[1, 2]], "b": [1]}, version) == {"in": None, "b": [1]}
    assert without({"a": np.array([1, 2])}, version) == {"a": [None, None]}


def test_an_answer_without_its_private_rows_is_recomputed_from_given_ones(
    runtime: Runtime, tmp_path: Path
) -> None:
    keeper: Any = runtime.keep("m", tmp_path)
    row = {"ssn": SECRET, "phone": 8.25, "amount": 1.0, "city": "Rome"}
    answer: Any = runtime.predict("m", row)
    keeper.flush()
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert (b"Rome" in written, SECRET.encode() in written) == (True, False)
    why = runtime.why(answer.id)
    assert why.inputs == {**row, "ssn": None, "phone": None}
    with pytest.raises(FlourError, match="private"):
        why.recomputed()
    assert why.agrees(row)


_ROW = flour.record(pay=float, amount=float, ssn=float)
_RENAMED = flour.record(a=float, b=float)


@pytest.mark.parametrize(
    ("graph", "hidden"),
    [
        (lambda f: f(_ROW), {"ssn"}),
        (lambda f: f(_ROW["ssn", "amount"]), {"ssn"}),
        (lambda f: f(_ROW["amount"], ssn=_ROW["pay"] * 2.0), {"pay"}),
        (lambda f: f(_ROW["amount"], ssn=f(_ROW)["score"]), {"ssn", "pay", "amount"}),
        (lambda f: f(_RENAMED["a"], _RENAMED["b"]), {"a", "b"}),  # in order: which is not asked
        (lambda f: flour.outputs(score=f(_RENAMED["a"], ssn=_RENAMED["b"])["score"] + 1.0), {"b"}),
    ],
)
def test_what_is_private_in_a_model_is_so_in_its_graphs(graph: Any, hidden: set[str]) -> None:
    row = flour.record(amount=float, ssn=float)
    with Runtime(executors=1) as runtime:
        notes = {"private": ("ssn",)}
        runtime.register("f", flour.outputs(score=row["amount"] + row["ssn"]), notes=notes)
        runtime.register("g", graph(flour.model("f")))
        assert runtime.endpoints.find("g").private == hidden
        (inputs,) = runtime.endpoints.find("g").inputs.values()
        assert isinstance(inputs, Record)
        with pytest.raises(FlourError) as refused:
            runtime.predict("g", dict.fromkeys(inputs.names, SECRET))
        assert SECRET not in str(refused.value)


def test_a_graph_hides_what_a_model_hides_from_now_on() -> None:
    row = flour.record(amount=float, ssn=float)
    program = flour.outputs(score=row["amount"] + row["ssn"])
    with Runtime(executors=1) as runtime:
        runtime.register("f", program)
        runtime.register("g", flour.model("f")(row), notes={"private": ("amount",)})
        assert runtime.endpoints.find("g").private == {"amount"}
        runtime.register("f", program, notes={"private": ("ssn",)})  # the same program
        until(lambda: runtime.endpoints.find("g").private == {"amount", "ssn"})
        runtime.switch("f", "1")
        until(lambda: runtime.endpoints.find("g").private == {"amount"})
