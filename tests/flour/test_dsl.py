"""Programs by hand: the language reads as the pipeline does."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour import Flow
from flour.core.errors import NotRectangular, ParameterError, TypeMismatch, WrongDtype
from flour.core.node import topological
from flour.ops.structure import Take, TakeText

LINES = [
    '1,"Great pretzels, great price"',
    "2,awful",
    '3,"they said ""fresh"", they were not"',
    "4,",
]
WORDS = ["great", "pretzels", "great price", "they were"]
RUNS = ["gre", "awf", "ful", "fre"]


def reviews() -> tuple[Flow, Flow]:
    """Characters and words of the text in a CSV file."""
    review = flour.csv(columns={"id": flour.Scalar("int64"), "text": flour.Text()}, separator=",")[
        "text"
    ]
    tokens = review.tokenize()
    return review.char_ngrams(RUNS, low=3, high=3), tokens.word_ngrams(WORDS, 1, 2)


def test_the_example_of_the_paper() -> None:
    chars, words = reviews()
    weights, bias = np.array([1, -2, -2, 0.5, 1, 1, 1, -0.25]), 0.125
    program = chars.concat(words).linear_classifier(weights, bias, classes=["bad", "good"])
    made = oven.bake(program).run(LINES)
    # The first: gre, great, pretzels and "great price" once each (Great is another word).
    np.testing.assert_array_equal(made["scores"], [4.125, -3.875, 0.375, 0.125])
    assert list(made["label"]) == ["good", "bad", "good", "good"]
    for name, value in program.reference(LINES).items():
        np.testing.assert_array_equal(made[name], value)


def test_counts_are_what_a_reader_would_count() -> None:
    chars, words = reviews()
    program = flour.outputs(chars=chars, words=words)
    made = program.reference(LINES)
    assert made["chars"].toarray().tolist() == [
        [1, 0, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 0, 1],
        [0, 0, 0, 0],
    ]
    assert made["words"].toarray().tolist() == [
        [1, 1, 1, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 1],
        [0, 0, 0, 0],
    ]


# --- CSV ------------------------------------------------------------------------------------------


Columns = dict[str, flour.Type]


def parsed(lines: Sequence[str], columns: Columns, separator: str = ",") -> dict[str, list[Any]]:
    """What the columns hold."""
    program = flour.csv(columns, separator)
    made = flour.outputs(**{name: program[name] for name in columns}).reference(list(lines))
    return {name: list(made[name]) for name in columns}


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "float64"])
def test_an_underline_is_no_part_of_a_number(dtype: str, native: bool) -> None:  # noqa: FBT001
    program = flour.csv({"x": flour.Scalar(dtype), "y": flour.Scalar()})["x"]
    with pytest.raises(WrongDtype, match=f"expected {dtype}"):
        (oven.bake(program).run if native else program.reference)(["1_0,2"])


def test_csv_columns_have_types() -> None:
    columns: Columns = {
        "whole": flour.Scalar("int32"),
        "number": flour.Scalar("float64"),
        "flag": flour.Scalar("bool"),
        "city": flour.Category(),
        "text": flour.Text(),
        "rest": flour.Text(),
    }
    made = parsed(["-3;1.5;true;Oslo;long; text", '7;;0;;"a;""b""";'], columns, ";")
    assert made["whole"] == [-3, 7]
    assert made["number"][0] == 1.5
    assert np.isnan(made["number"][1])
    assert made["flag"] == [True, False]
    assert made["city"] == ["Oslo", None]
    assert made["text"] == ["long", 'a;"b"']
    assert made["rest"] == [" text", ""]


def test_csv_fields_may_hold_separators_quotes_and_line_ends() -> None:
    texts = ['a,"b"\r\nc', "", '"', "日本", ",", "\n"]
    lines = ['"' + each.replace('"', '""') + '"' for each in texts]
    assert parsed(lines, {"text": flour.Text()})["text"] == texts
    assert parsed([""], {"text": flour.Text()})["text"] == [""]


def outcome(run: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """The answers, or what is said of a bad record."""
    try:
        return {name: value.tolist() for name, value in run().items()}
    except NotRectangular as problem:
        return str(problem)


def test_columns_of_strings_are_cut_out_in_native_code() -> None:
    """Records of every kind, good and bad: the compiled program answers as the definition."""
    columns: Columns = {
        "id": flour.Scalar("int64"),
        "text": flour.Text(),
        "city": flour.Category(),
        "name": flour.Scalar("string"),
    }
    lines = flour.csv(columns, ";")
    kinds = ["a", 'x"y', ""]
    program = flour.outputs(
        length=lines["text"].length(),
        runs=lines["text"].char_ngrams(['"', "a", "é"], 1, 1).sum(),
        city=lines["city"].ordinal(kinds),
        name=lines["name"].ordinal(kinds),
    )
    plan = oven.bake(program)
    assert [stage.kind for stage in plan.program.stages] == ["fused"]
    rng = random.Random(0)
    pieces = ["a", '"', ";", "é", 'x"y', '""', "\n", "\r", " ", '"a"', "日"]
    ends = ["a", '"x""y"', "", '""']
    good = 0
    for number in range(1500):
        line = "".join(rng.choice(pieces) for _ in range(rng.randrange(12)))
        if number % 2:
            quoted = line.replace('"', '""')
            line = f'1;"{quoted}";{rng.choice(ends)};{rng.choice(ends)}'
        want = outcome(lambda: program.reference([line]))  # noqa: B023 (called at once)
        assert outcome(lambda: plan.run([line])) == want, line  # noqa: B023 (as above)
        good += isinstance(want, dict)
    assert 750 <= good < 1500


def test_the_example_of_the_paper_is_native_but_for_its_labels() -> None:
    chars, words = reviews()
    program = chars.concat(words).linear_classifier([1] * 8, classes=["bad", "good"])
    kinds = [
        (stage.native, [item.op.name for item in stage.nodes])
        for stage in oven.bake(program).program.stages
    ]
    assert kinds[0][0]
    assert kinds[0][1][0] == "CsvField"
    assert kinds[1:] == [(True, ["TakeText"])]


def test_only_columns_that_are_read_are_converted() -> None:
    """A number that is none is an error where it is read, and only there."""
    lines = flour.csv({"id": flour.Scalar("int64"), "text": flour.Text()})
    assert oven.bake(lines["text"].length()).run(["none,abc"])["output"].tolist() == [3]
    with pytest.raises(WrongDtype):
        oven.bake(lines["id"]).run(["none,abc"])


def test_bad_csv_says_where() -> None:
    columns: Columns = {"a": flour.Scalar("int64"), "b": flour.Scalar("float64")}
    with pytest.raises(NotRectangular, match="expected 2 fields, got 3"):
        parsed(["1,2", "1,2,3"], columns)
    with pytest.raises(NotRectangular):
        parsed(['1,"2'], columns)
    with pytest.raises(NotRectangular):
        parsed(["1,2\n3,4"], columns)
    with pytest.raises(WrongDtype) as caught:
        parsed(["1,2", "1.5,2"], columns)
    assert caught.value.where == "$[1].a"
    with pytest.raises(ParameterError):
        flour.csv(columns, separator=", ")
    with pytest.raises(ParameterError):
        flour.csv({"v": flour.Vector(2)})
    with pytest.raises(ParameterError):
        flour.csv({})


# --- shapes of programs ---------------------------------------------------------------------------


def test_several_sources_and_named_outputs() -> None:
    left, right = flour.vector("left", 2), flour.vector("right", 3)
    both = flour.concat(left, right)
    program = flour.outputs(total=both.sum(), largest=both.max(), left=left)
    assert list(program.inputs()) == ["left", "right"]
    data = {"left": [[1.0, 2.0]], "right": [[3.0, 4.0, -5.0]]}
    for made in (program.reference(data), oven.bake(program).run(data)):
        assert list(made) == ["total", "largest", "left"]
        assert (made["total"], made["largest"]) == (5.0, 4.0)


def test_a_program_used_in_several_is_the_same_program() -> None:
    scaled = flour.vector("x", 2).scale([1, 2], [2, 4])
    first, second = (
        scaled.linear_regressor([1, 1]),
        scaled.logistic_classifier([1, 2], classes=[0, 1]),
    )
    both = flour.outputs(value=first["value"], **{name: second[name] for name in second.outputs})
    shared = set(topological(first.outputs.values())) & set(topological(second.outputs.values()))
    assert scaled.node in shared
    assert len(both.nodes()) == len(first.nodes()) + len(second.nodes()) - len(shared)
    x = np.array([[1.0, 2.0], [3.0, 10.0]])
    made = oven.bake(both).run(x)
    np.testing.assert_array_equal(made["value"], [0.0, 3.0])
    np.testing.assert_array_equal(made["label"], [0, 1])
    again = flour.vector("x", 2).scale([1, 2], [2, 4])
    assert again.node is scaled.node


def test_a_diamond_is_computed_once() -> None:
    x = flour.vector("x", 3)
    middle = x.multiply([2.0])
    program = (middle + middle.subtract([1.0])).sum()
    assert len([item for item in program.nodes() if item.op.name == "Multiply"]) == 1
    np.testing.assert_array_equal(oven.bake(program).run([[1.0, 2.0, 3.0]])["output"], [21.0])


def test_classifiers_of_several_classes() -> None:
    x = flour.vector("x", 2)
    program = x.logistic_classifier(np.eye(3)[:, :2], [0, 0, 0.5], classes=["a", "b", "c"])
    made = oven.bake(program).run([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    assert list(made["label"]) == ["a", "b", "c"]
    np.testing.assert_allclose(made["probabilities"].sum(axis=1), 1)
    assert made["scores"].shape == (3, 3)


def test_several_values() -> None:
    program = flour.vector("x", 2).linear_regressor([[1, 0], [0, 1], [1, 1]], [0, 1, 2])
    np.testing.assert_array_equal(program.reference([[1.0, 2.0]])["value"], [[1.0, 3.0, 5.0]])


@pytest.mark.parametrize("empty", [Take, TakeText])
def test_a_table_that_is_looked_into_has_entries(empty: type[Take | TakeText]) -> None:
    with pytest.raises(ParameterError, match="at least one entry"):
        empty([])


def test_mistakes_are_found_where_they_are_made() -> None:
    with pytest.raises(ParameterError, match="one for each class"):
        flour.vector("x", 2).linear_classifier([1, 2], classes=["a", "b", "c"])
    with pytest.raises(TypeMismatch) as caught:
        flour.text().word_ngrams(["a"])
    assert "test_dsl.py" in str(caught.value)
    assert "tokenize()" in str(caught.value)
    with pytest.raises(ParameterError):
        flour.text().tokenize("(a)(b)")
    with pytest.raises(ParameterError):
        flour.text().tokenize("(")
    with pytest.raises(ParameterError):
        flour.text().char_ngrams(["a"], 3, 2)


def test_tokens_may_be_an_input() -> None:
    program = flour.tokens("words").word_ngrams(["b a", "a"], 1, 2)
    assert program.reference([["a", "b", "a"], []])["output"].toarray().tolist() == [[1, 2], [0, 0]]
    with pytest.raises(WrongDtype):
        program.reference(["a b a"])


def test_categories_are_encoded_in_one_word() -> None:
    city = flour.category("city")
    rows = np.array(["Graz", "Bonn", "Oslo"], object)
    for program, expected in (
        (city.ordinal(["Oslo", "Graz"]), [1, -1, 0]),
        (city.one_hot(["Oslo", "Graz"]), [[0, 1], [0, 0], [1, 0]]),
    ):
        for made in (program.reference(rows), oven.bake(program).run(rows)):
            answer = made["output"]
            got = answer.toarray() if hasattr(answer, "toarray") else answer
            assert np.asarray(got).tolist() == expected
    sizes = flour.vector("sizes", 2).one_hot([[3, 1], [0, 5, 2]])
    made = oven.bake(sizes).run(np.array([[1.0, 2.0], [3.0, 9.0]]))["output"]
    assert made.toarray().tolist() == [[0, 1, 0, 0, 1], [1, 0, 0, 0, 0]]
