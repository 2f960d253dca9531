"""A WebAssembly module as a package for browsers and node, without dependencies."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from oven.export.image import CallerArray, Image
from oven.export.replay import AnsweredRows
from oven.export.wasi import is_document

_ARRAYS = {"float64": "Float64Array", "float32": "Float32Array", "bool": "Uint8Array"}
_ARRAYS |= {
    f"{sign.lower()}int{bits}": f"{'Big' * (bits == 64)}{sign}Int{bits}Array".replace(
        "UInt", "Uint"
    )
    for sign in ("", "U")
    for bits in (8, 16, 32, 64)
}


def write_package(image: Image, folder: Path) -> list[Path]:
    """Write the files beside `NAME.wasm`: the module's face, its types and the package's facts."""
    face = Path(__file__).with_name("index.js").read_text(encoding="utf-8")
    texts = {
        "index.js": f"// {image.about}\nconst SPEC = {_spec(image)};\n{face}",
        "index.d.ts": "\n".join(_types(image)) + "\n",
        "package.json": json.dumps(_package(image), indent=2) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _spec(image: Image) -> str:
    def described(each: CallerArray) -> dict[str, object]:
        kind = "text" if each.dtype == "string" else _ARRAYS[each.dtype]
        made = {
            "label": each.label,
            "kind": kind,
            "width": each.width,
            "bool": each.dtype == "bool",
        }
        return {**made, "labels": list(each.labels)} if each.labels else made

    columns = {
        "inputs": [described(each) for each in image.inputs],
        "outputs": [described(each) for each in image.outputs],
    }
    return _script({"name": image.name, "texts": image.texts, **columns})


def _script(value: object) -> str:
    """A value of JavaScript, which may stand in a page."""
    return json.dumps(value, indent=1).replace("<", "\\u003c")


def write_demo(image: Image, folder: Path, sample: AnsweredRows | None) -> Path:
    """Write a page that has the module in it, and asks it as one types."""
    parts = {
        "TITLE": image.name,
        "MODULE": b64encode((folder / f"{image.name}.wasm").read_bytes()).decode(),
        "FACE": (folder / "index.js").read_text(encoding="utf-8"),
        "VALUES": _script([_usual(image, each, sample) for each in image.inputs]),
    }
    page = Path(__file__).with_name("demo.html").read_text(encoding="utf-8")
    page = re.sub(r"\b(?:TITLE|MODULE|FACE|VALUES)\b", lambda found: parts[found[0]], page)
    (folder / "demo.html").write_text(page, encoding="utf-8")
    return folder / "demo.html"


def _usual(image: Image, each: CallerArray, sample: AnsweredRows | None) -> dict[str, object]:
    """The medians of numbers; texts of rows are not told."""
    values: list[object] = [None] * each.width
    if sample is not None and sample.rows and each.dtype != "string":
        ordered = np.sort(sample.inputs[each.name].reshape(sample.rows, each.width), axis=0)
        middle = ordered[sample.rows // 2].tolist()
        values = [None if np.isnan(value) else value for value in middle]
    return {"document": is_document(image, each), "values": values}


def _types(image: Image) -> Iterator[str]:
    yield f"// {image.about}"
    yield "/** A column of each name, with as many values as there are rows. */"
    yield "export interface Input {"
    for each in image.inputs:
        item = "string | null" if each.dtype == "string" else "number | null"
        rows = f" | ArrayLike<ArrayLike<{item}>>" if each.width > 1 else ""
        yield f"  {json.dumps(each.label)}: ArrayLike<{item}>{rows};"
    yield "}"
    yield "export interface Output {"
    for each in image.outputs:
        label = " | ".join(json.dumps(label) for label in each.labels)
        kind = f"({label})[]" if each.labels else _output_type(each)
        yield (
            f"  /** {each.width} of each row. */" if each.width > 1 else "  /** One of each row. */"
        )
        yield f"  {json.dumps(each.label)}: {kind};"
    yield "}"
    yield "export interface Model {"
    yield "  /** The answers for these columns; an Error for what the model refuses. */"
    yield "  predict(input: Input): Output;"
    yield "  /** Name, version and digests. */"
    yield "  readonly version: string;"
    yield "}"
    yield "/** The model, from the module beside this file or from its bytes. */"
    yield "export function load(bytes?: BufferSource): Promise<Model>;"


def _output_type(each: CallerArray) -> str:
    if each.dtype == "bool":
        return "boolean[]"
    return "number[]" if each.dtype.endswith("int64") else _ARRAYS[each.dtype]


def _package(image: Image) -> dict[str, object]:
    numbers = re.findall(r"\d+", image.version)[:3]
    return {
        "name": image.name.lower(),
        "version": ".".join((*map(str, map(int, numbers)), "0", "0", "0")[:3]),
        "description": image.about,
        "type": "module",
        "main": "index.js",
        "types": "index.d.ts",
        "files": ["index.js", "index.d.ts", "demo.html", f"{image.name}.wasm"],
    }
