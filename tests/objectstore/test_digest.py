"""Digests of sequences and the check of digests that come from outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectstore import BadDigest, combine
from objectstore.digest import check_digest, is_digest

_PARTS = st.lists(st.binary(max_size=4), max_size=4)


@given(_PARTS, _PARTS)
def test_combine_tells_sequences_apart(one: list[bytes], other: list[bytes]) -> None:
    assert (combine(*one) == combine(*other)) is (one == other)


@given(st.lists(st.text(st.characters(exclude_categories=())), max_size=4))
def test_texts_count_as_their_utf8(texts: list[str]) -> None:
    digest = combine(*texts)
    assert digest == combine(*(text.encode("utf-8", "surrogatepass") for text in texts))
    assert is_digest(digest)


@pytest.mark.parametrize("text", ["", "../../etc", "A" * 32, "a" * 31, "a" * 33, "g" * 32])
def test_refuses_what_is_no_digest(text: str) -> None:
    with pytest.raises(BadDigest, match="32 lower-case"):
        check_digest(text, "test")


def test_message_has_four_parts() -> None:
    with pytest.raises(BadDigest) as caught:
        check_digest("x", "here")
    assert str(caught.value).splitlines() == [
        "this is not a digest",
        "  at     here",
        "  found  'x'",
        "  hint   a digest is 32 lower-case hexadecimal characters",
    ]
