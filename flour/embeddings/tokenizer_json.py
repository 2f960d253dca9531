"""`tokenizer.json`, in which the package tokenizers keeps a tokeniser, read as data.

A tokeniser is a normaliser, a way to cut words, a model of their pieces, and texts that are found
before all of that. Each part is translated exactly, or refused by its name.

The `precompiled_charsmap` of SentencePiece is the size of a trie, the trie as a double array of
darts-clone, and the replacements with a NUL behind each. A unit of the trie is 32 bits: the byte
that leads to it, whether a key ends there, and where what follows is.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import DamagedProgram, FlourError
from flour.core.op import Op
from flour.embeddings.json_part import JsonPart
from flour.language.flow import Flow
from flour.ops import pieces
from flour.ops.subwords import FirstWords
from flour.strings import splitting
from flour.strings.charsmap import LONG

_Step = tuple[str | int, ...]
#: Scores are between this and its opposite.
_LEAST = -1e30


class Subwords(NamedTuple):
    """A tokeniser."""

    vocabulary: list[str]
    """The pieces by their numbers."""
    unknown: str
    """The piece that stands for what has no other; "" for none."""
    cut: Op
    most: int
    """How many pieces of a document are read; 0: all."""
    before: list[str]
    """The pieces in front of a document's own, where a model wants such."""
    behind: list[str]

    def pieces(self, document: Flow, most: int = 0) -> Flow:
        """The pieces of a document, `most` of them unless it is 0."""
        cut = self.cut(document)
        return FirstWords(most)(cut) if most else cut


def read_tokenizer(raw: bytes, where: str = "tokenizer.json") -> Subwords:
    """The tokeniser of a file."""
    file = JsonPart.of_json(raw, where)
    model = file["model"]
    kind = model["type"].text("WordPiece" if "max_input_chars_per_word" in model.names() else "")
    if kind not in _MODELS:
        raise model["type"].refused("this model of pieces is not supported", [*_MODELS])
    vocabulary, how = _MODELS[kind](model)
    how["own"] = len(vocabulary)
    added = [_added(each, vocabulary) for each in file["added_tokens"].each()]
    changes = [step for part in _flat(file["normalizer"], "normalizers") for step in _change(part)]
    cuts = [step for part in _flat(file["pre_tokenizer"], "pretokenizers") for step in _cut(part)]
    how |= {"bytewise": True} if ("bytes",) in cuts else {}
    if ("bytes",) in cuts[:-1] or (how.get("bytewise") and kind != "BPE"):
        raise file["pre_tokenizer"].refused("ByteLevel is the last step, for BPE only")
    cuts = [cut for cut in cuts if cut != ("bytes",)]
    texts, options = [text for text, _ in added], [options for _, options in added]
    moved = bool(changes) or any(each & splitting.NORMALISED for each in options)
    if "first" in [cut[-1] for cut in cuts[not moved :]]:
        raise file["pre_tokenizer"].refused(
            "prepend_scheme first is for raw text, as the first step"
        )
    made = {"WordPiece": pieces.WordPieces, "BPE": pieces.BytePairs, "Unigram": pieces.Unigrams}
    try:
        cut = made[kind](vocabulary, texts, options, changes=changes, splits=cuts, **how)
    except FlourError as problem:
        if problem.where:
            raise
        raise DamagedProgram(problem.what, where=where, found=problem.found) from None
    most = _most(file["truncation"])
    return Subwords(
        vocabulary, how["unknown"], cut, most, *_around(file["post_processor"], vocabulary)
    )


# --- models ---------------------------------------------------------------------------------------


def _vocabulary(part: JsonPart) -> list[str]:
    numbers = {name: part[name].whole() for name in part.names()}
    ordered = sorted(numbers, key=numbers.__getitem__)
    if [numbers[name] for name in ordered] != [*range(len(ordered))] or not ordered:
        raise JsonPart(len(ordered), part.where).refused("pieces are not numbered from 0 on")
    return ordered


def _unknown(part: JsonPart, vocabulary: list[str], otherwise: str = "") -> str:
    unknown = part.text(otherwise)
    if unknown not in vocabulary and unknown:
        raise part.wrong("the vocabulary has not got this piece")
    return unknown


def _word_pieces(model: JsonPart) -> tuple[list[str], dict[str, Any]]:
    vocabulary = _vocabulary(model["vocab"])
    return vocabulary, {
        "unknown": _unknown(model["unk_token"], vocabulary, "[UNK]"),
        "prefix": model["continuing_subword_prefix"].text("##"),
        "longest": model["max_input_chars_per_word"].whole(100),
    }


def _byte_pairs(model: JsonPart) -> tuple[list[str], dict[str, Any]]:
    if model["dropout"].value not in (None, 0, 0.0):
        raise model["dropout"].refused("merges that are left out at random are not supported")
    vocabulary = _vocabulary(model["vocab"])
    prefix, suffix = (
        model[name].text("") for name in ("continuing_subword_prefix", "end_of_word_suffix")
    )
    numbers = {piece: number for number, piece in enumerate(vocabulary)}
    merges = list[list[int]]()
    for each in model["merges"].each():
        pair: Any = each.value.split(" ") if isinstance(each.value, str) else each.value
        good = isinstance(pair, list) and len(pair) == 2
        if not (good and all(isinstance(part, str) for part in pair)):
            raise each.wrong("a merge is two pieces")
        names = *pair, pair[0] + pair[1][len(prefix) :]
        if missing := [name for name in names if name not in numbers]:
            raise JsonPart(missing[0], each.where).wrong("a merge names a piece that there is not")
        merges.append([numbers[name] for name in names])
    fallback = model["byte_fallback"].flag(otherwise=False)
    if fallback and prefix + suffix:
        raise model["byte_fallback"].refused("byte_fallback with a prefix or suffix")
    return vocabulary, {
        "unknown": _unknown(model["unk_token"], vocabulary),
        "merges": np.array(merges, np.int32).reshape(-1, 3),
        "prefix": prefix,
        "suffix": suffix,
        "stays": model["ignore_merges"].flag(otherwise=False),
        "fallback": fallback,
        "fuse": model["fuse_unk"].flag(otherwise=False),
    }


def _unigrams(model: JsonPart) -> tuple[list[str], dict[str, Any]]:
    vocabulary, scores = list[str](), list[float]()
    for each in model["vocab"].each():
        piece, score = [*each.each()][:2] if len([*each.each()]) == 2 else (each, each)
        number: Any = score.value
        if type(number) not in (int, float) or not _LEAST < number < -_LEAST:
            raise score.wrong("a piece has a finite score")
        vocabulary.append(piece.text())
        scores.append(float(number))
    if model["unk_id"].whole() >= len(vocabulary):
        raise model["unk_id"].wrong("the vocabulary has not got this piece")
    if len({*vocabulary}) < len(vocabulary) or "" in vocabulary:
        raise model["vocab"].refused("pieces that are equal, or empty")
    return vocabulary, {
        "unknown": vocabulary[model["unk_id"].whole()],
        "scores": np.array(scores),
        "fallback": model["byte_fallback"].flag(otherwise=False),
    }


_MODELS: dict[str, Callable[[JsonPart], tuple[list[str], dict[str, Any]]]] = {
    "WordPiece": _word_pieces,
    "BPE": _byte_pairs,
    "Unigram": _unigrams,
}
_OPTIONS = {
    "single_word": splitting.SINGLE_WORD,
    "lstrip": splitting.LSTRIP,
    "rstrip": splitting.RSTRIP,
    "normalized": splitting.NORMALISED,
}


def _added(part: JsonPart, vocabulary: list[str]) -> tuple[str, int]:
    """A text that is found in documents before words are cut, and the sum of its options."""
    options = sum(number for name, number in _OPTIONS.items() if part[name].flag(otherwise=False))
    text, number = part["content"].text(), part["id"].whole()
    if number == len(vocabulary) and text not in vocabulary:
        vocabulary.append(text)
    if number >= len(vocabulary) or vocabulary[number] != text or not text:
        raise part["content"].refused("an added token with another number than the vocabulary's")
    return text, options


# --- steps on text --------------------------------------------------------------------------------


def _flat(part: JsonPart, name: str) -> Iterator[JsonPart]:
    """The steps of a sequence of them, or the one that there is."""
    waiting = [] if part.value is None else [part]
    while waiting:
        step = waiting.pop(0)
        if step["type"].value == "Sequence":
            waiting[:0] = step[name].each()
        else:
            yield step


def _change(part: JsonPart) -> list[tuple[str, ...]]:
    """A normaliser as steps."""
    kind = part["type"].text("")
    if kind in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        return [({"Lowercase": "lower", "StripAccents": "marks"}.get(kind, kind.lower()),)]
    if kind == "BertNormalizer":
        return [("bert", *_bert(part))]
    if kind == "Strip":
        sides = [part[f"strip_{side}"].flag(otherwise=True) for side in ("left", "right")]
        return [("strip", str(sides[0] + 2 * sides[1]))]
    if kind == "Prepend":
        return [("prepend", part["prepend"].text())]
    if kind == "Replace":
        return [("replace", _pattern(part), part["content"].text())]
    if kind == "Precompiled":
        return [("charsmap", read_charsmap(part["precompiled_charsmap"]))]
    raise part["type"].refused("this normaliser is not supported", _NORMALISERS)


_NORMALISERS = (
    *("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD"),
    *("Precompiled", "Prepend", "Replace", "Sequence", "Strip", "StripAccents"),
)


def _bert(part: JsonPart) -> list[str]:
    lower = part["lowercase"].flag(otherwise=True)
    chosen = {
        "clean": part["clean_text"].flag(otherwise=True),
        "chinese": part["handle_chinese_chars"].flag(otherwise=True),
        "strip": part["strip_accents"].flag(otherwise=lower),
        "lower": lower,
    }
    return [name for name, wanted in chosen.items() if wanted]


def _pattern(part: JsonPart) -> str:
    """The pattern of a step: a text, or a regular expression."""
    given = part["pattern"]
    plain = given["String"].value is not None
    text = given["String" if plain else "Regex"].text()
    if not text or "{~" in text:
        raise given.refused("this pattern is not supported")
    return _escaped(text) if plain else text


def _escaped(text: str) -> str:
    return re.sub(r"([^\w\s])", r"\\\1", text)


_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
#: Ways to cut words without a setting: how, and the pattern.
_PLAIN: dict[str, _Step] = {
    "BertPreTokenizer": pieces.BERT_WORDS,
    "Whitespace": ("cut", 2, r"[\p{~whole}]+|[^\p{~whole}\s]+"),
    "WhitespaceSplit": ("cut", 2, r"\S+"),
}


def _cut(part: JsonPart) -> list[_Step]:
    """A way to cut words as steps."""
    kind = part["type"].text("")
    if kind in _PLAIN:
        return [_PLAIN[kind]]
    if kind == "ByteLevel":
        ahead = part["add_prefix_space"].flag(otherwise=True)
        cut = part["use_regex"].flag(otherwise=True)
        steps: list[_Step] = [("head", " ", 0, "always")] * ahead
        return [*steps, *[("cut", 3, _GPT_2)] * cut, ("bytes",)]
    if kind == "Metaspace":
        return _metaspace(part)
    if kind == "Split":
        how, invert = part["behavior"].text(), part["invert"].flag(otherwise=False)
        how = "Matches" if invert and how == "Removed" else how
        if how not in splitting.CUTS or (invert and how not in ("Matches", "Isolated")):
            raise part["behavior"].refused("this way to cut is not supported", [*splitting.CUTS])
        return [("cut", splitting.CUTS[how], _pattern(part))]
    if kind == "Digits":
        single = part["individual_digits"].flag(otherwise=False)
        return [("cut", 3, r"\p{~numeric}" + "+" * (not single))]
    if kind == "Punctuation" and part["behavior"].text("Isolated") in splitting.CUTS:
        return [("cut", splitting.CUTS[part["behavior"].text("Isolated")], r"\p{~alone}")]
    known = [*_PLAIN, "ByteLevel", "Digits", "Metaspace", "Punctuation", "Sequence", "Split"]
    raise part["type"].refused("this way to cut words is not supported", known)


def _metaspace(part: JsonPart) -> list[_Step]:
    text = part["replacement"].text("▁")
    schemes = "always", "never", "first"
    old = "always" if part["add_prefix_space"].flag(otherwise=True) else "never"
    scheme = part["prepend_scheme"].text(old)
    if scheme not in schemes or len(text) != 1:
        raise part["prepend_scheme"].refused("this scheme is not supported", schemes)
    steps: list[_Step] = [("head", text, 1, scheme)]
    return steps + [("cut", 11, _escaped(text))] * part["split"].flag(otherwise=True)


# --- around documents -----------------------------------------------------------------------------


def _most(part: JsonPart) -> int:
    if part.value is None:
        return 0
    if part["direction"].text("Right") != "Right":
        raise part["direction"].refused("documents are cut at their end only")
    return part["max_length"].whole()


def _around(part: JsonPart, vocabulary: list[str]) -> tuple[list[str], list[str]]:
    """The pieces around a document: those of a template of one sequence, or BERT's."""
    before, behind = list[str](), list[str]()
    for step in _flat(part, "processors"):
        kind = step["type"].text("")
        if kind in ("BertProcessing", "RobertaProcessing"):
            first, last = ([*step[each].each(), step[each]][0].text() for each in ("cls", "sep"))
            before, behind = [first, *before], [*behind, last]
        elif kind == "TemplateProcessing":
            ahead, after = _template(step)
            before, behind = [*ahead, *before], [*behind, *after]
        elif kind != "ByteLevel":
            known = ["BertProcessing", "ByteLevel", "RobertaProcessing", "Sequence"]
            raise step["type"].refused(
                "this part of a tokeniser is not supported", [*known, "TemplateProcessing"]
            )
    if missing := [each for each in (*before, *behind) if each not in vocabulary]:
        raise JsonPart(missing[0], part.where).wrong("the vocabulary has not got this piece")
    return before, behind


def _template(part: JsonPart) -> tuple[list[str], list[str]]:
    before, behind, met = list[str](), list[str](), False
    for each in part["single"].each():
        if each["Sequence"].value is not None:
            met = True
            continue
        name, known = each["SpecialToken"]["id"].text(), part["special_tokens"]
        special = known[name] if known.value else known
        names = [token.text() for token in special["tokens"].each()] if special.value else [name]
        (behind if met else before).extend(names)
    return before, behind


#: The byte that leads to a unit leaves the highest bit to values.
_LABEL = 0x800000FF
_ENDS = 1 << 8


def read_charsmap(part: JsonPart) -> str:
    """The keys that count and their replacements, a NUL behind each."""
    try:
        raw = base64.b64decode(part.text(), validate=True)
        count = int.from_bytes(raw[:4], "little") // 4
        units = np.frombuffer(raw, "<u4", count, 4).astype(np.int64)
        replacements = raw[4 + 4 * count :]
        replacements.decode()
        found = _keys(units)
        ends = {at: replacements.find(b"\0", at) for at in found.values()}
        texts = {at: replacements[at : end if end >= 0 else None] for at, end in ends.items()}
        good = max(found.values(), default=0) <= len(replacements)
        parts = [(key.decode(), texts[at].decode()) for key, at in found.items()]
    except (binascii.Error, ValueError, IndexError):
        good = False
    if not good:
        raise part.wrong("a map of characters is a trie of whole characters and their texts")
    return "".join(f"{key}\0{text}\0" for key, text in parts)


def _keys(units: NDArray[np.int64]) -> dict[bytes, int]:
    """The keys without another at their start, and where their replacements begin."""
    found, labels, seen = dict[bytes, int](), np.arange(1, 256), 0
    waiting = [(b"", _next(0, int(units[0])))]
    while waiting:
        key, place = waiting.pop()
        seen += 1
        if seen > len(units):
            raise ValueError("a unit is reached twice")
        inside = labels[(place ^ labels) < len(units)]
        for label in inside[(units[place ^ inside] & _LABEL) == inside].tolist():
            unit = int(units[place ^ label])
            longer, then = key + bytes([label]), _next(place ^ label, unit)
            if unit & _ENDS:
                found[longer] = int(units[then]) & 0x7FFFFFFF
            elif len(longer) < LONG - 1:
                waiting.append((longer, then))
    return found


def _next(place: int, unit: int) -> int:
    """Where the units that follow one are, each at its label."""
    return place ^ (unit >> 10 << ((unit & 1 << 9) >> 6))
