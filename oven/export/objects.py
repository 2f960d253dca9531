"""An image as object code of any processor, written in a process of its own.

LLVM aborts on some code for WebAssembly with vectors, so what it does to this process must not
matter: it is another one, and is asked again without vectors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from oven.compiler.machine import Aim
from oven.errors import NotExportable
from oven.export.image import Image
from oven.export.targets import aim_of, run_apart


def write_object(image: Image, triple: str, made: Path, levels: Sequence[str] = ()) -> list[Path]:
    """Write an image as object code; that of further levels of processors is in files beside it."""
    parameters = image.parameters
    index = {blob: place for place, blob in enumerate(parameters)}
    order = {
        "name": image.name,
        "about": image.about,
        "functions": image.functions,
        "levels": [*levels],
        "columns": [len(image.inputs), len(image.outputs), int(image.texts)],
        "table": [word if isinstance(word, int) else [index[word]] for word in image.table],
        "sizes": [blob.array.nbytes for blob in parameters],
    }
    order_file, data_file = made.with_suffix(".json"), made.with_suffix(".parameters")
    order_file.write_text(json.dumps(order), encoding="utf-8")
    with data_file.open("wb") as file:
        for blob in parameters:
            file.write(blob.array.tobytes())
    aims = [(aim_of(triple), made, "")]
    for level in levels:
        beside = made.with_name(f"{level}.o")
        beside.with_suffix(".json").write_text(order_file.read_text("utf-8"), encoding="utf-8")
        aims.append((aim_of(triple, level), beside, level))
    for aim, into, level in aims:
        try:
            _write(aim, into, level)
        except NotExportable:
            if "simd" not in aim.features:
                raise
            _write(aim_of(triple, simd=False), into, level)
    return [into for _, into, _ in aims]


def _write(aim: Aim, file: Path, level: str) -> None:
    what = f"LLVM's code generator for {aim.triple}"
    run_apart("oven.compiler.linkable", [*aim[:3], str(file), level], what)
