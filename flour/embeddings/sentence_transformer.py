"""A SentenceTransformer in memory, which is read as what it saves."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from flour.core.types import Text
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow


@adapts(
    "sentence_transformers.SentenceTransformer.SentenceTransformer",
    "sentence_transformers.sentence_transformer.model.SentenceTransformer",
)
def _sentence_transformer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    from flour.embeddings.folder import vectors_of  # it needs onnx, which other adapters do not

    to.need(isinstance(x.type, Text), "an embedding reads documents")
    with TemporaryDirectory() as folder:  # what it saves is what is known of it
        fit.save_pretrained(folder, create_model_card=False)
        return vectors_of(Path(folder), x)
