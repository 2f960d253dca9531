"""SA: sentiment pipelines with the sharing of the paper's 250 (OSDI'18, figure 3).

text -> { character n-grams tf-idf | word n-grams tf-idf } -> concatenation -> logistic regression

There are six dictionaries of character n-grams and seven of word n-grams, used by so many
pipelines each as in the paper; the weights are each pipeline's own. At scale 1 a large word
dictionary has a million entries. Dictionaries are fitted, on generated text that continues a
sample of real reviews; weights are drawn, because fitting 250 of that size takes hours and
changes no measurement.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.inputs import TEXT, Inputs
from bench.workload import Made, Spec

CHAR_USERS = (86, 85, 46, 18, 8, 7)
WORD_USERS = (86, 85, 46, 9, 9, 8, 7)
WORD_ENTRIES = 1_000_000
#: Three dictionaries of characters are large in the paper (about 480 KB), three nearly empty.
CHAR_ENTRIES = (40_000, 40_000, 44_000, 16, 16, 16)
_REVIEWS = Path(__file__).with_name("reviews.tsv")
_SYLLABLES = tuple(one + two for one in "bdfklmn" for two in "aeio")


def make(spec: Spec) -> Made:
    """The rows are reviews of two real sentences each; the pipelines share dictionaries."""
    sentences = reviews()
    rng = np.random.default_rng(spec.seed)
    pairs = rng.integers(0, len(sentences), size=(1000, 2))
    texts = [f"{sentences[one]} {sentences[two]}" for one, two in pairs]
    facts = {"answers": "probability", "char_users": CHAR_USERS, "word_users": WORD_USERS}
    return Made(Inputs(TEXT, texts), _pipelines(spec, sentences), facts)


def reviews() -> list[str]:
    """The shipped sentences; see reviews.NOTICE.md."""
    return [text for _, text in labelled_reviews()]


def labelled_reviews() -> list[tuple[str, str]]:
    """The shipped sentences, each after its label: 1 for a good one, 0 for a bad one."""
    lines = _REVIEWS.read_text(encoding="utf-8").splitlines()
    return [(label, text) for label, _, text in (line.partition("\t") for line in lines)]


def assignment(seed: int) -> list[tuple[int, int]]:
    """Which two dictionaries each of the 250 pipelines uses, in random order."""
    chars = np.repeat(np.arange(len(CHAR_USERS)), CHAR_USERS)
    words = np.repeat(np.arange(len(WORD_USERS)), WORD_USERS)
    order = np.random.default_rng(seed).permutation(len(chars))
    return [(int(chars[place]), int(words[place])) for place in order]


def _pipelines(spec: Spec, sentences: list[str]) -> Iterator[Any]:
    from sklearn.pipeline import FeatureUnion, make_pipeline

    vectorizers = _Vectorizers(spec, sentences)
    pairs = assignment(spec.seed)
    for number in range(spec.count):
        char, word = pairs[number % len(pairs)]
        union = FeatureUnion(
            [("chars", vectorizers.chars(char)), ("words", vectorizers.words(word))]
        )
        width = sum(len(each.vocabulary_) for _, each in union.transformer_list)
        from sklearn.linear_model import LogisticRegression

        rng = np.random.default_rng(spec.seed + 1000 + number)
        made = LogisticRegression()
        made.coef_ = rng.normal(scale=0.5, size=(1, width))
        made.intercept_ = rng.normal(scale=0.1, size=1)
        made.classes_ = np.array([0, 1])
        made.n_features_in_ = width
        made.n_iter_ = np.array([1], np.int32)
        yield make_pipeline(union, made)


class _Vectorizers:
    """The fitted dictionaries, each made when a pipeline first needs it."""

    def __init__(self, spec: Spec, sentences: list[str]) -> None:
        self._spec, self._sentences = spec, sentences
        self._made: dict[tuple[str, int], Any] = {}

    def chars(self, version: int) -> Any:
        """Characters in threes."""
        entries = CHAR_ENTRIES[version]
        small = entries if entries < 100 else max(500, int(entries * self._spec.scale))
        return self._vectorizer("char", version, (3, 3), small)

    def words(self, version: int) -> Any:
        """Words and pairs of words; the third dictionary is larger, as in the paper."""
        entries = max(1000, int(WORD_ENTRIES * self._spec.scale * (1.4 if version == 2 else 1.0)))
        return self._vectorizer("word", version, (1, 2), entries)

    def _vectorizer(self, analyzer: str, version: int, lengths: tuple[int, int], most: int) -> Any:
        from sklearn.feature_extraction.text import TfidfVectorizer

        key = (analyzer, version)
        if key not in self._made:
            # What converters handle: skl2onnx splits words at anything but these.
            words = {"token_pattern": r"[a-zA-Z0-9_]+"} if analyzer == "word" else {}
            made = TfidfVectorizer(
                analyzer=analyzer, ngram_range=lengths, max_features=most, **words
            )
            corpus = self._corpus(version + 100 * (analyzer == "char"), most)
            made.fit(corpus)
            self._made[key] = made
        return self._made[key]

    def _corpus(self, version: int, entries: int) -> list[str]:
        """The sample and as much generated text as brings enough different n-grams."""
        rng = np.random.default_rng((self._spec.seed, version))
        known = sorted({word for text in self._sentences for word in text.split()})
        documents = entries // 25 + 50
        ranks = rng.zipf(1.35, size=(documents, 40)) - 1
        rare = 200_000
        return [
            *self._sentences,
            *(" ".join(_word(known, int(rank % rare), version) for rank in row) for row in ranks),
        ]


def _word(known: list[str], rank: int, version: int) -> str:
    """The word of a rank: real ones first, then ones of syllables, in each version's own order."""
    if rank < len(known):
        return known[(rank * 7919 + version) % len(known)]
    letters, number = [], rank
    while number:
        number, place = divmod(number, len(_SYLLABLES))
        letters.append(_SYLLABLES[place])
    return "".join(letters)
