"""Header blocks, held against the library `hpack`."""

from __future__ import annotations

import hpack
import pytest
from hpack.huffman_table import decode_huffman
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.http.wire.hpack import STATIC, HeaderDecoder, HpackError, encoded, huffman
from runtime.http.wire.http2_heads import HeaderBlocks

NAMES = st.sampled_from([b"a", b"user-agent", b"x-long", b"cookie", b"grpc-timeout"])
FIELDS = st.lists(st.tuples(NAMES, st.binary(max_size=40) | st.just(b"v" * 1500)), max_size=6)
#: Fields, packed by Huffman or not, and the size of the table before it if that changes.
BLOCKS = st.lists(st.tuples(FIELDS, st.booleans(), st.none() | st.integers(0, 4096)), max_size=12)
HEAD = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/v2")]


def test_the_static_table_is_that_of_the_library() -> None:
    assert STATIC[1:] == tuple(hpack.table.HeaderTable.STATIC_TABLE)


@settings(max_examples=50)
@given(BLOCKS)
def test_blocks_of_a_connection_are_decoded_as_they_were_meant(
    blocks: list[tuple[list[tuple[bytes, bytes]], bool, int | None]],
) -> None:
    encoder, decoder = hpack.Encoder(), HeaderDecoder()
    for fields, packed, size in blocks:
        if size is not None:
            encoder.header_table_size = size
        assert decoder.decode(encoder.encode(fields, huffman=packed), 1 << 20) == fields


@settings(max_examples=50)
@given(st.lists(st.sampled_from([b"1", b"22", b"a" * 1900, b"b" * 1900, b"c" * 1900]), max_size=25))
def test_remembered_heads_are_those_that_a_decoder_finds(values: list[bytes]) -> None:
    """Entries of the table come, and drive others out, so equal bytes mean other headers."""
    encoder, blocks = hpack.Encoder(), HeaderBlocks(1 << 16, lambda path: (path.decode(), ""))
    for value in values:
        head = blocks.read(encoder.encode([*HEAD, (b"x", value)]))
        assert head is not None
        assert (head.method, head.path, head.headers) == ("GET", "/v2", {b"x": value})


@given(st.binary(max_size=12))
def test_huffman_codes_are_read_and_refused_as_by_the_library(data: bytes) -> None:
    try:
        expected = decode_huffman(data)
    except hpack.HPACKDecodingError:
        with pytest.raises(HpackError):
            huffman(data)
    else:
        assert huffman(data) == expected


@given(st.binary(max_size=30))
def test_any_bytes_are_a_block_for_both_or_for_none(data: bytes) -> None:
    library = hpack.Decoder()
    try:
        expected = library.decode(data, raw=True)
    except hpack.HPACKError:
        with pytest.raises(HpackError):
            HeaderDecoder().decode(data, 1 << 20)
    else:
        assert HeaderDecoder().decode(data, 1 << 20) == expected


@given(FIELDS)
def test_blocks_of_responses_are_read_by_the_library(fields: list[tuple[bytes, bytes]]) -> None:
    told = [(name.decode(), value.decode("latin-1")) for name, value in fields]
    assert hpack.Decoder().decode(encoded(told), raw=True) == fields
