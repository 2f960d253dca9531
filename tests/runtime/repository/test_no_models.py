"""Files that are no models are refused by what they are, with what to do about it."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest

import pretzel
from flour.core.errors import FlourError
from runtime.cli.models import find

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n"
PAGE = b"\n<!doctype HTML><html><body>Sign in</body></html>"
ENDINGS = ("pkl", "joblib", "json", "ubj", "txt", "onnx", "skops")


def torch_file() -> bytes:
    """A file as torch.save writes it, as far as its names go."""
    kept = io.BytesIO()
    with zipfile.ZipFile(kept, "w") as archive:
        archive.writestr("model/data.pkl", b"\x80\x02}.")
        archive.writestr("model/version", "3\n")
    return kept.getvalue()


REFUSED = [
    *((ending, POINTER, "Git LFS's pointer.*git lfs pull") for ending in ENDINGS),
    *((ending, PAGE, "a web page, not a model.*download it again") for ending in ENDINGS),
    *((ending, b"", "the file is empty") for ending in ENDINGS),
    *((ending, torch_file(), "of PyTorch.*torch.onnx.export") for ending in ("pkl", "pt")),
    ("json", b"[1, 2, 3]", "not a whole XGBoost model.*JSON of something else"),
    ("json", b'{"learner": {}}', "not a whole XGBoost model.*has no 'learner_model_param'"),
]


@pytest.mark.parametrize(("ending", "raw", "said"), REFUSED, ids=lambda value: str(value)[:12])
def test_what_a_file_is_in_place_of_a_model(
    ending: str, raw: bytes, said: str, tmp_path: Path
) -> None:
    path = tmp_path / f"m.{ending}"
    path.write_bytes(raw)
    with pytest.raises(FlourError, match=f"(?s){said}") as refused:
        pretzel.compile(path)
    assert str(path) in str(refused.value)


def test_what_stands_where_a_file_should(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.pkl").symlink_to(tmp_path / "gone.pkl")
    os.mkfifo(tmp_path / "pipe.pkl")
    for name, said in (
        ("folder", "a folder without a model"),
        ("link.pkl", "this link leads to no file"),
        ("pipe.pkl", "no regular file"),
        ("none.pkl", "no such model"),
    ):
        with pytest.raises(FlourError, match=said):
            find(str(tmp_path / name))
