"""The golden files themselves: a missing or different text fails, an accepted one does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import Golden, stem_of


def golden_in(place: Path, *, update: bool = False) -> Golden:
    """Return the golden text of an imagined test below `place`."""
    return Golden(stem_of(place / "test_it.py", "test_it[a/b c]"), update=update)


def test_the_file_is_named_after_the_test(tmp_path: Path) -> None:
    golden = golden_in(tmp_path)
    assert golden.path() == tmp_path / "golden" / "test_it-a-b-c.txt"
    assert golden.path("plan") == tmp_path / "golden" / "test_it-a-b-c.plan.txt"


def test_a_missing_file_fails_and_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="--update-golden"):
        golden_in(tmp_path)("text")
    assert list(tmp_path.iterdir()) == []


def test_an_accepted_text_is_expected_from_then_on(tmp_path: Path) -> None:
    golden_in(tmp_path, update=True)("first\nsecond")
    golden = golden_in(tmp_path)
    assert golden == "first\nsecond"
    with pytest.raises(AssertionError, match=r"-second\n\+other"):
        golden("first\nother")


def test_texts_of_one_test_do_not_mix(tmp_path: Path) -> None:
    accepted = golden_in(tmp_path, update=True)
    accepted("one", "plan")
    accepted("two", "source")
    golden_in(tmp_path)("one", "plan")
    with pytest.raises(AssertionError, match="differs"):
        golden_in(tmp_path)("one", "source")


def test_only_text_is_compared(tmp_path: Path) -> None:
    assert golden_in(tmp_path, update=True) != 3
    assert list(tmp_path.iterdir()) == []


def test_the_fixture_is_this_test_s_own(golden: Golden) -> None:
    expected = Path(__file__).parent / "golden" / "test_the_fixture_is_this_test_s_own.txt"
    assert golden.path() == expected
