"""The words and phrases of documents that a linear term counts, with their places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.op import Columns
from flour.core.source import Source
from flour.core.sparse import Sparse
from flour.ops.ngrams import CharNgrams, Hashing, Phrases, Runs, WordNgrams
from flour.ops.source import Field
from flour.ops.text import DropWords, Placed, Split, TextMap, Tokenize
from oven.explain.attribution.terms import Weighted, ours
from oven.plans.attribution import Part

Places = list[tuple[int, int]]
#: Between words that one column counts, as their hashes say.
_BOTH = " or "
_Counts = WordNgrams | CharNgrams | Hashing
_Step = TextMap | Tokenize | Split | DropWords | Phrases | Runs


@dataclass(frozen=True)
class CountedWords:
    """A linear term whose columns are the counts of words, as they come of one document."""

    column: int
    counts: _Counts
    #: The operators from the document to its words, the first one first.
    way: tuple[_Step, ...]
    weights: NDArray[np.float64]


class Documents:
    """The words of a block's documents, which are counted when they are first looked at."""

    def __init__(
        self,
        columns: Sequence[str],
        counted: Mapping[int, CountedWords],
        values: Callable[[], Mapping[str, Columns]],
        raw: Callable[[], Mapping[str, Sequence[Any]]],
    ) -> None:
        """`values` computes the linear terms, and `raw` the raw columns, of all rows."""
        self._columns, self._counted = columns, counted
        self._values, self._read = cache(values), cache(raw)

    def words(self, row: int, score: int) -> Iterator[Part]:
        """The share of each word of the row's documents in a score."""
        for place, counted in self._counted.items():
            held: Sparse = ours(self._values()[f"linear {place}"])
            start, end = held.indptr[row : row + 2].tolist()
            name = self._columns[counted.column]
            document = self._read()[name][row]
            places = places_of(counted, document)
            for column, number in zip(held.indices[start:end], held.data[start:end], strict=True):
                terms = counted.counts.terms(int(column), places)
                share = float(number * counted.weights[score, column])
                where = sorted(place for term in terms for place in places.get(term, ()))
                yield Part(name, document, share, _BOTH.join(terms), tuple(where))


def counted_of(term: Weighted) -> CountedWords | None:
    """The term as the counts of words, if it is that: from there on its columns stay in place."""
    item, width = term.node, term.weights.shape[1]
    if not getattr(item.type, "sparse", False):
        return None
    while not isinstance(item.op, _Counts):
        if not item.op.by_column or getattr(item.inputs[0].type, "width", 1) != width:
            return None
        item = item.inputs[0]
    way: list[_Step] = []
    read = item.inputs[0]
    while not isinstance(read.op, Source | Field):
        if not isinstance(read.op, _Step):
            return None
        way.append(read.op)
        read = read.inputs[0]
    return CountedWords(int(term.made[0]), item.op, tuple(reversed(way)), term.weights)


def places_of(counted: CountedWords, document: str) -> dict[str, Places]:
    """Where each word or phrase stands: its first character, and the one behind its last."""
    text, where = document, list(range(len(document) + 1))
    words: list[Placed] = []
    for op in (*counted.way, counted.counts):
        if isinstance(op, TextMap):
            text, back = op.traced(text)
            where = [where[place] for place in back]
        else:
            words = op.placed(text, words)
    made: dict[str, Places] = {}
    for term, first, end in words:
        made.setdefault(term, []).append((where[first], where[end]))
    return made
