"""Folders that an embedding was saved in, which are read as one file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from runtime.repository.files import Folder

_TOKENIZERS = ("tokenizer.json", "0_StaticEmbedding/tokenizer.json")


def is_embedding(path: Path) -> bool:
    """True if an embedding was saved in this folder."""
    return any((path / name).is_file() for name in _TOKENIZERS)


class PackedFolder(Folder):
    """A folder whose folders of embeddings are files: each file of theirs is read as all are."""

    @contextmanager
    def open(self, path: Path, limit: int | None = None) -> Iterator[BinaryIO]:
        """A file, or the files of an embedding as one."""
        if not is_embedding(path):
            with super().open(path, limit) as file:
                yield file
            return
        from flour.embeddings import packed

        yield io.BytesIO(packed(path, self.read))
