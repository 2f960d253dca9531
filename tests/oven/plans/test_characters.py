"""Plans that look at characters say which Unicode they know, and notice another one."""

from __future__ import annotations

import unicodedata
import warnings
from pathlib import Path

import pytest
from sklearn.feature_extraction.text import CountVectorizer

import flour
import oven
from flour.ops.onnx_text import CutWords
from objectstore import Archive
from oven.errors import DamagedPlan, OtherUnicode
from oven.explain import explain
from oven.plans import characters, manifest
from oven.plans.plan import Plan
from tests.oven.plans.test_saved import rewritten

pytestmark = pytest.mark.once

DOCUMENTS = ["one two", "two three"]


def counting() -> Plan:
    return oven.bake(flour.from_sklearn(CountVectorizer().fit(DOCUMENTS)))


def test_the_file_and_explain_say_which_unicode(tmp_path: Path) -> None:
    plan, path = counting(), tmp_path / "plan"
    plan.save(path)
    with Archive.open(path) as archive:
        assert archive.manifest["unicode"] == unicodedata.unidata_version
    assert f"characters of Unicode {unicodedata.unidata_version}" in explain(plan)
    assert oven.load(path).run(DOCUMENTS)["features"].sum() == 4


@pytest.mark.parametrize(
    ("program", "known"),
    [
        (flour.text("x").lower().split(" ").word_ngrams(["a"]), True),
        (flour.text("x").strip_accents().split(" ").word_ngrams(["a"]), True),
        (flour.text("x").tokenize().word_ngrams(["a"]), True),
        (flour.text("x").char_ngrams(["a"]), True),
        (flour.text("x").runs(1, 2).hashing(8), True),
        (CutWords((r"\W+",))(flour.text("x")).word_ngrams(["a"]), True),
        (flour.text("x").split(" ").word_ngrams(["a"]), False),
        (flour.vector("x", 2).multiply([2.0]), False),
    ],
    ids=["lower", "accents", "words", "characters", "runs", "cut", "split", "numbers"],
)
def test_who_looks_at_characters(program: flour.Flow, known: bool) -> None:  # noqa: FBT001
    assert (characters.version(flour.outputs(out=program)) is not None) == known


def test_another_unicode_is_a_warning_in_four_parts(tmp_path: Path) -> None:
    path = rewritten(counting(), tmp_path / "plan", lambda data: data.update(unicode="9.0.0"))
    with pytest.warns(OtherUnicode) as caught:
        plan = oven.load(path)
    said = str(caught[0].message)
    assert all(part in said for part in ("other characters", str(path), "Unicode 9.0.0", "verify"))
    # Characters are those of this Python, as the library's are.
    assert plan.run(DOCUMENTS)["features"].sum() == 4
    assert manifest.described(plan.program)["unicode"] == unicodedata.unidata_version
    with warnings.catch_warnings():
        warnings.simplefilter("error", OtherUnicode)
        with pytest.raises(OtherUnicode):
            oven.load(path)


def test_a_file_of_before_is_read_without_a_word(tmp_path: Path) -> None:
    path = rewritten(counting(), tmp_path / "plan", lambda data: data.pop("unicode"))
    assert oven.load(path).run(DOCUMENTS)["features"].sum() == 4


@pytest.mark.parametrize("version", [14, None, ["14.0.0"], "1" * 30], ids=str)
def test_what_is_no_version_is_damage(version: object, tmp_path: Path) -> None:
    path = rewritten(counting(), tmp_path / "plan", lambda data: data.update(unicode=version))
    with pytest.raises(DamagedPlan, match="version of Unicode"):
        oven.load(path)
