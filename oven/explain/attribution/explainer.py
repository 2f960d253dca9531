"""Exact attribution of one output of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError
from flour.core.op import Columns
from flour.core.source import Source
from flour.core.sparse import Sparse, densify
from flour.core.types import Record, Vector
from flour.data.coerce import coerce
from flour.language.flow import Flow
from flour.ops.ngrams import CharNgrams, Hashing, Phrases, Runs, WordNgrams
from flour.ops.source import Field
from flour.ops.text import DropWords, Placed, Split, TextMap, Tokenize
from oven.explain.attribution.terms import (
    ScoreTerms,
    Weighted,
    at_terms,
    ours,
    score_of,
    shares_of,
    terms,
)
from oven.explain.attribution.tree_code import by_covers, to_background
from oven.explain.attribution.tree_tables import Numbers, TreePaths
from oven.plans.attribution import Attribution, Part
from oven.plans.plan import Plan, bakers

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
    """The places of each word or phrase: its first character, and the one behind its last."""
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


SCORE = "score"
COMPARED = "pass some rows that are compared with"


class Explainer:
    """One output of a plan: its score as a sum of terms, and a plan of the terms."""

    def __init__(self, plan: Plan, output: str) -> None:
        self.output, self.inputs, self.reader = output, plan.inputs, plan.reader
        asked = plan.flow.outputs[output]
        self.terms: ScoreTerms = terms(score_of(asked))
        self.raw_score = self.terms.score is not asked
        #: The number of raw columns, and one for what is made of none.
        self.count = len(self.terms.columns) + 1
        #: The programs of the shares of linear terms.
        self.shares = [shares_of(term, len(self.terms.columns)) for term in self.terms.linear]
        nodes = {SCORE: self.terms.score}
        nodes |= {f"linear {i}": each.node for i, each in enumerate(self.shares)}
        nodes |= {f"trees {i}": term.node.inputs[0] for i, term in enumerate(self.terms.trees)}
        #: The score, the shares of the linear terms, and what the trees read.
        self.plan = bakers[-1](Flow(nodes), exact=plan.exact, background=False)
        kind, classes = self.terms.score.type, plan.classes or ()
        self.scores = kind.width if isinstance(kind, Vector) else 1
        self.names = classes if len(classes) == self.scores else ()

    @cached_property
    def values(self) -> Plan:
        """A plan of the values of the linear terms, for those who look at words."""
        nodes = {f"linear {i}": term.node for i, term in enumerate(self.terms.linear)}
        return bakers[-1](Flow(nodes), exact=self.plan.exact, background=False)

    @cached_property
    def counted(self) -> dict[int, CountedWords]:
        """The linear terms that count words, by their numbers."""
        every = ((i, counted_of(term)) for i, term in enumerate(self.terms.linear))
        return {i: counted for i, counted in every if counted is not None}

    @cached_property
    def paths(self) -> list[TreePaths]:
        """The trees, whose features go by the raw columns that they are made of."""
        made = (np.where(term.made < 0, self.count - 1, term.made) for term in self.terms.trees)
        return [
            TreePaths(term.node.op, columns)  # type: ignore[arg-type]  # they are trees
            for term, columns in zip(self.terms.trees, made, strict=True)
        ]

    @cached_property
    def read(self) -> list[int]:
        """The numbers of the columns that are in the data: some may be named and never read."""
        records = [kind for kind in self.inputs.values() if isinstance(kind, Record)]
        unread = {name for kind in records for name in kind.unread}
        if len(self.inputs) > 1:
            return [*range(len(self.terms.columns))]
        return [i for i, name in enumerate(self.terms.columns) if name not in unread]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.terms.columns[column] for column in self.read)

    def block(self, rows: object) -> Any:
        """The rows as a block."""
        return self.reader.read(rows).block

    def exact(self, rows: object, background: object) -> Attribution:
        """The share of each raw column, against a background or what training has left."""
        block = self.block(rows)
        found = self.plan.run(block)
        others = None if background is None else self.plan.run(self.block(background))
        score = np.asarray(found[SCORE], np.float64)
        if self._is_one_term and others is None:
            only = np.asarray(found["linear 0"], np.float64)[:, :, None]
            return self.made(block, only, self._base, score)
        values = np.zeros((len(score), self.count, self.scores))
        for i, shares in enumerate(self.shares):
            shares.add(values, found[f"linear {i}"])
        if others is None:  # what is made of no column is the same for every row
            base = self._base + (values[0, -1] if len(values) else 0.0)
        else:
            against = np.asarray(others[SCORE], np.float64).reshape(-1, self.scores)
            if not len(against):
                raise ParameterError(
                    "the background has no rows", where="background", hint=COMPARED
                )
            mean = np.zeros((len(against), *values.shape[1:]))
            for i, shares in enumerate(self.shares):
                shares.add(mean, others[f"linear {i}"])
            base, values = against.mean(axis=0), values - mean.mean(axis=0)
        self._add_trees(values, found, others)
        documents = None
        if others is None and self.counted:
            linear, raw = partial(self.values.run, block), partial(self.raw, block)
            documents = Documents(self.terms.columns, self.counted, linear, raw)
        return self.made(block, values[:, :-1], base, score, documents)

    def made(
        self,
        block: object,
        values: Numbers,
        base: Numbers,
        score: Numbers,
        documents: Documents | None = None,
        errors: Numbers | None = None,
        base_error: Numbers | None = None,
    ) -> Attribution:
        """The answer; a single score has no axis of its own."""
        single, read = self.scores == 1, partial(self.raw, block)
        if len(self.read) < values.shape[1]:
            values = values[:, self.read]
            errors = None if errors is None else errors[:, self.read]
        return Attribution(
            output=self.output,
            columns=self.columns,
            values=values[:, :, 0] if single else values,
            base=base.reshape(())[()] if single else base,
            score=score.reshape(-1) if single else score,
            method="exact" if errors is None else "sampled",
            errors=errors[:, :, 0] if single and errors is not None else errors,
            base_error=base_error[0] if single and base_error is not None else base_error,
            names=self.names,
            read=read,
            words=None if documents is None else documents.words,
            raw_score=self.raw_score,
        )

    def raw(self, block: object) -> Mapping[str, Sequence[Any]]:
        """The raw columns of rows, by name."""
        columns, _ = coerce(self.inputs, block)
        parts: list[Any] = []
        for name, kind in self.inputs.items():
            held = columns[name]
            if isinstance(kind, Record):
                parts += [held.get(each) for each in kind.names]
            elif isinstance(kind, Vector):
                parts += list(densify(held).T)
            else:
                parts.append(held)
        return dict(zip(self.terms.columns, parts, strict=True))

    @cached_property
    def _is_one_term(self) -> bool:
        """True if the shares of one linear term are all that there is, a column for each."""
        if self.scores > 1 or len(self.shares) != 1 or self.terms.trees or self.counted:
            return False
        kind, columns = self.shares[0].node.type, self.shares[0].columns
        dense = isinstance(kind, Vector) and not kind.sparse
        return dense and np.array_equal(columns, np.arange(self.count - 1))

    # --- the parts ------------------------------------------------------------------------------

    @cached_property
    def _base(self) -> Numbers:
        """The score where every linear term is zero, and trees give their mean in training."""
        if any(not len(paths.op.cover) for paths in self.paths):
            raise ParameterError(
                "these trees do not say how much of the training data reached their nodes",
                where=f"output {self.output!r}",
                hint="import the model with covers=True, or pass background=, some rows",
            )
        zeros = [np.zeros(term.weights.shape[1]) for term in self.terms.linear]
        return at_terms(self.terms, zeros, [paths.expected() for paths in self.paths])

    def _add_trees(
        self, values: Numbers, found: Mapping[str, Any], others: Mapping[str, Any] | None
    ) -> None:
        for i, (term, paths) in enumerate(zip(self.terms.trees, self.paths, strict=True)):
            tests = paths.values(ours(found[f"trees {i}"]))
            if others is None:
                shares = by_covers(paths, self.count, tests)
            else:
                compared = paths.values(ours(others[f"trees {i}"]))
                shares = to_background(paths, self.count, tests, compared)
            values += shares @ term.weights.T
