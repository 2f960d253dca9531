"""scikit-learn's text vectorisers as chains of text operators."""

from __future__ import annotations

import numpy as np

from flour.core.check import is_string
from flour.core.types import Vector
from flour.language.adapters import Fitted, Importer, adapts, declines
from flour.language.flow import Flow
from flour.ops.python import PythonText, PythonWords
from flour.ops.require import RequirePresent
from flour.sklearn.versions import renewed


def _document(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The text after the vectoriser's own cleaning."""
    to.need(fit.input == "content", f"input={fit.input!r} reads files while predicting")
    if isinstance(x.type, Vector) and x.type.width == 1:
        x = x.element(0)
    if is_string(x.type):  # a document is never missing, a string may be
        own = callable(fit.analyzer) or fit.preprocessor is not None  # functions that may take None
        x = RequirePresent(none=not own, step=type(fit).__name__)(x)
    if callable(fit.analyzer):
        return x  # a callable analyzer does all the work itself
    if fit.preprocessor is not None:  # nor is anything else done to the document
        what = "a preprocessor of your own cannot be translated"
        return PythonText(to.python(fit.preprocessor, what))(x)
    if fit.lowercase:
        x = x.lower()
    if callable(fit.strip_accents):
        what = "a function for strip_accents cannot be translated"
        return PythonText(to.python(fit.strip_accents, what))(x)
    return x.strip_accents(ascii=fit.strip_accents == "ascii") if fit.strip_accents else x


def _words(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The document's words without stop words."""
    if fit.tokenizer is None:
        words = x.tokenize(fit.token_pattern)
    else:
        what = "a tokenizer of your own cannot be translated"
        another = "or say it as token_pattern=, a regular expression"
        words = PythonWords(to.python(fit.tokenizer, what, another))(x)
    stop = fit.get_stop_words()
    return words.drop_words(sorted(stop)) if stop else words


def _analysed(fit: Fitted, x: Flow, to: Importer, *, lenient: bool = False) -> Flow:
    """The features that an analyzer function finds, each one a word."""
    what = "an analyzer of your own cannot be translated"
    return PythonWords(to.python(fit.analyzer, what), lenient=lenient)(x)


@adapts("sklearn.feature_extraction.text.CountVectorizer")
def _counts(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The count of each term of the vocabulary."""
    x = _document(fit, x, to)
    terms = sorted(fit.vocabulary_, key=fit.vocabulary_.__getitem__)
    dtype, (low, high) = str(np.dtype(fit.dtype).name), fit.ngram_range
    if callable(fit.analyzer):
        strings = all(isinstance(term, str) for term in terms)
        to.need(strings, "the analyzer's features are no strings")
        counts = _analysed(fit, x, to, lenient=True).word_ngrams(terms, 1, 1, dtype)
    elif fit.analyzer == "word":
        counts = _words(fit, x, to).word_ngrams(terms, low, high, dtype)
    else:
        counts = x.char_ngrams(
            terms, low, high, within_words=fit.analyzer == "char_wb", dtype=dtype
        )
    return counts.binarize(0.0) if fit.binary else counts


def _weighted(fit: Fitted, x: Flow) -> Flow:
    """Counts damped, weighted by the rarity of each term, and scaled to length one."""
    if fit.sublinear_tf:
        x = x.damp()
    if fit.use_idf:
        x = x.multiply(fit.idf_)
    return _normalised(x, fit.norm)


def _normalised(x: Flow, norm: str | None) -> Flow:
    """Rows of length one; the library adds up and divides in float64 for features of any dtype."""
    if norm is None:
        return x
    size = (x.square() if norm == "l2" else x.abs()).cast("float64").sum()
    length = size.sqrt() if norm == "l2" else size
    return (x.cast("float64") / length.one_if_tiny(0.0)).cast_like(x)


@adapts("sklearn.feature_extraction.text.TfidfVectorizer")
def _tfidf(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return _weighted(renewed(fit._tfidf), _counts(fit, x, to).as_float())


@adapts("sklearn.feature_extraction.text.TfidfTransformer")
def _tfidf_transformer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    # The library makes its input a sparse matrix, whichever it is.
    return _weighted(fit, to.floats(x).to_sparse())


@adapts("sklearn.feature_extraction.text.HashingVectorizer")
def _hashing(fit: Fitted, x: Flow, to: Importer) -> Flow:
    x, (low, high) = _document(fit, x, to), fit.ngram_range
    if callable(fit.analyzer):
        words = _analysed(fit, x, to)
    elif fit.analyzer == "word":
        words = _words(fit, x, to).phrases(low, high)
    else:
        words = x.runs(low, high, within_words=fit.analyzer == "char_wb")
    dtype = str(np.dtype(fit.dtype).name)
    counts = words.hashing(
        fit.n_features, signed=fit.alternate_sign, binary=fit.binary, dtype=dtype
    )
    return _normalised(counts, fit.norm)


declines(
    "refused: it cuts random pieces out of pictures, one row becomes many",
    "sklearn.feature_extraction.image.PatchExtractor",
)
