"""Text: ONNX's string normaliser and onnxruntime's tokeniser.

They have their own semantics, not scikit-learn's: letters change case one by one, patterns are
RE2's (a word is made of ASCII letters, digits and underscores), a token is a whole match.
"""

from __future__ import annotations

import re

from flour.core.types import Text, Vector
from flour.language.flow import Flow
from flour.onnx.errors import NotNative
from flour.onnx.re2 import outside, translated
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import Tensor
from flour.onnx.words import MANY, Words
from flour.ops.onnx_cut import CutWords, cuts_natively
from flour.ops.onnx_text import LowerLetters, UpperLetters
from flour.ops.structure import AsVector
from flour.strings.patterns import Automaton, automaton, first_is_longest

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
