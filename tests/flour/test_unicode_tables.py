"""Tables of characters that come with the package: the ones that Python itself would build."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flour.strings import patterns, unicode, unicode_tables
from tests.house import ROOT

pytestmark = pytest.mark.once

HINT = "run scripts/unicode_tables.py with each version of Python"
BUILT = unicode.built()


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What a test makes of other files is made anew afterwards."""
    yield
    for each in (unicode_tables._packed, unicode.words, unicode.contexts, patterns.automaton):
        each.cache_clear()


@pytest.mark.parametrize("name", BUILT)
def test_a_table_is_the_one_that_this_python_builds(name: str) -> None:
    found = unicode_tables.stored(name)
    assert found is not None, HINT
    for stored, built in zip(found, BUILT[name], strict=True):
        assert stored.dtype == built.dtype
        np.testing.assert_array_equal(stored, built.reshape(-1), err_msg=HINT)


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_every_version_of_python_has_a_file(version: str) -> None:
    tag = f"cpython-{version.replace('.', '')}.tables"
    assert (ROOT / "flour" / "strings" / "tables" / tag).is_file(), HINT


@pytest.mark.parametrize("content", [None, b"", b"{}", b"not JSON\n"])
def test_without_a_file_the_tables_are_built(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [blob.digest for blob in unicode.contexts()]
    path = tmp_path / "a.tables"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(unicode_tables, "path", lambda: path)
    unicode_tables._packed.cache_clear()
    unicode.contexts.cache_clear()
    assert unicode_tables.stored("contexts") is None
    assert [blob.digest for blob in unicode.contexts()] == expected


@pytest.mark.parametrize("damage", ["another Unicode", "a byte"])
def test_tables_of_another_unicode_and_damaged_ones_are_not_used(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, _, body = unicode_tables.path().read_bytes().partition(b"\n")
    if damage == "a byte":
        body = body[:20] + bytes([body[20] ^ 1]) + body[21:]
    else:
        head = re.sub(rb'"unicode": "[0-9.]+"', b'"unicode": "1.1.5"', head)
    path = tmp_path / "a.tables"
    path.write_bytes(head + b"\n" + body)
    monkeypatch.setattr(unicode_tables, "path", lambda: path)
    unicode_tables._packed.cache_clear()
    assert unicode_tables.stored(next(iter(BUILT))) is None


@pytest.mark.parametrize("pattern", [r"\b\w\w+\b", r"\w+", r"[\w.]+@\w+", r"(?i)\w+", r"(?a)\b\w+"])
def test_words_of_patterns_are_those_that_re_matches(pattern: str) -> None:
    """Looked up or matched, a character is of a kind by `re` alone."""
    made = patterns.automaton(pattern)
    assert made is not None
    index, blocks = (blob.array for blob in made.characters)
    kinds = blocks.reshape(-1, 256)[index].reshape(-1)
    plain = re.compile(r"\w", re.ASCII if "(?a)" in pattern else re.UNICODE)
    words = np.array([plain.match(letter) is not None for letter in unicode.everything()])
    assert set(kinds[words].tolist()).isdisjoint(kinds[~words].tolist())


@pytest.mark.parametrize(
    "spelt", ["[a-c]", "[^ab]", "[a-zc-fx]", "[^\x00-\x7f]", "[\0-\U0010ffff]", "[一-鿿\U0010ffff]"]
)
def test_sets_that_are_spelt_out_hold_what_re_finds(
    spelt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = unicode.matched(re.compile(f"{spelt}+"))
    monkeypatch.setattr(unicode, "matched", None)  # it is slow, and not asked
    found = patterns._Compiler(spelt)
    found.automaton()
    assert found.members[0].tolist() == wanted.tolist()
