"""Rows of files: read as the model's types, answered in chunks, written whole or not at all."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import flour
import oven
from flour.core.types import Category, Record, Scalar, Text, Type, Vector
from runtime.cli import reading
from runtime.cli.blocks import Block, ReadOptions
from runtime.cli.errors import BadTable
from runtime.cli.output import bar
from tests.runtime.cli.conftest import Place, Pretzel
from tests.runtime.repository.folders import X, lgb, scorer


def read(text: str, inputs: dict[str, Type], path: Path, **facts: object) -> list[Block]:
    path.write_text(text, encoding="utf-8")
    options = ReadOptions("csv", **facts)  # type: ignore[arg-type]  # whatever a test wants
    return list(reading.blocks(str(path), inputs, options))


def piped(text: str) -> io.TextIOWrapper:
    """Return a standard input that this is piped into; what is not ASCII is UTF-8."""
    return io.TextIOWrapper(io.BytesIO(text.encode()), "latin-1")


# --- whole files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("chunk", [7, 10_000])
def test_every_format_gets_the_library_answers(
    pretzel: Pretzel, place: Place, tmp_path: Path, ending: str, chunk: int
) -> None:
    output = tmp_path / f"answers.{ending}"
    ran = pretzel(
        *("predict", place.root / "mixed.joblib", place.root / f"mixed.{ending}"),
        *("--trust-pickle", "--output", output, "--keep", "id", "--chunk", chunk, "--json"),
    )
    assert ran.code == 0, ran.err
    assert ran.data["rows"] == len(X)
    made = {
        "csv": pd.read_csv,
        "jsonl": lambda path: pd.read_json(path, lines=True),
        "parquet": pd.read_parquet,
    }[ending](output)
    rows = place.frame[["age", "city"]]
    assert made["id"].tolist() == place.frame["id"].tolist()
    assert made["label"].tolist() == place.pipeline.predict(rows).tolist()
    shares = (
        made[["probabilities_0", "probabilities_1"]].to_numpy()
        if ending == "csv"
        else np.array(made["probabilities"].tolist())
    )
    assert np.allclose(shares, place.pipeline.predict_proba(rows), rtol=1e-9)
    assert [each.name for each in tmp_path.iterdir()] == [output.name]


def test_from_standard_input_to_standard_output(
    pretzel: Pretzel, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", piped("1,2,3,4\n5,6,7,\n"))
    ran = pretzel(
        *("predict", place.root / "trees.txt", "-", "--format", "csv", "--outputs", "value")
    )
    rows = np.array([[1, 2, 3, 4], [5, 6, 7, np.nan]])
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == ["value", *map(repr, lgb("number").predict(rows).tolist())]


def test_texts(pretzel: Pretzel, tmp_path: Path) -> None:
    oven.bake(scorer()).save(tmp_path / "m.pretzel")
    (tmp_path / "t.csv").write_text('stars,review\n1,"good,\nbad good"\n2,"bad"\n', "utf-8")
    ran = pretzel("predict", tmp_path / "m.pretzel", tmp_path / "t.csv", "--keep", "stars")
    assert ran.code == 0, ran.err
    assert [line.split(",")[1] for line in ran.out.splitlines()[1:]] == ["1.0", "-1.0"]


def test_answers_replace_neither_rows_nor_columns_to_keep(pretzel: Pretzel, tmp_path: Path) -> None:
    oven.bake(flour.scalar("x") * 2.0).save(tmp_path / "m.pretzel")
    rows = tmp_path / "t.csv"
    rows.write_text("x,output\n1,2\n", encoding="utf-8")
    ran = pretzel("predict", tmp_path / "m.pretzel", rows, "--output", tmp_path / "." / "t.csv")
    assert ran.code != 0
    assert "the answers would replace the rows" in ran.err
    ran = pretzel("predict", tmp_path / "m.pretzel", rows, "--keep", "output")
    assert ran.code != 0
    assert "'output' among the columns output" in ran.err
    assert rows.read_text(encoding="utf-8") == "x,output\n1,2\n"


def test_several_inputs_go_as_json_lines(pretzel: Pretzel, tmp_path: Path) -> None:
    total = flour.scalar("a").plus(flour.scalar("b"))
    oven.bake(total).save(tmp_path / "m.pretzel")
    (tmp_path / "r.jsonl").write_text('{"a": 1, "b": 2}\n\n{"a": 3, "b": 4.5}\n', "utf-8")
    ran = pretzel("predict", tmp_path / "m.pretzel", tmp_path / "r.jsonl")
    assert [json.loads(line) for line in ran.out.splitlines()] == [{"output": 3}, {"output": 7.5}]
    (tmp_path / "r.csv").write_text("a,b\n1,2\n", "utf-8")
    assert "JSON lines" in pretzel("predict", tmp_path / "m.pretzel", tmp_path / "r.csv").err
    (tmp_path / "r.jsonl").write_text('{"a": 1}\n', "utf-8")
    assert "r.jsonl:1" in pretzel("predict", tmp_path / "m.pretzel", tmp_path / "r.jsonl").err


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "text", "where"),
    [
        ("csv", "id,age,city\n1,2.5,Graz\n2,x,Graz\n", "bad.csv:3:2 (column 'age')"),
        ("csv", "age\n1\n", "bad.csv:1"),
        ("csv", "age,city\n1,Graz\n1,Graz,3\n", "bad.csv:3"),
        ("csv", 'age,city\n1,"Graz\n', "bad.csv:2"),
        ("jsonl", '{"age": 1, "city": "Graz"}\n{"age": 1,}\n', "bad.jsonl:2:"),
        ("jsonl", '{"age": 1, "city": "Graz"}\n{"age": "x", "city": "Graz"}\n', "bad.jsonl:2"),
        ("jsonl", '{"age": 1, "city": "Graz"}\n[1]\n', "bad.jsonl:2"),
        ("jsonl", '{"age": 1, "city": "Graz\\ud800"}\n', "bad.jsonl:1"),
        ("csv", "age,city\n1,Nowhere\n", "bad.csv:2"),
        ("parquet", "PAR1", "bad.parquet"),
    ],
)
def test_mistakes_say_where(
    pretzel: Pretzel, place: Place, tmp_path: Path, ending: str, text: str, where: str
) -> None:
    bad = tmp_path / f"bad.{ending}"
    bad.write_text(text, encoding="utf-8")
    output = tmp_path / "answers.csv"
    ran = pretzel(
        *("predict", place.root / "mixed.joblib", bad, "--trust-pickle", "--output", output)
    )
    assert ran.code == 1
    assert where in ran.err
    assert "Traceback" not in ran.err
    assert [each.name for each in tmp_path.iterdir()] == [bad.name], "no part of an answer stays"


def test_a_late_mistake_leaves_the_former_answers(
    pretzel: Pretzel, place: Place, tmp_path: Path
) -> None:
    output = tmp_path / "answers.csv"
    output.write_text("as it was", encoding="utf-8")
    lines = ["1,2,3,4"] * 50 + ["1,2,oops,4"]
    (tmp_path / "r.csv").write_text("\n".join(lines), encoding="utf-8")
    ran = pretzel(
        *("predict", place.root / "trees.txt", tmp_path / "r.csv", "--chunk", 5),
        *("--output", output),
    )
    assert ran.code == 1
    assert "r.csv:51:3" in ran.err
    assert output.read_text(encoding="utf-8") == "as it was"


def test_formats_and_columns_that_are_not_there(
    pretzel: Pretzel, place: Place, tmp_path: Path
) -> None:
    model, rows = place.root / "mixed.joblib", place.root / "mixed.csv"
    ask = ("predict", model, rows, "--trust-pickle")
    assert "no column 'nobody' to keep" in pretzel(*ask, "--keep", "nobody").err
    assert "--output answers.parquet" in pretzel(*ask, "--output-format", "parquet").err
    assert "nothing" in pretzel(*ask, "--outputs", "nothing").err
    for separator in ("||", ""):
        assert "is not one character" in pretzel(*ask, "--separator", separator).err
    (tmp_path / "rows.dat").write_text("1", encoding="utf-8")
    assert "--format" in pretzel("predict", model, tmp_path / "rows.dat").err


# --- cells ---------------------------------------------------------------------------------------

MIXED = Record(
    (
        ("n", Scalar("float64")),
        ("i", Scalar("int64")),
        ("b", Scalar("bool")),
        ("s", Category("string")),
        ("t", Text()),
    )
)
cells = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=8)
rows_of_cells = st.tuples(
    st.floats(allow_nan=False) | st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    cells,
    cells,
)


@given(st.lists(rows_of_cells, min_size=1, max_size=20), st.integers(1, 7))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_written_is_read(
    tmp_path: Path, rows: Sequence[tuple[object, ...]], chunk: int
) -> None:
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["extra", *MIXED.names])
    writer.writerows([["x", *("" if cell is None else cell for cell in row)] for row in rows])
    found = read(file.getvalue(), {"r": MIXED}, tmp_path / "r.csv", rows=chunk)
    assert sum(block.count for block in found) == len(rows)
    for place, name in enumerate(MIXED.names):
        made = [value for block in found for value in block.data[name].tolist()]
        for value, row in zip(made, rows, strict=True):
            wanted = row[place]
            if wanted is None:
                assert value != value  # noqa: PLR0124 (it is NaN)
            elif name in "st" and wanted == "":
                assert value != value  # noqa: PLR0124 (as pandas reads an empty cell)
            else:
                assert value == wanted


@given(st.text(max_size=120))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_rows_or_an_error(tmp_path: Path, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    for inputs in ({"x": Vector(2)}, {"r": MIXED}, {"t": Text()}):
        try:
            read(text, dict(inputs), tmp_path / "r.csv")
        except BadTable as problem:
            where = problem.where or ""
        else:
            where = str(tmp_path)
        assert where.startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("int8", "127", "128"),
        ("uint8", "0", "-1"),
        ("int64", "9007199254740993", "one"),
        ("int64", "10", "1_0"),
        ("float64", "10", "1_0"),
        ("bool", "True", "maybe"),
        ("float32", "nan", "1,5"),
    ],
)
def test_numbers_in_their_range(tmp_path: Path, dtype: str, good: str, bad: str) -> None:
    inputs: dict[str, Type] = {"x": Scalar(dtype)}
    (block,) = read(f"x\n{good}\n", inputs, tmp_path / "r.csv")
    assert block.data.dtype == dtype
    with pytest.raises(BadTable, match=f"this is not a valid {dtype}"):
        read(f'x\n{good}\n"{bad}"\n', inputs, tmp_path / "r.csv")


def answers_of(pretzel: Pretzel, rows: Path, *, verify: bool = False) -> pd.DataFrame:
    """Answers of the model beside the rows, which may be imported and verified before."""
    model, answers = (rows.with_name(name) for name in ("model.joblib", "answers.csv"))
    if verify:
        asked = ("--verify", rows, "--into", rows.with_name("m"), "--name", "m")
        ran = pretzel("import", model, "--trust-pickle", *asked)
        assert ran.code == 0, ran.err
    ran = pretzel("predict", model, rows, "--trust-pickle", "--output", answers)
    assert ran.code == 0, ran.err
    return pd.read_csv(answers)


def test_empty_cells_are_what_pandas_reads(pretzel: Pretzel, tmp_path: Path) -> None:
    """A model that learnt from frames with holes answers files with holes as it answers frames."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame(
        {
            "city": rng.choice(["Graz", "Oslo", ""], 90),
            "rooms": rng.choice(["1", "2", "2.5", ""], 90),
        }
    )
    table.to_csv(tmp_path / "rows.csv", index=False)
    frame = pd.read_csv(tmp_path / "rows.csv")
    assert frame["city"].isna().any()
    columns = [("city", OneHotEncoder(), ["city"]), ("rooms", SimpleImputer(), ["rooms"])]
    target = (table["city"] == "") * 10.0 + frame["rooms"].fillna(7.0)
    model = make_pipeline(ColumnTransformer(columns), LinearRegression()).fit(frame, target)
    joblib.dump(model, tmp_path / "model.joblib")
    answers = answers_of(pretzel, tmp_path / "rows.csv", verify=True)
    assert np.allclose(answers["value"], model.predict(frame))


def test_cells_that_pandas_takes_for_missing_are(pretzel: Pretzel, tmp_path: Path) -> None:
    words = ["Oslo", "NA", "null", "None", "N/A", "nan", "", "<NA>", "#N/A N/A", "na", "none"]
    numbers = ["1", "NA", "", "nan", "2.5", "null", "7", "8", "9", "10", "11"]
    text = "\n".join(["city,rooms", *map(",".join, zip(words, numbers, strict=True))])
    (tmp_path / "rows.csv").write_text(text, encoding="utf-8")
    frame = pd.read_csv(tmp_path / "rows.csv")
    encode = OneHotEncoder(handle_unknown="ignore")
    columns = [("city", encode, ["city"]), ("rooms", SimpleImputer(), ["rooms"])]
    made = make_pipeline(ColumnTransformer(columns), LinearRegression())
    model = made.fit(frame, frame["city"].isna() * 5.0 + frame["rooms"].fillna(3.0))
    joblib.dump(model, tmp_path / "model.joblib")
    answers = answers_of(pretzel, tmp_path / "rows.csv")
    assert np.allclose(answers["value"], model.predict(frame))


def test_the_cell_that_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadTable) as refused:
        read('x\n3.5\n""\n4\noops\n', {"x": Scalar("int64")}, tmp_path / "r.csv")
    assert ":5:1" in str(refused.value)
    assert "'oops'" in str(refused.value)


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "arrow"])
def test_a_missing_word_is_what_the_model_was_fitted_on(
    pretzel: Pretzel, tmp_path: Path, form: str
) -> None:
    frame = pd.DataFrame({"age": np.arange(90.0), "city": ["Oslo", "Rome", np.nan] * 30})
    columns = [("city", OneHotEncoder(handle_unknown="ignore"), ["city"])]
    made = ColumnTransformer(columns, remainder="passthrough")
    model = make_pipeline(made, LinearRegression()).fit(frame, frame["city"].isna() * 9.0)
    joblib.dump(model, tmp_path / "model.joblib")
    rows = tmp_path / f"rows.{form}"
    {
        "csv": lambda: frame.to_csv(rows, index=False),
        "jsonl": lambda: frame.to_json(rows, orient="records", lines=True),
        "parquet": lambda: frame.to_parquet(rows),
        "arrow": lambda: frame.to_feather(rows, compression="uncompressed"),
    }[form]()
    answers = answers_of(pretzel, rows, verify=True)
    assert np.allclose(answers["value"], model.predict(frame))


def test_what_stands_in_the_way_of_answers_is_told(
    pretzel: Pretzel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 1.0]})
    joblib.dump(LinearRegression().fit(frame, [1.0, 2.0]), tmp_path / "model.joblib")
    rows, model = tmp_path / "rows.csv", tmp_path / "model.joblib"
    ask = ("predict", model, rows, "--trust-pickle", "--output")
    for place, said in (
        (tmp_path, "a folder or device of this name"),
        (tmp_path / "no" / "x.csv", "'no'"),
    ):
        ran = pretzel(*ask, place)
        assert ran.code != 0
        assert said in ran.err
    # The mark of byte order is no part of the first name, wherever the rows come from.
    monkeypatch.setattr("sys.stdin", piped("\ufeffa,b\n1,2\n"))
    assert pretzel("predict", model, "-", "--trust-pickle", "--format", "csv").code == 0


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("csv", "a,b,a\n-9,1,2\n", "several columns have the name 'a'"),
        ("csv", "a,b,t,t\n1,2,3,4\n", "several columns have the name 't'"),
        ("jsonl", '{"a": 1, "b": 2, "a": 3}\n', "several values have the name 'a'"),
        ("jsonl", '{"a": 1, "b": 2, "t": 3, "t": 4}\n', "several values have the name 't'"),
    ],
)
def test_names_that_are_there_twice(
    pretzel: Pretzel, tmp_path: Path, form: str, text: str, said: str
) -> None:
    """Refused where they are read or kept, and passed over elsewhere."""
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [2.0, 1.0]})
    model, rows = tmp_path / "model.joblib", tmp_path / f"rows.{form}"
    joblib.dump(LinearRegression().fit(frame, [1.0, 2.0]), model)
    rows.write_text(text, encoding="utf-8")
    ask = ("predict", model, rows, "--trust-pickle")
    ran = pretzel(*ask, *(("--keep", "t") if "t" in said[-3:] else ()))
    assert (ran.code, said in ran.err) == (1, True), ran.err
    assert pretzel(*ask).code == (0 if "t" in said[-3:] else 1)


def test_columns_that_nothing_reads_may_hold_anything(pretzel: Pretzel, tmp_path: Path) -> None:
    names = {"id": [f"c{n}" for n in range(80)], "seen": [None, "2026-01-01"] * 40}
    frame = pd.DataFrame({**names, "age": np.arange(80.0), "part": np.arange(80) % 2 * 0.5})
    columns = [("age", SimpleImputer(), ["age"])]
    model = make_pipeline(ColumnTransformer(columns), LinearRegression()).fit(frame, frame["part"])
    rows = tmp_path / "rows.csv"
    joblib.dump(model, tmp_path / "model.joblib")
    frame.to_csv(rows, index=False)
    answers = answers_of(pretzel, rows, verify=True)
    assert np.allclose(answers["value"], model.predict(frame))


def test_verification_reads_json_lines_by_name_and_says_what_the_original_refuses(
    pretzel: Pretzel, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 5.0], "b": [0.5, 1.0, 2.0, 9.0]})
    joblib.dump(LinearRegression().fit(frame, [1.0, 2.0, 3.0, 4.0]), tmp_path / "model.joblib")
    frame.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    ask = ("import", tmp_path / "model.joblib", "--trust-pickle", "--into", tmp_path / "m")
    assert pretzel(*ask, "--name", "a", "--verify", tmp_path / "rows.jsonl").code == 0
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n,3\n", encoding="utf-8")
    ran = pretzel(*ask, "--name", "b", "--verify", tmp_path / "rows.csv")
    assert ran.code == 1
    assert "LinearRegression refuses NaN" in ran.err
    assert "rows.csv:3, a" in ran.err
    assert "Traceback" not in ran.err


def test_headers_are_recognised(tmp_path: Path) -> None:
    two: dict[str, Type] = {"x": Vector(2)}
    path = tmp_path / "r.csv"
    assert read("1,2\n3,4\n", two, path)[0].count == 2
    assert read("a,b\n3,4\n", two, path)[0].count == 1
    assert read("1,2\n3,4\n", two, path, header=True)[0].count == 1
    assert read("\n1;2\n\n3;4\n", two, path, separator=";")[0].lines == [2, 4]
    assert read("review\ngood\n", {"X": Text()}, path)[0].data == ["good"]
    assert read("good\nbad\n", {"X": Text()}, path, header=False)[0].count == 2
    pair = Record((("x0", Category()), ("x1", Scalar())), positional=True)
    for text in ("c,d\na,1\n", "x1,x0\n1,a\n", "a,1\n"):
        (block,) = read(text, {"X": pair}, path)
        assert (block.data["x0"].tolist(), block.data["x1"].tolist()) == (["a"], [1.0])
    assert read("True,\nfalse,1\n", two, path)[0].data.tolist()[1] == [0.0, 1.0]
    for text, problem in (("1\n", "reads 2 columns, this file has 1"), ("", "file is empty")):
        with pytest.raises(BadTable, match=problem):
            read(text, two, path)


def test_the_progress_bar() -> None:
    half, whole = bar("x", 50, 100, "5 rows", 39), bar("x", 100, 100, "5 rows", 39)
    assert half == "x " + "█" * 11 + " " * 11 + "  50% 5 rows"
    assert whole == half.replace(" " * 11 + "  50%", "█" * 11 + " 100%")
    assert bar("x", 3, 0, "3 rows", 30) == "x 3 rows"
    assert len(bar("a long label " * 5, 1, 2, "", 30)) < 30
