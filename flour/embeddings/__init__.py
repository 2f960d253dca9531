"""Models that turn documents into vectors, and what was trained on them, as one program."""

from flour.embeddings.folder import facts_of, from_embedding, packed

__all__ = ["facts_of", "from_embedding", "packed"]
