"""Digests of a program with traced arrays, for other arrays in their place.

    digests = TracedDigests(flow)       # the parameters that are traced arrays: digests.blobs
    digests.of(arrays)                  # the digests of a program with these arrays in their place

A node's digest is made of its operator's and its inputs', an operator's of its parameters'. Which
digests each is made of is recorded once; those without traced arrays behind them stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from flour.core.chunked_array import Pieces
from flour.core.op import Op
from flour.core.source import Source
from flour.language.flow import Flow
from flour.tracing.traced_array import TracedArray
from objectstore import DIGEST_CHARS, Blob, Strings, array_digest, combine, strings_digested

#: A text that is hashed, in parts: every other part is a digest that depends on numbers.
Text = tuple[str, ...]


class TracedDigests:
    """How the digests of a program are derived from each other."""

    def __init__(self, flow: Flow) -> None:
        #: Parameters that are traced arrays.
        self.blobs: list[Blob] = []
        self._changing: set[str] = set()
        #: Each digest that depends on them, and the texts that it is the digest of.
        self._made: list[tuple[str, tuple[Text, ...]]] = []
        nodes = flow.nodes()
        for item in nodes:
            self._operator(item.op)
            self._note(item.digest, [item.op.digest, *(each.digest for each in item.inputs)])
        self._nodes = tuple(item.digest for item in nodes if not isinstance(item.op, Source))
        self._outputs = tuple(self._text(f"{k}={v.digest}") for k, v in flow.outputs.items())

    def _operator(self, op: Op) -> None:
        for value in _values(op):
            match value:
                case Op():
                    self._operator(value)
                case Blob():
                    self._blob(value)
                case Strings():
                    for part in value.blobs():
                        self._blob(part)
                    self._note(value.digest, strings_digested(*(p.digest for p in value.blobs())))
                case Pieces():
                    for part in value.parts:
                        self._blob(part)
                    self._note(value.digest, ["Pieces", *(part.digest for part in value.parts)])
        self._note(op.digest, [op.name, *op.digested()])

    def _blob(self, blob: Blob) -> None:
        array: Any = blob.array
        if isinstance(array, TracedArray) and blob.digest not in self._changing:
            self._changing.add(blob.digest)
            self.blobs.append(blob)

    def _note(self, digest: str, texts: Sequence[str]) -> None:
        made = tuple(map(self._text, texts))
        if digest not in self._changing and any(len(text) > 1 for text in made):
            self._changing.add(digest)
            self._made.append((digest, made))

    def _text(self, text: str) -> Text:
        """The text in parts."""
        parts, rest = [""], 0
        while rest < len(text):
            found = text[rest : rest + DIGEST_CHARS]
            if found in self._changing:
                parts += [found, ""]
                rest += DIGEST_CHARS
            else:
                parts[-1] += text[rest]
                rest += 1
        return tuple(parts)

    def of(self, arrays: Sequence[NDArray[Any]]) -> tuple[str, str]:
        """The program's digest, and those of its nodes, inputs left out, in a row.

        The arrays are those of `blobs`, and perhaps more.
        """
        now = {
            blob.digest: array_digest(array)
            for blob, array in zip(self.blobs, arrays, strict=False)
        }
        for digest, texts in self._made:
            now[digest] = combine(*(_filled(text, now) for text in texts))
        whole = combine(*(_filled(text, now) for text in self._outputs))
        # Nodes may be equal with these numbers that were not with others.
        return whole, "".join(dict.fromkeys(now.get(item, item) for item in self._nodes))


def _filled(text: Text, now: dict[str, str]) -> str:
    return "".join(now[part] if place % 2 else part for place, part in enumerate(text))


def _values(op: Op) -> Iterator[object]:
    for value in op.fields().values():
        if isinstance(value, tuple):
            yield from value
        else:
            yield value
