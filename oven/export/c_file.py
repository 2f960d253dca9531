"""An image as a C header, and as a file of C99 that needs memcpy and the mathematical library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oven.compiler.kinds import INT64, KINDS, Mismatch
from oven.compiler.portable import StageWord, missing
from oven.errors import NotExportable
from oven.export import c_words, small
from oven.export.c_code import CFunction, CModule, CValue, c_type, converted
from oven.export.image import CallerArray, Image

#: Zeros behind every array, as whole words of texts are read at its end.
_BEHIND = 64


def header(image: Image, said: Sequence[str] = ()) -> str:
    """The face of an artefact for C, with what is said about it."""
    return "\n".join(_header(image, said)) + "\n"


def _header(image: Image, said: Sequence[str]) -> Iterator[str]:
    name = image.name
    guard = f"PRETZEL_{name.upper()}_H"
    yield from (f"/* {line} */" for line in (image.about, *said))
    yield from (f"#ifndef {guard}", f"#define {guard}", "")
    yield from ("#include <stdbool.h>", "#include <stddef.h>", "#include <stdint.h>", "")
    yield from ("#ifdef __cplusplus", 'extern "C" {', "#endif", "")
    if image.texts:
        yield "/* UTF-8 and its bytes; a size of -1 is None, of -2 NaN. */"
        yield f"typedef struct {{ const char *data; int64_t size; }} {name}_text;"
        yield ""
    yield "typedef struct {"
    for each in image.inputs:
        kind = f"{name}_text" if each.dtype == "string" else c_type(KINDS[each.dtype])
        yield f"    const {kind} *{each.name}; /* {_row(each)} */"
    if image.texts:
        yield "    size_t longest; /* no text has more bytes */"
    yield from (f"}} {name}_input;", "", "typedef struct {")
    for each in image.outputs:
        more = f", an index of {name}_{each.name}_labels" if each.labels else ""
        yield f"    {c_type(KINDS[each.dtype])} *{each.name}; /* {_row(each)}{more} */"
    yield from (f"}} {name}_output;", "")
    for each in image.outputs:
        if each.labels:
            labels = ", ".join(map(literal, each.labels))
            yield f"static const char *const {name}_{each.name}_labels[] = {{{labels}}};"
            yield ""
    yield "/* 0; 1: a row is refused, for NaN or infinity perhaps; 2: a text has over `longest`"
    yield f"   bytes; 3: a text is no UTF-8. A thread's `scratch` has {name}_scratch_size bytes. */"
    yield f"int {name}_predict(const {name}_input *input, {name}_output *output, size_t rows,"
    yield f"{' ' * (len(name) + 13)}void *scratch);"
    yield f"size_t {name}_scratch_size(size_t longest);"
    yield "/* Name, version and digests. */"
    yield f"const char *{name}_version(void);"
    yield from ("", "#ifdef __cplusplus", "}", "#endif", "#endif")


def literal(text: str) -> str:
    """The text as C's, in UTF-8."""
    plain = (chr(byte) if chr(byte) in _PLAIN else f"\\{byte:03o}" for byte in text.encode())
    return f'"{"".join(plain)}"'


_PLAIN = frozenset(map(chr, range(32, 127))) - {'"', "\\", "?"}


def _row(each: CallerArray) -> str:
    label = re.sub(r"[^\w .-]", "_", each.label, flags=re.ASCII)
    kind = "a value" if each.width == 1 else f"{each.width} values"
    return f"{label}: {kind} for each row"


def source(image: Image) -> str:
    """The whole of an artefact in C."""
    vocabulary = dict(c_words.vocabulary(single=image.single))
    words: dict[str, _Calls] = {}
    for name, text in image.functions.items():
        lacking = missing(text, {*vocabulary, *image.functions})
        if lacking:
            raise NotExportable(f"`{lacking}` has no form in C", where=name, hint="to='so' has one")
        words[name] = _Calls(StageWord(text, name, {*image.functions, "ld_pointer"}))
    module = CModule({**vocabulary, **words})
    try:
        for each in words.values():
            module.function(each.definition, (INT64,) * len(each.definition.args.args))
    except Mismatch as problem:
        raise NotExportable("this program has no form in C", found=str(problem)) from problem
    parts = [_HEAD.format(name=image.name, about=image.about)]
    used, texts = [*module.used], [*module.structs.values(), *module.functions]
    if image.single:
        used, texts = ([*dict.fromkeys(map(small.narrowed, each))] for each in (used, texts))
    parts += [*map(c_words.helper, used), *texts]
    parts += [*_parameters(image), _table(image), _entries(image)]
    return "\n".join(parts)


class _Calls:
    """A call of another function of the image."""

    def __init__(self, word: StageWord) -> None:
        self.definition = word.definition

    def write(self, code: CFunction, arguments: Sequence[CValue]) -> CValue:
        """Write the call."""
        given = [converted(each, INT64) for each in arguments]
        name, _ = code.module.function(self.definition, (INT64,) * len(given))
        return CValue(INT64, f"{name}({', '.join(each.text for each in given)})")


def _parameters(image: Image) -> Iterator[str]:
    for number, blob in enumerate(image.parameters):
        array = _plain(blob.array.reshape(-1))
        kind = "uint8_t" if array.dtype == bool else c_type(KINDS[str(array.dtype)])
        items = array.astype(np.uint8) if array.dtype == bool else array
        size = f"{array.size or 1} + {0 if image.single else _BEHIND // array.itemsize}"
        texts = [_number(item) for item in items.tolist()] or ["0"]
        lines = [", ".join(texts[k : k + 8]) for k in range(0, len(texts), 8)]
        yield f"static const {kind} parameter_{number}[{size}] = {{"
        yield "    " + ",\n    ".join(lines) + "\n};\n"


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Numbers that C can spell: the bits of floats that are no usual numbers."""
    if array.dtype.kind != "f":
        return array
    usual = np.isfinite(array) & ((array == 0) | (np.abs(array) >= np.finfo(array.dtype).tiny))
    return array if usual.all() else array.view(f"u{array.dtype.itemsize}")


def _number(item: float | int) -> str:  # noqa: PYI041 (they are told apart here)
    if isinstance(item, float):
        return repr(item)
    if -(1 << 31) < item < 1 << 31:
        return str(item)
    if item == -(1 << 63):
        return "INT64_MIN"
    return f"UINT64_C({item})" if item >= 1 << 63 else f"INT64_C({item})"


def _table(image: Image) -> str:
    """The stages' parameter tables: eight bytes for each, the lower ones first."""
    index = {blob: place for place, blob in enumerate(image.parameters)}
    words = [
        f"{{{_number(word)}}}"
        if isinstance(word, int)
        else f"{{.address = parameter_{index[word]}}}"
        for word in image.table or (0,)
    ]
    lines = [", ".join(words[k : k + 4]) for k in range(0, len(words), 4)]
    head = (
        "static const union {\n    int64_t number;\n    const void *address;\n} table[] = {\n    "
    )
    return head + ",\n    ".join(lines) + "\n};\n"


def _entries(image: Image) -> str:
    name = image.name
    columns = [f"input->{each.name}" for each in image.inputs]
    columns += [f"output->{each.name}" for each in image.outputs]
    words = ",\n        ".join(f"(int64_t)(intptr_t){column}" for column in columns)
    longest = "(int64_t)input->longest" if image.texts else "0"
    return f"""\
int {name}_predict(
    const {name}_input *input, {name}_output *output, size_t rows, void *scratch) {{
    int64_t io[] = {{
        {words}}};
    return (int)pz_run(
        (int64_t)(intptr_t)io, (int64_t)(intptr_t)table, (int64_t)rows,
        (int64_t)(intptr_t)scratch, {longest});
}}

size_t {name}_scratch_size(size_t longest) {{
    return (size_t)pz_scratch_size((int64_t)longest);
}}

const char *{name}_version(void) {{
    return "{image.about}";
}}
"""


def arrow(image: Image) -> str:
    """A header by which the artefact takes rows of Arrow's C data interface."""
    known, columns, inputs = image.plan.reader.nulls.learn().nan, list[str](), list[str]()
    for k, each in enumerate(image.inputs):
        is_text = each.dtype == "string"
        kind = f"{image.name}_text" if is_text else c_type(KINDS[each.dtype])
        inputs.append(f"(const {kind} *)(void *)at[{k}]")
        letter = "tn"[each.label in known] if is_text else each.dtype[0]
        columns.append(f"{{{literal(each.label)}, '{letter}', sizeof({kind}), {each.width}}}")
    outputs = (f"output->{each.name} + {each.width} * done" for each in image.outputs)
    parts = {
        "MODEL": image.name,
        "@ABOUT@": image.about,
        "@COUNT@": str(len(image.inputs)),
        "@COLUMNS@": ", ".join(columns),
        "@INPUTS@": ", ".join([*inputs, *["longest"] * image.texts]),
        "@OUTPUTS@": ", ".join(outputs),
        "@REAL@": "float" if image.single else "double",
    }
    text = Path(__file__).with_name("arrow.h").read_text(encoding="utf-8")
    return re.sub(r"MODEL|@\w+@", lambda found: parts[found[0]], text)


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


_HEAD = """\
/* {about} */
#include "{name}.h"

#include <float.h>
#include <math.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the lower byte of a number comes first"
#endif
#if FLT_EVAL_METHOD != 0 || defined(__FAST_MATH__)
#error "numbers are rounded after every operation: no x87, and no -ffast-math"
#endif
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif
"""
