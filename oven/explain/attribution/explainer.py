"""Exact attribution of one output of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError
from flour.core.extension_points import extension
from flour.core.op import Columns
from flour.core.raw_columns import NO_COLUMN
from flour.core.sparse import Sparse, densify
from flour.core.types import Record, Vector
from flour.data.coerce import coerce
from flour.language.flow import Flow
from oven.explain.attribution.terms import Terms, Weighted, at_terms, score_of, terms
from oven.explain.attribution.tree_code import by_covers, to_background
from oven.explain.attribution.tree_tables import TreePaths
from oven.explain.attribution.words import Documents, documents_of
from oven.plans.attribution import Attribution

if TYPE_CHECKING:
    from oven.plans.plan import Plan

SCORE = "score"


class Explainer:
    """One output of a plan: its score as a sum of terms, and a plan of the terms."""

    def __init__(self, plan: Plan, output: str) -> None:
        self.output, self.inputs, self.reader = output, plan.inputs, plan.reader
        self.terms: Terms = terms(score_of(plan.flow.outputs[output]))
        nodes = {SCORE: self.terms.score}
        nodes |= {f"linear {i}": term.node for i, term in enumerate(self.terms.linear)}
        nodes |= {f"trees {i}": term.node.inputs[0] for i, term in enumerate(self.terms.trees)}
        #: The score, the values of the linear terms, and what the trees read.
        self.plan: Plan = extension("native_plan")(Flow(nodes), exact=plan.exact, background=False)
        classes = plan.classes
        kind = self.terms.score.type
        self.scores = kind.width if isinstance(kind, Vector) else 1
        fits = classes is not None and len(classes) == self.scores
        self.names = tuple(classes) if classes is not None and fits else ()

    @property
    def count(self) -> int:
        """The number of raw columns, and one for what is made of none."""
        return len(self.terms.columns) + 1

    @cached_property
    def spreads(self) -> list[NDArray[np.float64]]:
        """For each linear term, what one of each of its columns adds by raw column and score."""
        return [_spread(term, self.count) for term in self.terms.linear]

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

    def block(self, rows: object) -> Any:
        """The rows as a block."""
        return self.reader.read(rows).block

    def exact(self, rows: object, background: object) -> Attribution:
        """What each raw column adds, against a background or what training has left."""
        block = self.block(rows)
        found = self.plan.run(block)
        others = None if background is None else self.plan.run(self.block(background))
        score = np.asarray(found[SCORE], np.float64)
        values = np.zeros((len(score), self.count, self.scores))
        linear = [found[f"linear {i}"] for i in range(len(self.terms.linear))]
        for held, spread in zip(linear, self.spreads, strict=True):
            values += _times(held, spread).reshape(values.shape)
        if others is None:
            base = self._base(linear)
        else:
            base = np.asarray(others[SCORE], np.float64).reshape(-1, self.scores).mean(axis=0)
            for i, spread in enumerate(self.spreads):
                mean = _times(others[f"linear {i}"], spread).mean(axis=0)
                values -= mean.reshape(1, *values.shape[1:])
        self._add_trees(values, found, others)
        values = values[:, :-1]
        if self.terms.score.type == Vector(self.scores):
            score = score.reshape(len(score), -1)
        return self.made(block, values, base, score, self._documents(linear, others))

    def made(
        self,
        block: object,
        values: NDArray[np.float64],
        base: NDArray[np.float64],
        score: NDArray[np.float64],
        documents: Documents | None = None,
        errors: NDArray[np.float64] | None = None,
    ) -> Attribution:
        """The answer; a single score has no axis of its own."""
        single, read = self.scores == 1, partial(self.raw, block)
        values = values[:, self.read]
        if errors is not None:
            errors = errors[:, self.read]
        return Attribution(
            output=self.output,
            columns=tuple(self.terms.columns[column] for column in self.read),
            values=values[:, :, 0] if single else values,
            base=base.reshape(())[()] if single else base,
            score=score.reshape(-1) if single else score,
            method="exact" if errors is None else "sampled",
            errors=errors[:, :, 0] if single and errors is not None else errors,
            names=self.names,
            read=read,
            words=None if documents is None else partial(documents.words, read),
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

    # --- the parts ------------------------------------------------------------------------------

    def _base(self, linear: Sequence[Any]) -> NDArray[np.float64]:
        """The score where every linear term is zero, and trees give their mean in training."""
        base = self._plain_base.copy()
        for term, held in zip(self.terms.linear, linear, strict=True):
            constant = np.flatnonzero(term.made == NO_COLUMN)
            if constant.size:
                row = densify(_ours(held))[:1].reshape(-1)
                base += term.weights[:, constant] @ row[constant]
        return base

    @cached_property
    def _plain_base(self) -> NDArray[np.float64]:
        if any(not len(paths.op.cover) for paths in self.paths):
            raise ParameterError(
                "these trees do not say how much of the training data reached their nodes",
                where=f"output {self.output!r}",
                hint="import the model with covers=True, or pass background=, some rows",
            )
        zeros = [np.zeros(term.weights.shape[1]) for term in self.terms.linear]
        return at_terms(self.terms, zeros, [paths.expected() for paths in self.paths])

    def _add_trees(
        self,
        values: NDArray[np.float64],
        found: Mapping[str, Any],
        others: Mapping[str, Any] | None,
    ) -> None:
        for i, (term, paths) in enumerate(zip(self.terms.trees, self.paths, strict=True)):
            tests = paths.values(_ours(found[f"trees {i}"]))
            if others is None:
                shares = by_covers(paths, self.count, tests)
            else:
                compared = paths.values(_ours(others[f"trees {i}"]))
                shares = to_background(paths, self.count, tests, compared)
            values += shares @ term.weights.T

    def _documents(self, linear: Sequence[Any], others: object) -> Documents | None:
        """The words of documents, where terms count them; without a background, absent is zero."""
        if others is not None:
            return None
        return documents_of(self.terms, [_ours(held) for held in linear])


def _spread(term: Weighted, count: int) -> NDArray[np.float64]:
    """What one of each of the term's columns adds: to each raw column of each score."""
    scores, width = term.weights.shape
    spread = np.zeros((width, count, scores))
    spread[np.arange(width), np.where(term.made < 0, count - 1, term.made)] = term.weights.T
    return spread.reshape(width, count * scores)


def _ours(held: Columns) -> Columns:
    """A column of a plan's answer as the definitions read it."""
    return Sparse.from_scipy(held) if hasattr(held, "tocsr") else held


def _times(held: Columns, spread: NDArray[np.float64]) -> NDArray[np.float64]:
    held = _ours(held)
    if isinstance(held, Sparse):
        return np.asarray(held.matmul(spread))
    return np.asarray(held, np.float64).reshape(len(held), -1) @ spread
