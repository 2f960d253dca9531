"""The ONNX forms of text, where ONNX's tokenizer and n-grams mean exactly the same.

ONNX's words are RE2's: those of ASCII. A pattern that means something else beyond ASCII is refused,
and so is lower case by Unicode's full rules; scikit-learn's defaults are both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from flour.core.errors import UnsupportedSetting
from flour.core.node import Node
from flour.onnx.errors import NotNative
from flour.onnx.export.writer import Export, dtype_of, form
from flour.onnx.text_ngrams import MICROSOFT, automaton_of, of_expression, separable
from flour.ops.text import Tokenize
from flour.strings.patterns import automaton

_PAD = "\x00pad"
_PREFIX = re.compile(r"\(\?[au]\)")
_OF_UNICODE = re.compile(r"\\[wWdDsSbB]")


@form("LowerLetters", "UpperLetters")
def _case(out: Export, item: Node, x: str) -> str:
    action = "LOWER" if item.op.name == "LowerLetters" else "UPPER"
    how: dict[str, Any] = {"case_change_action": action, "is_case_sensitive": 1}
    return out("StringNormalizer", x, **how)


@form("Murmur")
def _murmur(out: Export, item: Node, x: str) -> str:
    op = item.op.fields()
    how: dict[str, Any] = {"seed": op["seed"], "positive": int(op["positive"])}
    return out("MurmurHash3", x, domain=MICROSOFT, **how)


@form("Tokenize")
def _tokenize(out: Export, item: Node, x: str) -> str:
    expression = _expression(item.op.fields()["pattern"])
    how: dict[str, Any] = {"mark": 0, "mincharnum": 1, "pad_value": _PAD}
    return out("Tokenizer", x, domain=MICROSOFT, tokenexp=expression, **how)


def _expression(pattern: str) -> str:
    """A pattern as RE2 has it, if it means the same there."""
    expression = _PREFIX.sub("", pattern, count=1)
    ascii_only = pattern.startswith("(?a)")
    if not ascii_only and _OF_UNICODE.search(expression):
        raise UnsupportedSetting(
            "words of all of Unicode have no ONNX form",
            where=f"the pattern {pattern!r}",
            found=r"\w, \d, \s or \b",
            hint="a pattern that starts with (?a) has the words of ASCII, as ONNX has",
        )
    try:
        same = "(?a)" + expression.replace("(?:", "(")
        if "(" in expression.replace("(?:", "").replace(r"\(", ""):
            raise NotNative("a group is not the whole match")
        found, _ = automaton_of(of_expression(same.removeprefix("(?a)")), 1)
        if found != automaton(pattern):
            raise NotNative("it finds other words in RE2")
    except NotNative as problem:
        raise UnsupportedSetting(
            "this pattern has no ONNX form", where=f"the pattern {pattern!r}", found=problem.what
        ) from None
    return same.removeprefix("(?a)")


@form("WordNgrams")
def _word_ngrams(out: Export, item: Node, x: str) -> str:
    op = item.op.fields()
    low, high, texts = op["low"], op["high"], op["vocabulary"].to_list()
    (source,) = item.inputs
    assert isinstance(source.op, Tokenize), "nothing else that makes words has a form"
    if high > 1:
        pattern = source.op.pattern
        found, pattern = automaton_of(pattern, 1)
        if not separable(pattern, found):
            raise UnsupportedSetting(
                "phrases of words that may have spaces in them have no ONNX form",
                where=f"the pattern {pattern!r}",
            )
    grams = [tuple(text.split(" ")) if high > 1 else (text,) for text in texts]
    pool = _pool(grams, range(len(grams)), (low, high), len(grams), item)
    made = out("TfIdfVectorizer", x, **pool, max_skip_count=0, mode="TF")
    return out.cast(made, "float32", dtype_of(item.type))


@form("LetterNgrams")
def _letter_ngrams(out: Export, item: Node, x: str) -> str:
    op = item.op.fields()
    low, high, texts = op["low"], op["high"], op["vocabulary"].to_list()
    how: dict[str, Any] = {"mark": 0, "mincharnum": 1, "pad_value": _PAD, "tokenexp": "."}
    letters = out("Tokenizer", x, domain=MICROSOFT, **how)
    pool = _pool([*map(tuple, texts)], range(len(texts)), (low, high), len(texts), item)
    made = out("TfIdfVectorizer", letters, **pool, max_skip_count=0, mode="TF")
    return out.cast(made, "float32", dtype_of(item.type))


def _pool(
    grams: Sequence[tuple[Any, ...]],
    columns: Sequence[int],
    lengths: tuple[int, int],
    width: int,
    item: Node,
) -> dict[str, Any]:
    """The attributes that say which n-grams are counted, shortest first, and where."""
    low, high = lengths
    able = [k for k, gram in enumerate(grams) if low <= len(gram) <= high]
    order = sorted(able, key=lambda k: len(grams[k]))
    if not order or max(columns[k] for k in order) != width - 1:
        raise UnsupportedSetting(
            "n-grams of other lengths than are counted have no ONNX form", where=item.op.name
        )
    high = min(high, len(grams[order[-1]]))  # there are no longer ones, however many it says
    sizes = [sum(len(grams[k]) for k in order if len(grams[k]) == n) for n in range(1, high + 1)]
    starts = np.cumsum([0, *sizes])[:-1].tolist()
    flat = [entry for k in order for entry in grams[k]]
    return {
        "pool_strings": flat,
        "ngram_counts": starts,
        "ngram_indexes": [columns[k] for k in order],
        "min_gram_length": low,
        "max_gram_length": high,
    }
