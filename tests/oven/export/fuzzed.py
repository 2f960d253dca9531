"""A model in C with an entry for libFuzzer: `scripts/fuzz-exports` compiles and runs it.

    python -m tests.oven.export.fuzzed text FOLDER

The bytes that are tried are a number of columns each of its width, then texts: a byte with the
size, or with what is missing, and so many bytes of memory of their own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from oven.export import export, image
from tests.oven.export import models

_HEAD = """\
#include "m.h"
#include <stdlib.h>
#include <string.h>
static const uint8_t *at; static size_t left;
static void take(void *into, size_t size) {
    memset(into, 0, size);
    size_t some = size < left ? size : left;
    if (some) memcpy(into, at, some);
    at += some; left -= some;
}
"""
_TEXTS = """\
static void text(m_text *cell, size_t *longest) {
    uint8_t size; take(&size, 1);
    cell->data = NULL; cell->size = size < 250 ? -1 : -2;
    if (size >= 200) return;
    if (size > left) size = (uint8_t)left;
    cell->data = malloc(size ? size : 1); cell->size = size;
    take((void *)cell->data, size);
    if (size > *longest) *longest = size;
}
"""


def written(name: str, folder: Path) -> None:
    """Write the model of this name, and what feeds it."""
    plan = models.fitted(name).plan
    export(plan, folder, to="c", name="m", verify=False)
    made = image.image_of(plan, "m", "1")
    before, after = list[str](), list[str]()
    for each in made.inputs:
        if each.dtype == "string":
            before.append(f"    m_text {each.name}; text(&{each.name}, &longest);")
            after.append(f"    free((void *){each.name}.data);")
        else:
            kind = "double" if each.dtype == "float64" else f"{each.dtype}_t"
            before.append(f"    {kind} {each.name}[{each.width}];")
            before.append(f"    take({each.name}, sizeof {each.name});")
    given = [f"&{each.name}" if each.dtype == "string" else each.name for each in made.inputs]
    given += ["longest - (mode == 1 && longest)"] * made.texts
    room = [f"out_{each.name}[{each.row_bytes // 8 or 1}]" for each in made.outputs]
    lines = [
        "int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {",
        "    at = data; left = size;",
        "    size_t longest = 0; uint8_t mode; take(&mode, 1); (void)longest;",
        *before,
        f"    int64_t {', '.join(room)};",
        f"    m_input in = {{{', '.join(given)}}};",
        f"    m_output out = {{{', '.join(f'(void *)out_{each.name}' for each in made.outputs)}}};",
        "    void *scratch = malloc(m_scratch_size(longest));",
        "    int code = m_predict(&in, &out, 1, scratch);",
        "    if (code < 0 || code > 3) abort();",
        *(f"    if (!code && (uint64_t)out_{each.name}[0] >= {len(each.labels)}) abort();"
          for each in made.outputs if each.labels),
        *after,
        "    free(scratch);",
        "    return 0;",
        "}",
    ]  # fmt: skip
    text = _HEAD + _TEXTS * made.texts + "\n".join(lines) + "\n"
    (folder / "fuzz.c").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    written(sys.argv[1], Path(sys.argv[2]))
