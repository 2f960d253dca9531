"""Graphs as files: saved ones, and those that are written as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour.core.errors import ParameterError, PythonRefused
from runtime import Runtime
from runtime.cli import main
from runtime.repository.repository import Repository
from tests.house import run_python
from tests.runtime.graph.models import columns, people, row, table_model, text_model

ROWS = columns(people(64, seed=7))
TEXT = """
[inputs]
age = "number"
income = "number"
city = "category"
note = "text"

[nodes.final]
choose = [
    { when = "score > 0.6 and city != 'Rome'", then = "score" },
    { when = "age > 90", then = 1 },
]
otherwise = "(score + doubt.probabilities[1]) / 2"

[nodes.risk]
model = "risk"
reads = ["age", "income", "city"]

[nodes.doubt]
model = "spam@1"
reads = "note"

[nodes.score]
value = "risk.probabilities[1]"

[nodes.both]
mean = ["risk.probabilities", "doubt.probabilities"]

[outputs]
approve = "final < 0.5"
score = "final"
both = "both"
label = "risk.label"
"""


def written_in_python() -> flour.Flow:
    """The same graph."""
    person = row()
    risk = flour.model("risk")(person["age", "income", "city"])
    doubt = flour.model("spam@1")(person["note"])
    score = risk["probabilities"][1]
    sure = (score > 0.6) & (person["city"] != "Rome")
    rest = (score + doubt["probabilities"][1]) / 2
    final = flour.first_match([(sure, score), (person["age"] > 90, 1)], rest)
    both = flour.ensemble([risk["probabilities"], doubt["probabilities"]]).mean()
    return flour.outputs(approve=final < 0.5, score=final, both=both, label=risk["label"])


def registered(runtime: Runtime) -> None:
    runtime.register("risk", table_model(0), background=False)
    runtime.register("spam", text_model(0), background=False)


def test_text_and_python_make_the_same_graph(tmp_path: Path) -> None:
    path = tmp_path / "decide.graph.toml"
    path.write_text(TEXT)
    with Runtime() as runtime:
        registered(runtime)
        runtime.register("text", path, background=False)
        runtime.register("python", written_in_python(), background=False)
        one, two = (runtime.predict(name, ROWS) for name in ("text", "python"))
        assert one.keys() == two.keys()
        for name in one:
            assert np.array_equal(one[name], two[name]), name


def test_a_saved_graph_is_the_graph(tmp_path: Path) -> None:
    graph = written_in_python()
    flour.save_graph(graph, tmp_path / "decide.graph")
    loaded = flour.load_graph(tmp_path / "decide.graph")
    assert loaded.digest == graph.digest
    inner = flour.plan(oven.bake(text_model(2)))(row()["note"])["scores"] * np.array([2.0])
    flour.save_graph(inner, tmp_path / "inner.graph")
    (tmp_path / "copy.graph").write_bytes((tmp_path / "inner.graph").read_bytes())
    assert flour.load_graph(tmp_path / "copy.graph").digest == inner.digest
    with Runtime() as runtime:
        registered(runtime)
        runtime.register("decide", tmp_path / "decide.graph", background=False)
        runtime.register("inner", tmp_path / "inner.graph", background=False)
        expected = oven.bake(text_model(2)).run(ROWS["note"])["scores"] * 2.0
        assert np.array_equal(np.ravel(runtime.predict("inner", ROWS)["output"]), expected)


@pytest.mark.parametrize("name", ["graph.toml", "decide.toml", "decide"])
def test_a_graph_is_not_saved_under_a_name_that_is_read_as_text(name: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"ends in \.graph") as caught:
        flour.save_graph(written_in_python(), tmp_path / name)
    assert "test_files.py" in str(caught.value)
    assert not (tmp_path / name).exists()


def test_a_new_process_knows_the_words_of_a_saved_graph(tmp_path: Path) -> None:
    """Only what linking needs is imported there."""
    oven.bake(table_model(0)).save(tmp_path / "risk.pretzel")
    oven.bake(text_model(0)).save(tmp_path / "spam.pretzel")
    flour.save_graph(written_in_python(), tmp_path / "decide.graph")
    code = """
import sys
from runtime import Runtime
with Runtime() as runtime:
    for name in ("risk.pretzel", "spam.pretzel", "decide.graph"):
        runtime.register(name.partition(".")[0], f"{sys.argv[1]}/{name}")
    row = {"age": 40.0, "income": 20.0, "city": "Oslo", "note": "word01"}
    print(sorted(runtime.predict("decide", row)))
"""
    assert run_python(code, str(tmp_path)) == "['approve', 'both', 'label', 'score']\n"


def test_a_graph_alone_cannot_be_baked() -> None:
    with pytest.raises(flour.FlourError, match="before the models"):
        oven.bake(written_in_python())


def test_coroutines_of_files_need_permission(tmp_path: Path) -> None:
    text = """
    [inputs]
    age = "number"
    [nodes.pair]
    fetch = "asyncio:sleep"
    reads = ["age"]
    gives = "vector 2"
    [outputs]
    sum = "pair[0] + pair[1]"
    """
    path = tmp_path / "graph.toml"
    path.write_text(text)
    with pytest.raises(PythonRefused):
        flour.load_graph(path)
    assert flour.load_graph(path, allow_python=True).inputs()


BROKEN = [
    (TEXT[: TEXT.index("[outputs]")], "a graph has outputs"),
    (TEXT.replace('"risk.label"', '"risc.label"'), "did you mean 'risk'"),
    (TEXT.replace('value = "risk.probabilities[1]"', 'value = "final + 1"'), "in a circle"),
    (TEXT.replace('reads = "note"', 'read = "note"'), "has no 'read'"),
    (TEXT.replace('"final < 0.5"', '"__import__(1)"'), "not part of the language"),
    (TEXT.replace('"final < 0.5"', '"final <"'), "cannot be read"),
    (TEXT.replace('age = "number"', 'age = "numbers"'), "no such type"),
    ("[inputs", "no TOML"),
]


@pytest.mark.parametrize(("text", "said"), BROKEN)
def test_a_mistake_in_a_text_is_told_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.toml"
    path.write_text(text)
    with pytest.raises(ParameterError, match=said) as caught:
        flour.load_graph(path)
    assert "graph.toml" in str(caught.value)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "decide.graph"
    flour.save_graph(written_in_python(), path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        broken = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            broken[place] = rng.integers(0, 256)
        path.write_bytes(bytes(broken[: rng.integers(1, len(whole))]))
        with pytest.raises(Exception) as caught:
            flour.load_graph(path)
        assert hasattr(caught.value, "what"), caught.value


def test_a_folder_serves_a_graph_after_its_models(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    (folder / "decide").mkdir(parents=True)
    (folder / "decide" / "graph.toml").write_text(TEXT)
    oven.bake(table_model(0)).save(folder / "risk.pretzel")
    with Runtime() as runtime:
        repository = Repository(folder, runtime, quiet_seconds=0.0)
        events = {(event.name, event.kind) for event in repository.load_all()}
        assert events == {("risk", "loaded"), ("decide", "refused")}
        oven.bake(text_model(0)).save(folder / "spam.pretzel")
        kinds: set[Any] = set()
        for _ in range(4):
            kinds |= {(event.name, event.kind) for event in repository.poll()}
        assert {("spam", "loaded"), ("decide", "loaded")} <= kinds
        first = runtime.predict("decide", ROWS)["score"]
        (folder / "decide" / "graph.toml").write_text(TEXT.replace("/ 2", "/ 4"))
        for _ in range(3):
            repository.poll()
        assert not np.array_equal(runtime.predict("decide", ROWS)["score"], first)


def test_the_command_line_opens_a_graph_with_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "decide.graph.toml").write_text(TEXT)
    oven.bake(table_model(0)).save(tmp_path / "risk.pretzel")
    assert main(["explain", str(tmp_path / "decide")]) != 0
    assert "spam" in capsys.readouterr().err
    oven.bake(text_model(0)).save(tmp_path / "spam.pretzel")
    assert main(["explain", str(tmp_path / "decide")]) == 0
    assert "WordNgrams" in capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "decide")]) == 0
    assert "approve" in capsys.readouterr().out
    rows = tmp_path / "rows.csv"
    people(8).to_csv(rows, index=False)
    assert main(["predict", str(tmp_path / "decide"), str(rows)]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 8


def test_a_graph_of_an_endpoint_with_a_route_is_loaded_with_it(tmp_path: Path) -> None:
    for name, model in (("risk", table_model(0)), ("spam", text_model(0))):
        for version in ("1", "2"):
            (tmp_path / name / version).mkdir(parents=True)
            oven.bake(model, background=False).save(tmp_path / name / version / "m.pretzel")
    (tmp_path / "risk" / "endpoint.toml").write_text('champion = "risk@1"')
    (tmp_path / "decide").mkdir()
    (tmp_path / "decide" / "graph.toml").write_text(TEXT)
    with Runtime() as runtime, Repository(tmp_path, runtime, quiet_seconds=0) as repository:
        events = repository.load_all()
        assert {each.kind for each in events} == {"loaded", "routed"}
        assert "score" in runtime.predict("decide", ROWS)
