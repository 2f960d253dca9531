"""An image as a C header, and as a file of C99 that needs memcpy and the mathematical library."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oven.compiler.kinds import INT64, KINDS, Mismatch
from oven.compiler.portable import definition, missing
from oven.errors import NotExportable
from oven.export import c_words, small
from oven.export.c_code import CModule, CWord, c_type, constant, converted
from oven.export.image import CallerArray, Image

#: Zeros behind every array, as whole words of texts are read at its end.
_BEHIND = 64


def filled(template: str, image: Image, **parts: object) -> str:
    """A file beside this one, with the image's names and these parts in it."""
    parts |= {"MODEL": image.name, "ABOUT": image.about}
    text = Path(__file__).with_name(template).read_text(encoding="utf-8")
    return re.sub(r"MODEL|@(\w+)@", lambda found: str(parts[found[1] or found[0]]), text)


def header(image: Image, said: Sequence[str] = ()) -> str:
    """The face of an artefact for C, with what is said about it."""
    inputs = [
        f"    const {item_type(image, each)} *{each.name}; /* {_row(each)} */"
        for each in image.inputs
    ]
    outputs = list[str]()
    labels = ""
    for each in image.outputs:
        more = ""
        if each.labels:
            table = f"{image.name}_{each.name}_labels"
            texts = ", ".join(map(literal, each.labels))
            labels += f"static const char *const {table}[] = {{{texts}}};\n\n"
            more = f", an index of {table}"
        outputs.append(f"    {item_type(image, each)} *{each.name}; /* {_row(each)}{more} */")
    text = "/* UTF-8 and its bytes; a size of -1 is None, a smaller one NaN. */\n"
    text += f"typedef struct {{ const char *data; int64_t size; }} {image.name}_text;\n\n"
    inputs += ["    size_t longest; /* no text has more bytes */"] * image.texts
    return filled(
        "model.h",
        image,
        SAID="".join(f"\n/* {line} */" for line in said),
        TEXT=text * image.texts,
        INPUTS="\n".join(inputs),
        OUTPUTS="\n".join(outputs),
        LABELS=labels,
    )


def item_type(image: Image, each: CallerArray) -> str:
    """The type in C of a caller's values."""
    return f"{image.name}_text" if each.dtype == "string" else c_type(KINDS[each.dtype])


def literal(text: str) -> str:
    """The text as C's, in UTF-8."""
    plain = (chr(byte) if chr(byte) in _PLAIN else f"\\{byte:03o}" for byte in text.encode())
    return f'"{"".join(plain)}"'


_PLAIN = frozenset(map(chr, range(32, 127))) - {'"', "\\", "?"}


def _row(each: CallerArray) -> str:
    label = re.sub(r"[^\w .-]", "_", each.label)
    kind = "a value" if each.width == 1 else f"{each.width} values"
    return f"{label}: {kind} for each row"


def source(image: Image) -> str:
    """The whole of an artefact in C."""
    vocabulary = c_words.vocabulary(single=image.single)
    functions: dict[str, ast.FunctionDef] = {}
    for name, text in image.functions.items():
        lacking = missing(text, {*vocabulary, *image.functions})
        if lacking:
            raise NotExportable(f"`{lacking}` has no form in C", where=name, hint="to='so' has one")
        functions[name] = definition(text, name, {*image.functions, "ld_pointer"})
    module = CModule({**vocabulary, **{name: _call(each) for name, each in functions.items()}})
    try:
        for each in functions.values():
            module.function(each, (INT64,) * len(each.args.args))
    except Mismatch as problem:
        raise NotExportable("this program has no form in C", found=str(problem)) from problem
    used, texts = [*module.used], [*module.structs.values(), *module.functions]
    if image.single:
        used, texts = ([*dict.fromkeys(map(small.narrowed, each))] for each in (used, texts))
    code = [*map(c_words.helper, used), *texts, *_parameters(image), _table(image)]
    columns = [f"input->{each.name}" for each in image.inputs]
    columns += [f"output->{each.name}" for each in image.outputs]
    return filled(
        "model.c",
        image,
        CODE="\n".join(code),
        COLUMNS=",\n        ".join(f"(int64_t)(intptr_t){column}" for column in columns),
        LONGEST="(int64_t)input->longest" if image.texts else "0",
    )


def _call(called: ast.FunctionDef) -> CWord:
    """A call of another function of the image."""
    return lambda code, given: code.routine(called, [converted(each, INT64) for each in given])


def _parameters(image: Image) -> Iterator[str]:
    for number, blob in enumerate(image.parameters):
        array = _plain(blob.array.reshape(-1))
        kind = "uint8_t" if array.dtype == bool else c_type(KINDS[str(array.dtype)])
        items = array.astype(np.uint8) if array.dtype == bool else array
        size = f"{array.size or 1} + {0 if image.single else _BEHIND // array.itemsize}"
        texts = [constant(item).text for item in items.tolist()] or ["0"]
        lines = [", ".join(texts[k : k + 8]) for k in range(0, len(texts), 8)]
        yield f"static const {kind} parameter_{number}[{size}] = {{"
        yield "    " + ",\n    ".join(lines) + "\n};\n"


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Numbers that C can spell: the bits of floats that are no usual numbers."""
    if array.dtype.kind != "f":
        return array
    usual = np.isfinite(array) & ((array == 0) | (np.abs(array) >= np.finfo(array.dtype).tiny))
    return array if usual.all() else array.view(f"u{array.dtype.itemsize}")


def _table(image: Image) -> str:
    """The stages' parameter tables: eight bytes for each, the lower ones first."""
    index = {blob: place for place, blob in enumerate(image.parameters)}
    words = [
        f"{{{constant(word).text}}}"
        if isinstance(word, int)
        else f"{{.address = parameter_{index[word]}}}"
        for word in image.table or (0,)
    ]
    lines = [", ".join(words[k : k + 4]) for k in range(0, len(words), 4)]
    head = (
        "static const union {\n    int64_t number;\n    const void *address;\n} table[] = {\n    "
    )
    return head + ",\n    ".join(lines) + "\n};\n"


def arrow(image: Image) -> str:
    """A header by which the artefact takes rows of Arrow's C data interface."""
    known, columns, inputs = image.plan.reader.nulls.learn().nan, list[str](), list[str]()
    for k, each in enumerate(image.inputs):
        kind = item_type(image, each)
        inputs.append(f"(const {kind} *)(void *)at[{k}]")
        letter = "tn"[each.label in known] if each.dtype == "string" else each.dtype[0]
        columns.append(f"{{{literal(each.label)}, '{letter}', sizeof({kind}), {each.width}}}")
    outputs = (f"output->{each.name} + {each.width} * done" for each in image.outputs)
    return filled(
        "arrow.h",
        image,
        COUNT=len(columns),
        COLUMNS=", ".join(columns),
        INPUTS=", ".join([*inputs, *["longest"] * image.texts]),
        OUTPUTS=", ".join(outputs),
        REAL="float" if image.single else "double",
    )


def write_faces(image: Image, folder: Path, said: Sequence[str] = ()) -> list[Path]:
    """Write the header, and that for Arrow."""
    made = [folder / f"{image.name}.h", folder / f"{image.name}_arrow.h"]
    made[0].write_text(header(image, said), encoding="utf-8")
    made[1].write_text(arrow(image), encoding="utf-8")
    return made


def write_c(image: Image, folder: Path) -> list[Path]:
    """Write the headers and the source."""
    face, more = write_faces(image, folder)
    made = folder / f"{image.name}.c"
    made.write_text(source(image), encoding="utf-8")
    return [face, made, more]
