"""Embeddings that only place the rows they were fitted on."""

from __future__ import annotations

from flour.adapters import declines

declines(
    "refused: it only places the rows it was fitted on and has no transform for new ones",
    "sklearn.manifold.ClassicalMDS",
    "sklearn.manifold.MDS",
    "sklearn.manifold.SpectralEmbedding",
    "sklearn.manifold.TSNE",
)
