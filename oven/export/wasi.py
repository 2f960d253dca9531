"""A WebAssembly command: rows of CSV from its input, answers as CSV to its output.

`command.c` reads and writes; the columns, and the model in object code, come from the image.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from flour.core.types import Record, Text, Vector
from oven.errors import NotExportable
from oven.export import targets
from oven.export.c_file import filled, item_type, literal
from oven.export.image import CallerArray, Image


def write_command(image: Image, code: Path, made: Path) -> None:
    """Link a command from the model's object code and `command.c`."""
    compiler = [sys.executable, "-m", "ziglang", "cc"] if find_spec("ziglang") else ["clang"]
    if not shutil.which(compiler[0]):
        raise NotExportable(
            "a C compiler for WASI is needed, and none is installed",
            hint="pip install ziglang; apt install clang lld wasi-libc libclang-rt-14-dev-wasm32",
        )
    source = made.with_name("command.c")
    parts = {
        "COLUMNS": "\n".join(_columns(image)),
        "LONGEST": "input.longest" if image.texts else "scratch_for",
        "ORDERED": _ordered(image),
    }
    source.write_text(filled("command.c", image, **parts), encoding="utf-8")
    options = ["--target=wasm32-wasi", "-O2", "-s", "-o", str(made), str(source), str(code)]
    targets.run([*compiler, *options], "the C compiler for WASI")


def _columns(image: Image) -> Iterator[str]:
    """A row of the model's columns, and how each is read or written."""
    for side, arrays in (("input", image.inputs), ("output", image.outputs)):
        for each in arrays:
            yield f"static {item_type(image, each)} {side}_{each.name}[{each.width}];"
        given = ", ".join(f".{each.name} = {side}_{each.name}" for each in arrays)
        cells = (_cell(image, side, each, k) for each in arrays for k in range(each.width))
        yield f"static {image.name}_{side} {side} = {{{given}}};"
        yield f"static const column {side}s[] = {{{', '.join(cells)}}};"


def _ordered(image: Image) -> int:
    """2: columns go by their order; 1: they do where no name agrees; 0: they go by name."""
    kinds = image.plan.inputs.values()
    named = any(isinstance(each, Record) and not each.positional for each in kinds)
    return 2 if any(isinstance(each, Vector) for each in kinds) else int(not named)


def _cell(image: Image, side: str, each: CallerArray, k: int) -> str:
    letter = "t" if is_document(image, each) else each.dtype[0]
    label = literal(f"{each.label}_{k}" if each.width > 1 else each.label)
    labels = f"{image.name}_{each.name}_labels" if each.labels else "0"
    return (
        f"{{{label}, '{letter}', sizeof {side}_{each.name}[0], &{side}_{each.name}[{k}], {labels}}}"
    )


def is_document(image: Image, each: CallerArray) -> bool:
    """True if an input is a text of words, and not one out of a set."""
    kind = image.plan.inputs.get(each.record or each.label)
    return isinstance(dict(kind.fields)[each.label] if isinstance(kind, Record) else kind, Text)
