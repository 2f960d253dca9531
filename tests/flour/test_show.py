"""Programs to look at."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
from flour import Flow
from flour.core.errors import ParameterError
from flour.language.show import described, lines
from objectstore import Blob, Strings
from tests.golden import Golden

X = np.arange(40.0).reshape(10, 4) ** 1.5
Y = np.arange(10) % 2


def small() -> Flow:
    """A program by hand, with two inputs and two outputs."""
    left = flour.vector("left", 3).subtract([1, 2, 3])
    right = flour.scalar("right", "float32")
    return flour.outputs(total=left.sum(), both=left.concat(right).multiply([0.5]))


def large() -> Flow:
    """A program of some thirty values, imported."""
    columns = ColumnTransformer(
        [("left", StandardScaler(), [0, 1]), ("right", StandardScaler(), [2, 3])]
    )
    voters = [(f"c{c}", LogisticRegression(C=c)) for c in (1, 2, 3)]
    model = make_pipeline(columns, VotingClassifier(voters, voting="soft"))
    return flour.from_sklearn(model.fit(X, Y))


@pytest.mark.parametrize("form", ["text", "mermaid", "html"])
@pytest.mark.parametrize("program", [small, large])
def test_a_program_in_every_form(program: object, form: str, golden: Golden) -> None:
    assert callable(program)
    assert golden == _stable(flour.show(program(), form))


def _stable(text: str) -> str:
    """Without line numbers, digests and fitted numbers, which move with tests and machines."""
    text = re.sub(r"Program [0-9a-f]{12}", "Program 0123456789ab", text)
    text = re.sub(r"(\[?\[[-0-9.e, ]+\]\]?)", "[0.12]", text)
    return re.sub(r"test_show\.py:\d+", "test_show.py:N", re.sub(r" {3,}", "  ", text))


def test_a_large_program_stays_readable() -> None:
    program = large()
    shown = flour.show(program).splitlines()
    assert 25 <= len(program.nodes()) <= 60
    assert len(shown) == len(program.nodes()) + len(program.outputs)
    assert max(map(len, shown)) <= 160


def test_every_value_has_its_operator_type_and_place() -> None:
    program = large()
    for line in lines(program):
        assert line.type == str(line.node.type)
        if line.operator != "in":
            assert line.operator == line.node.op.name
            assert line.place
    places = {line.place for line in lines(program)}
    assert "columntransformer.left" in places
    assert any("votingclassifier.c2" in place for place in places)


class Tags(HTMLParser):
    """Every tag and attribute of a page, and whether all tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else() -> None:
    program = flour.text("<script>alert(1)</script>").tokenize().drop_words(['"&<'])
    page = flour.show(program, "html")
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tags.found}
    assert not any({"src", "href"} & set(attrs) for _, attrs in tags.found)
    assert "http" not in page
    assert "url(" not in page
    assert "prefers-color-scheme: dark" in page


def test_mermaid_takes_labels_literally() -> None:
    shown = flour.show(flour.text("a").split('"<#>'), "mermaid")
    assert '"<#>' not in shown
    assert "&quot;&lt;&#35;&gt;" in shown


def test_parameters_are_short() -> None:
    assert described(Blob.of(np.zeros((3, 20)))) == "float64[3x20]"
    assert described(Blob.of([1.5, 1 / 3])) == "[1.5, 0.3333]"
    assert described(Strings.of(["a", "b"])) == "['a', 'b']"
    assert described(Strings.of(list("abcdef"))) == "6 texts"
    assert described((Blob.of([1.0]),) * 6) == "([1], [1], [1], [1], 2 more)"
    assert described(1 / 3) == "0.3333"
    assert len(described("x" * 500)) == 60


def test_an_unknown_form_is_an_error() -> None:
    with pytest.raises(ParameterError, match="pdf"):
        flour.show(small(), "pdf")
