"""Read the text form of protocol buffers, as Triton's config.pbtxt is written.

    message = { name [":"] value [";" | ","] }
    value   = scalar | "{" message "}" | "<" message ">" | "[" [ value { "," value } ] "]"
    scalar  = string { string } | number | word

There is no schema here: a message maps each name to the list of values it was given, as a field
may be repeated. The caller interprets names. The text is untrusted: its length and depth are
bounded, and any mistake is an error with line and column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from runtime.repository.errors import BadConfig

MAX_TEXT = 1 << 18
MAX_DEPTH = 32

_TOKEN = re.compile(
    r"""(?P<space>[\s]+|\#[^\n]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<number>[-+]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[fF]?)(?![\w.]))
      | (?P<word>-?[A-Za-z_][\w.]*)
      | (?P<extension>\[[A-Za-z_][\w./]*\])
      | (?P<mark>[:{}<>\[\],;])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CLOSING = {"{": "}", "<": ">"}
_WORDS = {"true": True, "false": False, "True": True, "False": False}


class EnumName(str):
    """A bare word that is not a boolean: the name of an enumeration's value."""

    __slots__ = ()


class Message(dict[str, list["Value"]]):
    """Names with the list of values each was given, in order."""

    def one(self, name: str) -> Value | None:
        """The last value of a name, as for a field that is not repeated; None without one."""
        values = self.get(name)
        return values[-1] if values else None

    def messages(self, name: str) -> list[Message]:
        """The values of a name that are messages."""
        return [value for value in self.get(name, ()) if isinstance(value, Message)]

    def text(self, name: str) -> str:
        """The last value of a name as a string; empty without one."""
        value = self.one(name)
        return str(value) if isinstance(value, str) else ""


Value = str | bool | int | float | EnumName | Message


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse(text: str, where: str = "config.pbtxt") -> Message:
    """The message in a text."""
    if len(text) > MAX_TEXT:
        raise BadConfig(
            "this configuration is too long",
            where=where,
            found=f"{len(text):,} characters, at most {MAX_TEXT:,} are read",
        )
    return _TokenReader(text, where).whole()


class _TokenReader:
    """Walks over the tokens of one text; `_at` is the next one."""

    def __init__(self, text: str, where: str) -> None:
        self._text, self._where = text, where
        self._tokens = list(self._scan())
        self._at = 0

    def _scan(self) -> Iterator[_Token]:
        position = 0
        while position < len(self._text):
            matched = _TOKEN.match(self._text, position)
            if matched is None:
                raise self._wrong("this is no part of a configuration", position)
            kind = matched.lastgroup or ""
            if kind != "space":
                yield _Token(kind, matched.group(), position)
            position = matched.end()
        yield _Token("end", "", position)

    def whole(self) -> Message:
        """The whole text as one message."""
        message = self._message(0)
        if self._peek().kind != "end":
            raise self._unexpected("a name")
        return message

    def _message(self, depth: int) -> Message:
        if depth > MAX_DEPTH:
            raise self._wrong("this configuration is nested too deeply", self._peek().at)
        message = Message()
        while self._peek().kind in ("word", "extension"):
            name = self._next().text
            colon = self._skip(":")
            if not colon and self._peek().text not in ("{", "<", "["):
                raise self._unexpected("':' or a message")
            message.setdefault(name, []).extend(self._values(depth))
            self._skip(",") or self._skip(";")
        return message

    def _values(self, depth: int) -> list[Value]:
        if self._peek().kind == "extension":  # a list of one word: [KIND_CPU]
            return [_word(self._next().text[1:-1])]
        if not self._skip("["):
            return [self._value(depth)]
        values: list[Value] = []
        while not self._skip("]"):
            values.append(self._value(depth))
            if not self._skip(",") and self._peek().text != "]":
                raise self._unexpected("',' or ']'")
        return values

    def _value(self, depth: int) -> Value:
        token = self._next()
        match token.kind:
            case "string":
                parts = [token.text]
                while self._peek().kind == "string":  # neighbours are one string
                    parts.append(self._next().text)
                return "".join(_ESCAPE.sub(_unescape, part[1:-1]) for part in parts)
            case "number":
                return _number(token.text)
            case "word":
                return _word(token.text)
        if token.text not in _CLOSING:
            self._at -= 1
            raise self._unexpected("a value")
        message = self._message(depth + 1)
        if not self._skip(_CLOSING[token.text]):
            raise self._unexpected(repr(_CLOSING[token.text]))
        return message

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _skip(self, mark: str) -> bool:
        token = self._peek()
        matches = token.kind == "mark" and token.text == mark
        self._at += matches
        return matches

    def _unexpected(self, wanted: str) -> BadConfig:
        token = self._peek()
        found = repr(token.text[:40]) if token.text else "the end of the text"
        return self._wrong(f"{wanted} should stand here", token.at, found)

    def _wrong(self, what: str, at: int, found: str | None = None) -> BadConfig:
        line = self._text.count("\n", 0, at) + 1
        column = at - (self._text.rfind("\n", 0, at) + 1) + 1
        shown = found or repr(self._text[at : at + 20])
        return BadConfig(what, where=f"{self._where}:{line}:{column}", found=shown)


def _number(text: str) -> int | float:
    if text.lstrip("+-")[:2].lower() == "0x":
        return int(text, 16)
    if re.fullmatch(r"[-+]?\d+", text):
        digits = text.lstrip("+-")
        octal = len(digits) > 1 and digits[0] == "0" and not set(digits) & {"8", "9"}
        if octal:
            return int(text, 8)
        return int(text) if len(text) < 40 else float(text)  # too many digits for any field
    return float(text.rstrip("fF"))


def _word(text: str) -> Value:
    if text in _WORDS:
        return _WORDS[text]
    if text.lstrip("-").lower() in ("inf", "infinity", "nan"):
        return float(text)
    return EnumName(text)


def _unescape(escape: re.Match[str]) -> str:
    hexadecimal, octal, other = escape.groups()
    if hexadecimal:
        return chr(int(hexadecimal, 16))
    if octal:
        return chr(int(octal, 8) & 0xFF)
    return _ESCAPES.get(other, other)
