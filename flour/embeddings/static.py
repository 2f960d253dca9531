"""Static embeddings: the mean of a document's rows in a table of one row for each piece."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.check import vector
from flour.core.errors import UnsupportedSetting
from flour.core.types import Text
from flour.embeddings.json_part import JsonPart
from flour.embeddings.tokenizer_json import Subwords, read_tokenizer
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.linear import affine
from flour.ops.subwords import FirstCharacters, TokenMean
from flour.ops.text import DropWords

#: The number that model2vec adds to a length.
_TINY = 1e-32
#: The smallest length of sentence-transformers.
_SMALLEST = 1e-12


class PieceTable(NamedTuple):
    """A row for each piece: row `places[i]`, times `weights[i]`, where there are such."""

    rows: NDArray[Any]
    places: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None

    def mean(self, pieces: Flow, vocabulary: list[str]) -> Flow:
        """The mean of the rows of pieces."""
        for each in (self.rows, self.weights):
            if each is not None and each.dtype not in (np.float32, np.float64, np.int8):
                raise UnsupportedSetting(
                    "embeddings of this dtype are not supported",
                    found=str(each.dtype),
                    hint="save the model as float32: quantize_to='float32'",
                )
        nothing = np.zeros(0)
        return TokenMean(
            vocabulary,
            self.rows,
            nothing if self.places is None else self.places,
            nothing if self.weights is None else self.weights,
            dtype="float64" if self.rows.dtype == np.float64 else "float32",
        )(pieces)

    def numbers_only(self) -> PieceTable:
        """The table without NaN and infinity, as a model2vec pipeline has it."""
        return self._replace(rows=np.nan_to_num(self.rows))


def of_model2vec(
    document: Flow, subwords: Subwords, table: PieceTable, most: int | None, *, unit: bool
) -> Flow:
    """Vectors of a StaticModel of model2vec; `most` is its `max_length`, `unit` its `normalize`.

    Documents are cut to so many characters first as that many pieces of median length have.
    """
    if most is not None:
        median = int(np.median([len(piece) for piece in subwords.vocabulary]))
        document = FirstCharacters(most * median)(document)
    pieces = subwords.pieces(document, most or 0)
    if subwords.unknown:
        pieces = DropWords([subwords.unknown])(pieces)
    mean = table.mean(pieces, subwords.vocabulary)
    if not unit:
        return mean
    narrow = mean.cast("float32")
    return (narrow / narrow.norm("l2").add(np.full(1, _TINY, np.float32))).cast_like(mean)


def of_sentence_transformers(
    document: Flow, subwords: Subwords, table: PieceTable, *, unit: bool
) -> Flow:
    """Vectors of sentence-transformers whose first module is a StaticEmbedding."""
    mean = table.mean(subwords.pieces(document, subwords.most), subwords.vocabulary)
    return unit_length(mean) if unit else mean


def unit_length(x: Flow) -> Flow:
    """Rows over their length, as sentence-transformers' Normalize has them."""
    dtype = vector(x.type, "an embedding").dtype
    return x / x.norm("l2").clip(np.full(1, _SMALLEST, dtype), np.full(1, np.inf, dtype))


# --- heads of model2vec ---------------------------------------------------------------------------


def headed(x: Flow, about: JsonPart, tensors: dict[str, NDArray[Any]]) -> dict[str, Flow]:
    """The outputs of a StaticModelPipeline's head: layers with ReLU between them."""
    count = about["n_layers"].whole(0)
    for place in range(count):
        names = [f"head.{place}.{name}" for name in ("weight", "bias")]
        if not all(name in tensors for name in names):
            raise about["n_layers"].wrong("the file of the head has fewer layers")
        x = affine(x.relu() if place else x, *(tensors[name] for name in names))
    activation = about["activation"].text("identity")
    if activation == "identity":
        return {"value": x}
    classes = about["classes"].value
    if not isinstance(classes, list) or len(classes) != vector(x.type, "a head").width:
        raise about["classes"].wrong("a classifier has a class for each column")
    if activation == "softmax":
        return {"label": x.arg_max().take(np.asarray(classes)), "probabilities": x.softmax()}
    if activation != "sigmoid":
        raise about["activation"].refused("this activation is not supported")
    found = x.sigmoid()
    return {"label": found.greater([0.5]).cast("int64"), "probabilities": found}


# --- objects in memory ----------------------------------------------------------------------------


@adapts("model2vec.model.StaticModel")
def _static_model(fit: Fitted, x: Flow, to: Importer) -> Flow:
    to.need(isinstance(x.type, Text), "a static model reads documents")
    subwords = read_tokenizer(fit.tokenizer.to_str().encode(), "tokenizer")
    table = PieceTable(fit.embedding, fit.token_mapping, fit.weights)
    return of_model2vec(x, subwords, table, fit.max_length, unit=fit.normalize)


@adapts("embetter.text.TextEncoder")
def _text_encoder(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return to.transform(fit.model, x)


@adapts("model2vec.inference.model.StaticModelPipeline")
def _pipeline(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    head, tensors = fit.head, dict[str, NDArray[Any]]()
    for place, layer in enumerate(head.layers):
        tensors |= {f"head.{place}.weight": layer.weight, f"head.{place}.bias": layer.bias}
    classes = None if head.classes_ is None else head.classes_.tolist()
    about = {"n_layers": len(head.layers), "activation": str(head.activation.value)}
    return headed(
        to.transform(fit.model, x), JsonPart(about | {"classes": classes}, "head"), tensors
    )
