"""Attribution: what each raw column adds to a score, as `Plan.attribute` answers it."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError

#: The rows that a page shows, and the columns of each.
SHOWN_ROWS, SHOWN_COLUMNS = 5, 12


@dataclass(frozen=True, slots=True)
class Part:
    """One share of a score: a column with its value, or a word with its places in the document."""

    column: str
    value: Any
    share: float
    #: The term, for a word or phrase of a document, and its places: (first character, past last).
    term: str | None = None
    places: tuple[tuple[int, int], ...] = ()

    @property
    def said(self) -> str:
        """The column and its value, or the word."""
        if self.term is not None:
            return f'{self.column}: "{self.term}"'
        return f"{self.column} = {self.value}"

    def to_dict(self) -> dict[str, Any]:
        """The part as plain data."""
        plain = self.value.item() if isinstance(self.value, np.generic) else self.value
        if isinstance(plain, float) and not math.isfinite(plain):
            plain = None if math.isnan(plain) else str(plain)  # JSON has no such numbers
        made: dict[str, Any] = {"column": self.column, "value": plain, "share": self.share}
        if self.term is not None:
            made = {"column": self.column, "term": self.term, "share": self.share}
            made["places"] = [list(place) for place in self.places]
        return made


#: The words of a row's documents: (row, number of the score) -> parts.
Words = Callable[[int, int], Iterable[Part]]


@dataclass(frozen=True, slots=True)
class Attribution:
    """Contributions of each raw column to each row's score: base + values is the score.

    `values` has a row for each row of the data, and a column for each of `columns`; with several
    scores (classes), they are its last axis. `base` is the score that nothing has been added to.
    `method` is "exact" or "sampled"; sampled values have `errors`, one standard error each, and the
    base `base_error`, which is that of the background rows that were drawn for the mean of all.
    """

    output: str
    columns: tuple[str, ...]
    values: NDArray[np.float64]
    base: NDArray[np.float64]
    score: NDArray[np.float64]
    method: str = "exact"
    errors: NDArray[np.float64] | None = None
    base_error: NDArray[np.float64] | None = None
    #: What the scores stand for, where there are several: the classes.
    names: tuple[Any, ...] = ()
    #: Whether the score is the one that the output is made of: log-odds, where it is a probability.
    raw_score: bool = False
    #: The values of the raw columns, by name, and the words of documents.
    read: Callable[[], Mapping[str, Sequence[Any]]] = field(default=dict, repr=False)
    words: Words | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.values)

    def hiding(self, columns: Collection[str]) -> Attribution:
        """A copy without the values and words of these columns."""
        held, words, hidden = self.read, self.words, ["(private)"] * len(self)
        if not columns:
            return self
        return replace(
            self,
            read=lambda: {n: hidden if n in columns else each for n, each in held().items()},
            words=words and (lambda *at: [p for p in words(*at) if p.column not in columns]),
        )

    def top(self, count: int = 5, row: int = 0, score: int | None = None) -> list[Part]:
        """The parts of a row that move its score most, the largest first.

        A document whose words are known is given word by word. Of several scores the row's highest
        is meant, unless `score` says which by its number.
        """
        if count < 0 or not -len(self) <= row < len(self):
            raise ParameterError(
                "there are no such parts",
                found=f"count {count}, row {row} of {len(self)}",
                hint="rows are counted from 0",
            )
        parts = sorted(self._parts(row, self._score(row, score)), key=lambda part: -abs(part.share))
        return parts[:count]

    def to_dict(self, row: int | None = None) -> dict[str, Any]:
        """One row, or all rows, as plain data."""
        if row is None:
            rows = [self.to_dict(i) for i in range(len(self))]
            return {"output": self.output, "raw_score": self.raw_score, "rows": rows}
        made: dict[str, Any] = {"base": self.base.tolist(), "score": self.score[row].tolist()}
        made["method"] = self.method
        several = self.values.ndim > 2
        if several and self.names:
            made["names"] = list(self.names)
        made["shares"] = dict(zip(self.columns, self.values[row].tolist(), strict=True))
        if self.errors is not None:
            made["errors"] = dict(zip(self.columns, self.errors[row].tolist(), strict=True))
        if self.base_error is not None:
            made["base_error"] = self.base_error.tolist()
        if self.words is not None:
            found = self.words(row, self._score(row, None))
            made["words"] = [part.to_dict() for part in found]
        return made

    def _score(self, row: int, score: int | None) -> int:
        """The number of the score that is meant."""
        if score is not None or self.values.ndim == 2:
            return score or 0
        return int(np.argmax(self.score[row]))

    def _parts(self, row: int, score: int) -> Iterator[Part]:
        shares = self.values[row] if self.values.ndim == 2 else self.values[row, :, score]
        words = list(self.words(row, score)) if self.words is not None else []
        spelt = {part.column for part in words}
        held = self.read()
        for name, share in zip(self.columns, shares.tolist(), strict=True):
            if name not in spelt:
                yield Part(name, held[name][row] if name in held else None, share)
        yield from words

    def to_text(self) -> str:
        """Every row with its parts, the largest first, as lines."""
        return "\n".join(line for row in range(len(self)) for line in self._lines(row))

    def _lines(self, row: int) -> Iterator[str]:
        yield self._head(row)
        for part in self.top(SHOWN_COLUMNS, row):
            error = "" if self.errors is None else f" ±{self._error(row, part.column):.2g}"
            yield f"  {part.share:+12.6g}{error}  {part.said}"

    def _error(self, row: int, column: str) -> float:
        assert self.errors is not None
        errors = self.errors[row, self.columns.index(column)]
        return float(errors if self.values.ndim == 2 else errors[self._score(row, None)])

    def _head(self, row: int) -> str:
        """The explained output, from the base to the score."""
        score, single = self._score(row, None), self.values.ndim == 2
        base = self.base if single else self.base[score]
        error = self.base_error if single or self.base_error is None else self.base_error[score]
        unsure = f" ±{float(error):.2g}" if error is not None and error > 0 else ""
        total = self.score[row] if single else self.score[row, score]
        name = f" {self.names[score]}" if not single and self.names else ""
        raw = " (raw score)" if self.raw_score else ""
        return f"{self.output}{name}{raw}: {float(base):.6g}{unsure} -> {float(total):.6g}"

    # --- a page ---------------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self) -> str:
        """Bars for the first rows, which notebooks show."""
        shown, made = min(len(self), SHOWN_ROWS), ""
        for row in range(shown):
            parts = self.top(SHOWN_COLUMNS, row)
            most = max((abs(part.share) for part in parts), default=0.0) or 1.0
            made += f"<table><caption>{html.escape(self._head(row))}</caption>"
            for part in parts:
                colour = "#c0392b" if part.share < 0 else "#2471a3"
                width = round(160 * abs(part.share) / most)
                bar = f'<div style="background:{colour};width:{width}px;height:0.8em"></div>'
                said = html.escape(part.said[:80])
                made += f"<tr><td>{said}</td><td>{part.share:+.4g}</td><td>{bar}</td></tr>"
            made += "</table>"
        more = f"<p>{len(self) - shown:,} more rows</p>" if len(self) > shown else ""
        return made + more
