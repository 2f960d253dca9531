"""The text form of protocol buffers: everything config.pbtxt files use, and nothing else."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.repository.errors import BadConfig
from runtime.repository.pbtxt import MAX_DEPTH, MAX_TEXT, EnumName, Message, Value, parse

CONFIG = """
# a model
name: "fraud"  backend: 'fil'
max_batch_size: 0x10;
input [ { name: "input__0" data_type: TYPE_FP32, dims: [ 32, -1 ] } ]
parameters { key: "threshold" value { string_value: "0." "5" } }
parameters: < key: 'algo'; value: { string_value: "a\\tb\\x41\\101" } >
version_policy: { specific: { versions: [1, 3] } }
instance_group [{ kind: KIND_CPU }]
dynamic_batching {}
"""


def test_a_configuration_as_people_write_them() -> None:
    found = parse(CONFIG)
    assert (found.text("name"), found.text("backend")) == ("fraud", "fil")
    assert found.one("max_batch_size") == 16
    tensor = found.messages("input")[0]
    assert tensor["dims"] == [32, -1]
    assert isinstance(tensor.one("data_type"), EnumName)
    values = [each.one("value") for each in found.messages("parameters")]
    assert [each.text("string_value") for each in values if isinstance(each, Message)] == [
        "0.5",
        "a\tbAA",
    ]
    policy = found.messages("version_policy")[0].messages("specific")[0]
    assert policy["versions"] == [1, 3]
    assert found.one("dynamic_batching") == Message()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x: 1", 1),
        ("x: -17", -17),
        ("x: 017", 15),
        ("x: 0", 0),
        ("x: 1.5f", 1.5),
        ("x: .5e1", 5.0),
        ("x: true", True),
        ("x: False", False),
        ("x: -inf", float("-inf")),
        ("x: KIND_GPU", "KIND_GPU"),
        ("x: 1 x: 2", 2),
        ("x: []", None),
    ],
)
def test_scalars(text: str, value: object) -> None:
    assert parse(text).one("x") == value


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("x", "1:2"),
        ("x:\n  }", "2:3"),
        ("x: {", "1:5"),
        ("x: [1 2]", "1:7"),
        ('a: 1\nx: "open', "2:4"),
        ("x: 1 }", "1:6"),
        ("x: @", "1:4"),
        ("x: 1.2.3", "1:4"),
        ("{}", "1:1"),
    ],
)
def test_mistakes_have_a_place(text: str, place: str) -> None:
    with pytest.raises(BadConfig) as caught:
        parse(text, "c.pbtxt")
    assert caught.value.where == f"c.pbtxt:{place}"


def test_depth_and_length_are_bounded() -> None:
    parse("a {" * MAX_DEPTH + "}" * MAX_DEPTH)
    with pytest.raises(BadConfig, match="too deeply"):
        parse("a {" * (MAX_DEPTH + 1) + "}" * (MAX_DEPTH + 1))
    with pytest.raises(BadConfig, match="too deeply"):
        parse("a: {" * 10_000)
    with pytest.raises(BadConfig, match="too long"):
        parse(" " * (MAX_TEXT + 1))
    assert isinstance(parse("x: " + "9" * 5000).one("x"), float)


@given(st.text(max_size=200))
def test_any_text_is_a_message_or_an_error_with_its_place(text: str) -> None:
    found: object = None
    try:
        found = parse(text)
    except BadConfig as problem:
        found = problem.where
    assert isinstance(found, Message) or str(found).startswith("config.pbtxt:")


@given(st.lists(st.sampled_from([*'{}[]<>:,;"', "a", "b", " 1", ' "x"', "\n", "#"]), max_size=40))
def test_any_heap_of_its_own_parts_ends_well(parts: list[str]) -> None:
    try:
        parse("".join(parts))
    except BadConfig:
        return


names = st.text(string.ascii_letters + "_", min_size=1, max_size=8)
scalars = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.booleans(),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=20),
)
messages = st.recursive(
    st.dictionaries(names, st.lists(scalars, min_size=1, max_size=3), max_size=4),
    lambda inner: st.dictionaries(
        names, st.lists(st.one_of(scalars, inner), min_size=1, max_size=3), max_size=3
    ),
    max_leaves=12,
)


def write(message: dict[str, list[Any]], *, lists: bool) -> str:
    """A message as text: repeated fields one by one, or as lists."""
    lines = []
    for name, values in message.items():
        texts = [_value(value, lists=lists) for value in values]
        lines += [f"{name}: [{', '.join(texts)}]"] if lists else [f"{name}: {t}" for t in texts]
    return "\n".join(lines)


def _value(value: Any, *, lists: bool) -> str:
    if isinstance(value, dict):
        return "{ " + write(value, lists=lists) + " }"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


@given(messages, st.booleans())
def test_what_was_written_is_read(message: dict[str, list[Value]], lists: bool) -> None:  # noqa: FBT001 (drawn)
    assert parse(write(message, lists=lists)) == message
