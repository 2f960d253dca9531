"""Text in ONNX: the string normaliser, onnxruntime's tokeniser, and the counts of n-grams.

The first two have their own semantics, not scikit-learn's: letters change case one by one, patterns
are RE2's (a word is made of ASCII letters, digits and underscores), a token is a whole match.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, compress, pairwise
from typing import Any

import numpy as np

from flour.core.op import Op
from flour.core.types import Text, Vector
from flour.language.flow import Flow
from flour.onnx.errors import DamagedModel, NotNative
from flour.onnx.ml_common import narrow
from flour.onnx.re2 import outside, translated
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import Tensor
from flour.onnx.words import MANY, Words
from flour.ops.onnx_text import CutWords, LetterNgrams, LowerLetters, UpperLetters, cuts_natively
from flour.ops.structure import AsVector
from flour.ops.text import Tokenize
from flour.strings.patterns import Automaton, automaton, first_is_longest
from objectstore import combine

# A cache of the operators that nodes became in earlier models, while some program has them.
#
# Models of one family often share their first nodes: the vocabulary is the same, the classifier is
# not. The cache key is a node's bytes, so an equal node with an equal input becomes the same
# operators: its lists are not read, nor its parameters built and hashed, a second time.


#: The most entries; an entry that no program uses any more takes a few hundred bytes.
MOST = 256
_remembered: dict[str, tuple[weakref.ref[Op], ...]] = {}
_lock = threading.Lock()


def steps(key: str, source: Flow, make: Callable[[], Flow]) -> Flow:
    """The result of `make`: a chain of operators on `source`.

    `key` identifies everything that `make` depends on besides the source; the operators of an
    earlier call with the same key are used again if they still exist.
    """
    stored = [reference() for reference in _remembered.get(key, ())]
    if stored and None not in stored:
        flow = source
        for op in stored:
            assert op is not None
            flow = op(flow)
        return flow
    flow = make()
    ops = _between(flow, source)
    if ops:
        with _lock:
            _remembered.pop(key, None)
            _remembered[key] = tuple(map(weakref.ref, ops))
            while len(_remembered) > MOST:
                del _remembered[next(iter(_remembered))]
    return flow


def _between(flow: Flow, source: Flow) -> list[Op]:
    """The operators from the source to the flow; none if they are no chain."""
    ops: list[Op] = []
    item = flow.node
    while item is not source.node:
        if len(item.inputs) != 1:
            return []
        ops.append(item.op)
        (item,) = item.inputs
    return ops[::-1]


#: The prefix of this module's keys in `steps`.
_PHRASES = "onnx phrases"
FILLED = "n-grams of the value that shorter texts are filled up with, or of marks"


@dataclass(frozen=True)
class NgramPool:
    """The n-grams that are counted, with the column of each."""

    grams: tuple[tuple[Any, ...], ...]
    columns: tuple[int, ...]
    width: int
    low: int
    high: int
    skips: int

    @classmethod
    def of(cls, call: NodeUse) -> NgramPool:
        """The pool of a node, with the n-grams of the node's lengths only."""
        low, high = (int(call.attribute(f"{end}_gram_length")) for end in ("min", "max"))
        flat = tuple(call.attribute("pool_strings", ()) or call.attribute("pool_int64s", ()))
        counts = [*map(int, call.attribute("ngram_counts", ())), len(flat)]
        columns = tuple(map(int, call.attribute("ngram_indexes", ())))
        if not 1 <= low <= high or counts[0] != 0 or any(a > b for a, b in pairwise(counts)):
            raise DamagedModel("ngram_counts does not fit the pool of n-grams")
        every = [
            flat[first : first + size]
            for size, (start, end) in enumerate(pairwise(counts), 1)
            for first in range(start, end - size + 1, size)
        ]
        if len(every) != len(columns) or min(columns, default=-1) < 0:
            raise DamagedModel(f"{len(columns)} columns for {len(every)} n-grams")
        chosen = [low <= len(gram) <= high for gram in every]
        grams, chosen_columns = tuple(compress(every, chosen)), tuple(compress(columns, chosen))
        if len(set(grams)) != len(grams):
            raise DamagedModel("an n-gram is in the pool twice")
        skips = int(call.attribute("max_skip_count", 0))
        return cls(grams, chosen_columns, max(columns) + 1, low, high, skips)

    def in_order(self) -> list[tuple[Any, ...]] | None:
        """The n-gram of each column, if each has exactly one."""
        every = tuple(range(self.width))
        if self.columns == every:
            return [*self.grams]
        if tuple(sorted(self.columns)) != every:
            return None
        order = np.argsort(self.columns)
        return [self.grams[number] for number in order]


@onnx_op("TfIdfVectorizer", since=9)
def _tfidf(call: NodeUse) -> Tensor:
    """Weighted counts of phrases in a list of words."""
    item = call[0]
    if not isinstance(item, Words) or not call.attribute("pool_strings", ()):
        raise NotNative("n-grams of numbers, or of strings that are no words of a document")
    assert item.flow is not None
    source = letters_of(item.flow)

    def make() -> Flow:
        pool = NgramPool.of(call)
        return _weighted(call, _phrases(item, pool, source), pool)

    facts = ("separable" if item.separable else "") + ("" if source is None else "letters")
    weighted = steps(
        combine(_PHRASES, call.node.data, repr(item.pads), facts),
        item.flow if source is None else source,
        make,
    )
    width = weighted.type.width  # type: ignore[union-attr]  # counts are a vector
    return Tensor.of(weighted, (width,) if item.rank == 1 else (1, width), item.axis)


def letters_of(words: Flow) -> Flow | None:
    """The document whose single characters are these words; None for other words."""
    op = words.node.op
    return words.input(0) if isinstance(op, Tokenize) and op.pattern == EVERY else None


def _phrases(item: Words, pool: NgramPool, letters: Flow | None) -> Flow:
    """Counts of phrases in a list of words, or of runs of characters in their document."""
    assert item.flow is not None
    grams = pool.in_order()
    if grams is None:
        raise NotNative("columns of no n-gram, or of several")
    if not set(item.pads).isdisjoint(chain.from_iterable(grams)):
        raise NotNative(FILLED)
    if pool.high > 1 and (pool.skips or not item.separable):
        raise NotNative("phrases with gaps, or of words that may have spaces in them")
    if letters is not None and all(len(str(letter)) == 1 for gram in grams for letter in gram):
        runs = ["".join(map(str, gram)) for gram in grams]
        return LetterNgrams(runs, pool.low, pool.high)(letters)
    vocabulary = [" ".join(map(str, gram)) for gram in grams]
    if len(set(vocabulary)) != len(vocabulary):
        raise NotNative("phrases that read the same")
    return item.flow.word_ngrams(vocabulary, pool.low, pool.high, "float32")


def _weighted(call: NodeUse, counts: Flow, pool: NgramPool) -> Flow:
    """Counts, presences, or either times a weight."""
    mode, weights = str(call.attribute("mode")), call.attribute("weights")
    if mode == "TF":
        return counts
    factors = narrow(weights) if weights else np.ones(len(pool.columns), np.float32)
    if mode == "IDF":
        counts = counts.binarize(0.0)
    elif mode != "TFIDF":
        raise DamagedModel(f"there is no mode {mode!r} for weights of n-grams")
    columns = tuple(map(int, call.attribute("ngram_indexes", ())))
    if factors.size not in (len(columns), len(pool.columns)):
        raise DamagedModel(f"{factors.size} weights for {len(columns)} n-grams")
    # The position of each column's weight; the last position is the zero of columns without one.
    positions = np.full(pool.width, factors.size)
    positions[list(columns if factors.size == len(columns) else pool.columns)] = np.arange(
        factors.size
    )
    return counts.multiply(np.concatenate([factors, np.zeros(1, np.float32)])[positions])


MICROSOFT = "com.microsoft"


def document(call: NodeUse, index: int = 0) -> Flow:
    """An input that is one string a row."""
    item = call[index]
    if item.dtype != "string" or item.size != 1:
        raise NotNative(f"one string is needed, not {item.shape} of {item.dtype}")
    flow = call.flow(item)
    if isinstance(flow.node.op, AsVector):
        return flow.input(0)
    return flow.element(0) if isinstance(flow.type, Vector) else flow


@onnx_op("StringNormalizer", since=10)
def _string_normalizer(call: NodeUse) -> Tensor:
    item, action = call[0], str(call.attribute("case_change_action", "NONE"))
    if item.rank not in (1, 2):
        raise NotNative(f"strings of shape {item.shape}")
    if len(call.attribute("stopwords", ())):
        raise NotNative("stop words drop strings, and with them rows")
    if action == "NONE":
        return item
    change = LowerLetters() if action == "LOWER" else UpperLetters()
    return Tensor.of(change(document(call)), item.shape, item.axis)


@onnx_op("Tokenizer", domain=MICROSOFT)
def _tokenizer(call: NodeUse) -> Tensor:
    item, source, least = call[0], document(call), int(call.attribute("mincharnum", 1))
    pattern = _pattern(call)
    if pattern is None:
        # Words are between separators of any length.
        patterns = tuple(translated(str(each)) for each in call.attribute("separators"))
        for each in patterns:
            if r"\b" in each.lower() or not cuts_natively(each):
                raise NotNative(f"the separator {each!r}")
        words = CutWords(patterns, max(least, 1))(source)
        apart = any(re.fullmatch(each, " ") for each in patterns)  # no word has a space in it
    else:
        matcher, pattern = automaton_of(pattern, least)
        words, apart = source.tokenize(pattern), separable(pattern, matcher)
    fillers = (
        str(call.attribute("pad_value", "")),
        *(MARKS if call.flag("mark", default=False) else ()),
    )
    return Words((*item.shape, MANY), "string", item.axis, words, pads=fillers, separable=apart)


def _pattern(call: NodeUse) -> str | None:
    """The pattern of a word in Python's syntax; None if words are what separators leave."""
    expression, separators = call.attribute("tokenexp"), call.attribute("separators")
    if expression:
        return of_expression(str(expression))
    if not separators:
        raise NotNative("neither a token expression nor separators")
    if tuple(separators) == ("",):
        return EVERY
    try:
        return outside(map(str, separators))
    except NotNative:
        return None


#: The marks that a tokeniser puts at the start and at the end of a text, if asked to.
MARKS = ("\x02", "\x03")


def of_expression(expression: str) -> str:
    """A token expression in Python's syntax: a dot alone is a line break, too."""
    return EVERY if expression == "." else translated(expression)


#: Every character is a word.
EVERY = "(?s)."


def automaton_of(pattern: str, least: int) -> tuple[Automaton, str]:
    """The automaton for tokens of at least `least` characters, and its pattern."""
    matcher = automaton(pattern)
    if matcher is not None and matcher.shortest < least and matcher.run == matcher.shortest == 1:
        # A run of one kind of characters that is too short has no longer run in it.
        pattern = pattern.removesuffix("+") + f"{{{least},}}"
        matcher = automaton(pattern)
    if not first_is_longest(pattern):
        raise NotNative(f"the longest match of the pattern {pattern!r} is another than Python's")
    if matcher is None or matcher.shortest < least:
        raise NotNative(f"words of {least} characters or more by the pattern {pattern!r}")
    return matcher, pattern


# A pattern of one character.
_ONE = re.compile(r"\(\?as?\)(\[(?:\\.|[^\]\\])*\]|\\.|[^\\])", re.DOTALL)


def separable(pattern: str, matcher: Automaton) -> bool:
    """True if no word has a space in it, or every word is one character."""
    if pattern == EVERY or _ONE.fullmatch(pattern):
        return True
    if not matcher.run:
        return False
    return re.search(pattern, " " * max(matcher.run, 1)) is None


__all__ = ["MICROSOFT", "Text", "automaton_of", "document", "of_expression", "separable"]
