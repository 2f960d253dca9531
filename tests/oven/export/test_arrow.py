"""Exports in C take rows of Arrow as their plans do, and say what they refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import oven
from flour.core.types import Vector
from flour.language.flow import outputs, source
from oven.export import export, image
from tests.house import ended
from tests.oven.export import models
from tests.oven.export.arrowed import variants

pytestmark = [pytest.mark.once, pytest.mark.apart]

#: Functions of the header under names that a program can find.
_FACE = """
#include "m_arrow.h"
typedef const struct ArrowSchema *of;
typedef const struct ArrowArray *from;
size_t size(size_t longest);
size_t size(size_t longest) { return m_arrow_scratch_size(longest); }
int predict(of schema, from array, m_output *made, size_t rows, size_t longest, void *scratch);
int predict(of schema, from array, m_output *made, size_t rows, size_t longest, void *scratch) {
    return m_predict_arrow(schema, array, made, rows, longest, scratch);
}
"""
_STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]
_CHECKED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def _plan(name: str) -> oven.Plan:
    if name in {"table", "lightgbm"}:
        return models.fitted(name).plan
    x = source("x", Vector(2, name))
    return oven.bake(outputs(value=x.cast("float64") * 0.5), background=False)


@pytest.mark.skipif(which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize(
    ("name", "to"),
    [("table", "so"), *((each, "c") for each in ("table", "lightgbm", "int16", "uint32", "bool"))],
)
def test_rows_of_arrow(name: str, to: Any, tmp_path: Path) -> None:
    """Nulls, offsets and types are respected, and no byte is read or written beside them."""
    plan = _plan(name)
    export(plan, tmp_path, to=to, name="m", verify=False)
    (tmp_path / "face.c").write_text(_FACE, encoding="utf-8")
    command = ["gcc", *_STRICT, *_CHECKED, "-shared", "-fPIC", "face.c", str(tmp_path / f"m.{to}")]
    subprocess.run([*command, "-lm", "-o", "face.so"], cwd=tmp_path, check=True, timeout=120)
    asked = ["gcc", "-print-file-name=libasan.so"]
    runtime = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    made = image.image_of(plan, "m", "1").outputs
    columns = json.dumps([[each.dtype, each.width] for each in made])
    program = [sys.executable, "-m", "tests.oven.export.arrowed"]
    settings = {"LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"}
    words = (name, tmp_path / "face.so", tmp_path, columns)
    done = ended(*program, *words, env={**os.environ, **settings}, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    portable = image.portable_plan(plan)
    for number, (said, array) in enumerate(variants(name).items()):
        found = np.load(tmp_path / f"{number}.npz")
        wanted = int(said.split()[0]) if said[0].isdigit() else 0
        assert found["code"] == wanted, said
        if wanted == 0 and len(array):
            answers = portable.run(_rows(array))
            for k, each in enumerate(made):
                right = np.asarray(answers[each.label])
                if each.labels:
                    right = np.array([each.labels.index(label) for label in right])
                assert found[f"o{k}"].tobytes() == np.ascontiguousarray(right).tobytes(), said


def _rows(array: Any) -> Any:
    """The rows of a struct array, as a plan takes them."""
    columns = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    if len(columns) == 1:  # lists of numbers, where a null stands for so many
        ((_, lists),) = columns.items()
        width, whole = lists.type.list_size, not pa.types.is_floating(lists.type.value_type)
        rows = [[None] * width if row is None else row for row in lists.to_pylist()]
        kind = "bool" if pa.types.is_boolean(lists.type.value_type) else "int64"
        return np.array(rows, kind if whole else "float64")
    if "Column_0" in columns:
        return np.stack([np.array(each.to_pylist(), "float64") for each in columns.values()], 1)
    return pa.table({key: columns[key] for key in ("age", "n items", "for")})
