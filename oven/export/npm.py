"""A WebAssembly module as a package for browsers and node, without dependencies."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from pathlib import Path

import numpy as np

from oven.export.c_file import filled
from oven.export.image import CallerArray, Image
from oven.export.replay import AnsweredRows
from oven.export.wasi import is_document

_ARRAYS = {"float64": "Float64Array", "float32": "Float32Array", "bool": "Uint8Array"}
_ARRAYS |= {f"int{bits}": f"Int{bits}Array" for bits in (8, 16, 32)}
_ARRAYS |= {f"uint{bits}": f"Uint{bits}Array" for bits in (8, 16, 32)}
_ARRAYS |= {"int64": "BigInt64Array", "uint64": "BigUint64Array", "string": "text"}
#: Whole numbers that JavaScript's own may be too short for, and other values in TypeScript.
_WIDE = ("int64", "uint64")
_ITEMS = {"string": "string | null", "bool": "boolean | number"}
_ITEMS |= dict.fromkeys(_WIDE, "number | bigint")


def write_package(image: Image, folder: Path) -> list[Path]:
    """Write the files beside `NAME.wasm`: the module's face, its types and the package's facts."""
    face = Path(__file__).with_name("index.js").read_text(encoding="utf-8")
    types = {"INPUTS": map(_input, image.inputs), "OUTPUTS": map(_output, image.outputs)}
    lines = {side: "\n".join(each) for side, each in types.items()}
    texts = {
        "index.js": f"// {image.about}\nconst SPEC = {_spec(image)};\n{face}",
        "index.d.ts": filled("index.d.ts", image, **lines),
        "package.json": json.dumps(_package(image), indent=2) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _spec(image: Image) -> str:
    def described(each: CallerArray) -> dict[str, object]:
        made: dict[str, object] = {"label": each.label, "kind": _ARRAYS[each.dtype]}
        made |= {"width": each.width, "bool": each.dtype == "bool"}
        if each.dtype == "string":
            made["missing"] = -2 if each.label in known.nan - known.none else -1
        return {**made, "labels": each.labels} if each.labels else made

    known = image.plan.reader.nulls.learn()
    columns = {"inputs": image.inputs, "outputs": image.outputs}
    spec = {side: [described(each) for each in arrays] for side, arrays in columns.items()}
    return _script({"name": image.name, "texts": image.texts, **spec})


def _script(value: object) -> str:
    """A value of JavaScript, which may stand in a page."""
    return json.dumps(value, indent=1).replace("<", "\\u003c")


def write_demo(image: Image, folder: Path, sample: AnsweredRows | None) -> Path:
    """Write a page that has the module in it, and asks it as one types."""
    page = folder / "demo.html"
    module = b64encode((folder / f"{image.name}.wasm").read_bytes()).decode()
    face = (folder / "index.js").read_text(encoding="utf-8")
    values = _script([_usual(image, each, sample) for each in image.inputs])
    text = filled("demo.html", image, MODULE=module, FACE=face, VALUES=values)
    page.write_text(text, encoding="utf-8")
    return page


def _usual(image: Image, each: CallerArray, sample: AnsweredRows | None) -> dict[str, object]:
    """The medians of numbers; texts of rows are not told."""
    values: list[object] = [None] * each.width
    if sample is not None and sample.rows and each.dtype != "string":
        ordered = np.sort(sample.inputs[each.name].reshape(sample.rows, each.width), axis=0)
        middle = ordered[sample.rows // 2].tolist()
        values = [None if np.isnan(value) else value for value in middle]
    return {"document": is_document(image, each), "values": values}


def _input(each: CallerArray) -> str:
    """An input's field in TypeScript."""
    item = _ITEMS.get(each.dtype, "number | null" if each.dtype[0] == "f" else "number")
    rows = f" | ArrayLike<ArrayLike<{item}>>" * (each.width > 1)
    return f"  {json.dumps(each.label)}: ArrayLike<{item}>{rows};"


def _output(each: CallerArray) -> str:
    """An output's field in TypeScript, with what is in it; a BigInt where a number is not exact."""
    kind = {"bool": "boolean[]", **dict.fromkeys(_WIDE, "(number | bigint)[]")}.get(each.dtype)
    if each.labels:
        kind = f"({' | '.join(map(json.dumps, each.labels))})[]"
    number = f"{each.width}" if each.width > 1 else "One"
    kind = f"{json.dumps(each.label)}: {kind or _ARRAYS[each.dtype]};"
    return f"  /** {number} of each row. */\n  {kind}"


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
