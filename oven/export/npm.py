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
    texts = {
        "index.js": f"// {image.about}\nconst SPEC = {_spec(image)};\n{_FACE}",
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


_FACE = """\
const MESSAGES = [
  "",
  "a row is refused: the model does not take such a value (NaN or infinity, perhaps)",
  "a text is too long",
  "a text is not UTF-8",
];

async function own() {
  const url = new URL(`./${SPEC.name}.wasm`, import.meta.url);
  if (url.protocol !== "file:") return (await fetch(url)).arrayBuffer();
  return (await import("node:fs/promises")).readFile(url);
}

export async function load(bytes) {
  const { instance } = await WebAssembly.instantiate(bytes ?? (await own()), {});
  return new Model(instance.exports);
}

class Model {
  constructor(exports) {
    this.exports = exports;
    const bytes = new Uint8Array(exports.memory.buffer);
    const start = exports[`${SPEC.name}_version`]();
    this.version = new TextDecoder().decode(bytes.subarray(start, bytes.indexOf(0, start)));
  }

  predict(input) {
    const columns = SPEC.inputs.map((column) => taken(input, column));
    const counts = columns.map((column, k) => column.length / SPEC.inputs[k].width);
    const rows = counts[0];
    counts.forEach((count, k) => {
      if (count !== rows) {
        const { label, width } = SPEC.inputs[k];
        const wanted = `${rows} rows of ${width}`;
        throw new RangeError(`column ${label}: ${columns[k].length} values, not ${wanted}`);
      }
    });
    return this.answer(columns, rows);
  }

  answer(columns, rows) {
    let end = align(this.exports.__heap_base.value);
    const room = (size) => {
      const start = end;
      end = align(end + size);
      return start;
    };
    const texts = columns.map((column, k) => (isText(k) ? column.map(encoded) : null));
    const longest = texts.flat().reduce((most, each) => Math.max(most, each?.length ?? 0), 0);
    const inputs = columns.map((column, k) => room(column.length * itemBytes(SPEC.inputs[k])));
    const sizes = texts.map((each) => each?.reduce((sum, { length }) => sum + (length ?? 0), 0));
    const bodies = sizes.map((size) => room(size ?? 0));
    const outputs = SPEC.outputs.map((each) => room(rows * each.width * itemBytes(each)));
    const given = room(4 * (inputs.length + 1));
    const made = room(4 * outputs.length);
    const scratch = room(this.exports[`${SPEC.name}_scratch_size`](longest) >>> 0);
    const memory = this.exports.memory;
    const missing = end - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / 65536));
    const view = new DataView(memory.buffer);
    columns.forEach((column, k) => {
      if (isText(k)) writeTexts(view, inputs[k], bodies[k], texts[k]);
      else new globalThis[SPEC.inputs[k].kind](memory.buffer, inputs[k], column.length).set(column);
    });
    [...inputs, longest].forEach((word, k) => view.setUint32(given + 4 * k, word, true));
    outputs.forEach((word, k) => view.setUint32(made + 4 * k, word, true));
    const code = this.exports[`${SPEC.name}_predict`](given, made, rows, scratch);
    if (code !== 0) throw new RangeError(MESSAGES[code]);
    const answers = SPEC.outputs.map((each, k) => {
      const kind = globalThis[each.kind];
      return [each.label, answerOf(each, new kind(memory.buffer, outputs[k], rows * each.width))];
    });
    return Object.fromEntries(answers);
  }
}

const align = (size) => Math.ceil(size / 64) * 64;
const isText = (k) => SPEC.inputs[k].kind === "text";
const itemBytes = ({ kind }) => (kind === "text" ? 16 : globalThis[kind].BYTES_PER_ELEMENT);
const encoder = new TextEncoder();

function taken(input, { label, kind, width }) {
  const given = input?.[label];
  if (given === undefined || given === null || typeof given === "string") {
    throw new TypeError(`column ${label} is missing, or no array`);
  }
  const nested = width > 1 && given.length > 0 && typeof given[0] === "object" && given[0] !== null;
  const flat = nested ? Array.from(given).flatMap((row) => Array.from(row)) : given;
  if (kind === "text") return Array.from(flat);
  if (flat instanceof globalThis[kind]) return flat;
  const whole = kind.startsWith("Big");
  return globalThis[kind].from(flat, (value) => number(value, label, kind, whole));
}

function number(value, label, kind, whole) {
  if (whole && (typeof value === "bigint" || Number.isInteger(value))) return BigInt(value);
  if (kind.startsWith("Float") && (value === null || value === undefined)) return NaN;
  if (typeof value === "boolean") return whole ? BigInt(value) : Number(value);
  if (typeof value !== "number" || !(kind.startsWith("Float") || Number.isInteger(value))) {
    throw new TypeError(`column ${label}: ${String(value)} is not a number of its type`);
  }
  return value;
}

function encoded(text) {
  if (typeof text === "string") return encoder.encode(text);
  return text === null || text === undefined ? -1 : -2;
}

function writeTexts(view, cells, start, texts) {
  const bytes = new Uint8Array(view.buffer);
  texts.forEach((text, row) => {
    const missing = typeof text === "number";
    view.setUint32(cells + 16 * row, start, true);
    view.setUint32(cells + 16 * row + 4, 0, true);
    view.setBigInt64(cells + 16 * row + 8, BigInt(missing ? text : text.length), true);
    if (missing) return;
    bytes.set(text, start);
    start += text.length;
  });
}

function answerOf({ kind, labels, bool }, array) {
  if (labels) return Array.from(array, (place) => labels[Number(place)]);
  if (bool) return Array.from(array, Boolean);
  return kind.startsWith("Big") ? Array.from(array, Number) : array.slice();
}
"""
