"""Exports: artefacts answer with the portable plan's bits, and say why there is none."""

from __future__ import annotations

import ctypes
import json
import math
import re
import subprocess
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pandas as pd
import pytest

import oven
from flour.core.types import Vector
from flour.language.flow import outputs, source
from oven.compiler import portable
from oven.compiler.intrinsics.base import Routine
from oven.errors import NotExportable
from oven.export import export, image, replay, scalar_words, targets
from oven.export.c_file import header
from tests.lowered import ours
from tests.oven.export import models

pytestmark = pytest.mark.once


# --- functions in Python, and words for single numbers -------------------------------------------


@pytest.mark.parametrize(
    ("name", "low", "high", "units"),
    [("expm1", -40, 700, 4), ("log1p", -0.999, 1e6, 4), ("log2", 1e-300, 1e300, 3)],
)
def test_functions_are_close_to_the_truth(name: str, low: float, high: float, units: int) -> None:
    rng = np.random.default_rng(1)
    far, near = rng.uniform(low, high, 500), rng.uniform(-0.4, 0.4, 500) + (name == "log2") * 1.0
    values = np.concatenate([far, near])
    made = np.array([portable.OWN[name](value) for value in values])
    truth = getattr(np, name)(values.astype(np.longdouble))
    assert np.max(np.abs(made - truth) / np.spacing(np.abs(truth.astype(float)))) < units


def test_powers_and_remainders() -> None:
    rng = np.random.default_rng(2)
    for a, b in rng.normal(size=(500, 2)):
        base, exponent = np.exp(3 * a), 10 * b
        truth = np.longdouble(base) ** np.longdouble(exponent)
        made = portable.OWN["pow"](base, exponent)
        assert abs(made - truth) <= 4 * np.spacing(float(truth))
    by_c = ctypes.CDLL(find_library("m")).pow
    by_c.restype, by_c.argtypes = ctypes.c_double, [ctypes.c_double] * 2
    odd = [0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 0.5, math.inf, -math.inf, math.nan, 5e-324, 2.0**53]
    with np.errstate(all="ignore"):
        for a in map(np.float64, odd):
            for b in map(np.float64, odd):
                same(portable.OWN["pow"](a, b), by_c(a, b))
                same(portable.OWN["fmod"](a, b), np.fmod(a, b))


def same(made: float, wanted: float) -> None:
    """Equal up to the last place, with the sign of zero; or both NaN."""
    if math.isnan(wanted):
        assert math.isnan(made)
    else:
        assert made == pytest.approx(wanted, rel=1e-15, abs=0)
        assert math.copysign(1, made) == math.copysign(1, wanted)


@pytest.mark.parametrize("name", ["copy_small", "bytes_within", "odd_bytes", "seek_slots"])
def test_words_for_single_numbers(name: str) -> None:
    """A word in Python has the bits of the one of vectors."""
    given = {"copy_small": "w, w + 64, 32", "bytes_within": "w, 65, 25", "odd_bytes": "w"}
    call = f"{name}({given.get(name, 'w, 0, 3')})"
    text = f"def f(w, floats, n, made):\n    st_int64(made, 0, {call})\n    return 0\n"
    rng = np.random.default_rng(3)
    single = _compiled(text, {each.__name__: Routine(each) for each in scalar_words.WORDS})
    for _ in range(20):
        memory = rng.integers(0, 256, 256).astype(np.uint8)
        found = []
        for function in (ours(text, "f"), single):
            held, made = memory.copy(), np.zeros(1, np.int64)
            function(held.ctypes.data, 0, 1, made.ctypes.data)
            found.append((made[0], held.tobytes()))
        assert found[0] == found[1]


def _compiled(text: str, words: Any) -> Callable[..., int]:
    import llvmlite.binding as llvm

    from oven.compiler import machine
    from oven.compiler.kinds import INT64
    from oven.compiler.native import optimised

    name = "single_" + re.findall(r"0, (\w+)\(", text)[0]
    module = portable.module(words)
    definition = portable.definition(text, name, words)
    function, _ = module.write(definition, name, (INT64,) * 4)
    code = machine.target_machine().emit_object(optimised(llvm.parse_assembly(str(module.llvm))))
    return machine.STAGE(machine.load(bytes(code), function.name))


# --- C -------------------------------------------------------------------------------------------


@pytest.mark.apart
def test_c(tmp_path: Path) -> None:
    """Strict C99, verified and told apart by what it is made of."""
    plan, rows = models.fitted("logistic")
    made = export(plan, tmp_path, to="c", name="my model", rows=rows[:100], outputs=["label"])
    assert [each.name for each in made.files] == ["my_model.h", "my_model.c", "my_model_arrow.h"]
    assert (made.rows, plan.digest in made.about) == (100, False), "a plan of one output"
    face, text, _ = (each.read_text(encoding="utf-8") for each in made.files)
    assert "const double *X; /* X: 6 values for each row */" in face
    assert r'my_model_label_labels[] = {"no", "perhaps", "\303\247a"};' in face
    assert "probabilities" not in face
    assert not re.search(r"\b(malloc|free|printf|exp|log|pow|tanh)\(", text)


def test_an_artefact_with_other_bits_is_not_handed_out() -> None:
    made = image.image_of(_small(), "m", "1")
    sample = replay.sample_of(made, _small(), np.ones((50, 4), np.float32))
    answers = {name: column.copy() for name, column in sample.outputs.items()}
    assert replay.check(made, sample, answers).rows == 50
    answers["low"][7, 1] = np.nextafter(answers["low"][7, 1], np.float32(2))
    with pytest.raises(NotExportable, match="was not handed out") as caught:
        replay.check(made, sample, answers)
    assert caught.value.where == "output 'low', row 7"


def test_identifiers() -> None:
    taken: list[str] = []
    for text in ("age", "AGE", "for", "n items", "n-items", "1st", "ça", "", "日本", "age"):
        taken.append(image.identifier(text, taken))
    assert taken[:6] == ["age", "AGE", "for_", "n_items", "n_items_1", "_1st"]
    assert taken[6:] == ["a", "column", "column_1", "age_1"]


# --- what is refused -----------------------------------------------------------------------------


def _small() -> oven.Plan:
    x = source("x", Vector(4, "float32"))
    return oven.bake(outputs(grown=x.exp().log1p(), low=x.abs().sqrt()))


def _sine() -> oven.Plan:
    x = source("x", Vector(3, "float64"))
    return oven.bake(outputs(value=x.log(), wave=x.sin()))


def _sparse() -> oven.Plan:
    x = source("x", Vector(300, "float64", sparse=True))
    return oven.bake(outputs(value=x.abs()))


@pytest.mark.parametrize(
    ("make", "how", "said"),
    [
        (_sine, {}, "Sin cannot be exported: `sin` is not computed with the same bits"),
        (_sine, {"outputs": ["nothing"]}, "there is no such output"),
        (_sine, {"to": "exe"}, "there is no such form of an export"),
        (_sine, {"to": "c", "target": "aarch64-linux-gnu"}, "a target is that of a shared library"),
        (
            lambda: models.fitted("logistic").plan,
            {"target": "riscv64-linux-gnu"},
            "shared libraries are made for x86-64",
        ),
        (_sparse, {}, "sparse vectors are not passed on in exports"),
    ],
)
def test_refused(
    make: Callable[[], oven.Plan], how: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(NotExportable, match=re.escape(said)):
        export(make(), tmp_path / "out", verify=False, **how)
    assert not (tmp_path / "out").exists()


def test_a_part_of_a_refused_plan(tmp_path: Path) -> None:
    made = export(_sine(), tmp_path, to="c", outputs=["value"], verify=False)
    assert made.rows == 0
    assert all(each.is_file() for each in made.files)


# --- every family, every form --------------------------------------------------------------------

_FAMILIES = [
    *(
        "logistic",
        "power",
        "spline",
        "lightgbm",
        "categories",
        "xgboost",
        "forest",
        "text",
        "table",
    ),
    *("neighbours", "svm", "mlp"),
]
_TOOLS = {"c": "cc", "so": "cc", "npm": "node"}


@pytest.mark.apart
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("to", _TOOLS)
@pytest.mark.parametrize("name", _FAMILIES)
def test_bits(name: str, to: Any, tmp_path: Path) -> None:
    if which(_TOOLS[to]) is None or (to == "npm" and which("wasm-ld") is None):
        pytest.skip(f"{to} needs a tool that is not installed")
    plan, rows = models.fitted(name)
    made = export(plan, tmp_path, to=to, name=name, rows=rows)
    assert made.rows == models.COUNT
    assert made.away < 1e-7, "as far as single rounding is from double"
    made_up = export(plan, tmp_path, to=to, name=name)
    assert made_up.rows > 0


@pytest.mark.apart
@pytest.mark.parametrize("name", ["forest", "text", "table"])
def test_sanitizers(name: str, tmp_path: Path) -> None:
    """No undefined behaviour, on rows that are well and rows that are not."""
    if which("gcc") is None:
        pytest.skip("gcc is not installed")
    plan, _ = models.fitted(name)
    export(plan, tmp_path, to="c", name="m", verify=False)
    main = tmp_path / "main.c"
    main.write_text(HOSTILE[name != "forest"], encoding="utf-8")
    binary = tmp_path / "main"
    strict = ["-std=c99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    strict += ["-Wall", "-Wextra", "-Werror"]
    command = ["gcc", *strict, *_COLUMNS[name], str(main), str(tmp_path / "m.c"), "-lm"]
    subprocess.run([*command, "-o", str(binary)], check=True, timeout=120)
    done = subprocess.run([binary], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "codes 0" in done.stdout, "some rows are answered"


#: Texts of random bytes, cut characters among them; numbers of every kind.
HOSTILE = (
    """
#include "m.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    double x[6], p[3]; int64_t label; int seen[4] = {0};
    void *scratch = malloc(m_scratch_size(0));
    for (int k = 0; k < 20000; k++) {
        for (int j = 0; j < 6; j++) {
            uint64_t bits = 0;
            for (int b = 0; b < 8; b++) bits = bits << 8 | (uint64_t)(rand() & 255);
            memcpy(&x[j], &bits, 8);
            if (rand() % 3) x[j] = rand() % 100 - 50;
        }
        m_input in = {x}; m_output out = {.label = &label, .probabilities = p};
        int code = m_predict(&in, &out, 1, scratch);
        seen[code]++;
        if (code == 0 && (label < 0 || label > 2)) return 1;
    }
    free(scratch);
    return !printf("codes %d %d\\n", seen[0] > 0 ? 0 : 9, seen[1]);
}
""",
    """
#include "m.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    int seen[4] = {0};
    for (int k = 0; k < 20000; k++) {
        int64_t size = rand() % 70;
        char *data = malloc(size ? (size_t)size : 1);
        for (int64_t j = 0; j < size; j++)
            data[j] = (char)(rand() % 4 ? "aé film, Straße"[rand() % 15] : rand());
        if (k % 3 == 0) for (int64_t j = 0; j < size; j++) data[j] = "good film"[j % 9];
        size_t longest = rand() % 50 ? 70 : 20;
        void *scratch = malloc(m_scratch_size(longest));
        double number[2] = {1, 2}, scores[3], p[3]; int64_t label;
        m_text text = {data, rand() % 9 ? size : -1 - rand() % 3};
        (void)number;
        m_input in = INPUT; m_output out = {&label, p, scores};
        int code = m_predict(&in, &out, 1, scratch);
        seen[code]++;
        if (code == 0 && (label < 0 || label > 2)) return 1;
        free(data); free(scratch);
    }
    printf("codes %d %d %d\\n", seen[0] > 100 ? 0 : 9, seen[2], seen[3]);
    return !(seen[2] && seen[3]);
}
""",
)
_COLUMNS = {
    "forest": [],
    "text": ["-DINPUT={&text,longest}"],
    "table": ["-DINPUT={number,number+1,&text,longest}"],
}


@pytest.mark.apart
def test_a_package_in_node(tmp_path: Path) -> None:
    """Columns by name, as arrays or typed arrays; errors say which column is wrong."""
    if which("node") is None or which("wasm-ld") is None:
        pytest.skip("node or wasm-ld is not installed")
    plan, rows = models.fitted("table")
    export(plan, tmp_path, to="npm", name="churn", version="2.1")
    few = rows.iloc[:5]
    wanted = plan.run(few)
    columns = {name: [_plain(v) for v in few[name]] for name in few}
    (tmp_path / "rows.json").write_text(json.dumps(columns), encoding="utf-8")
    (tmp_path / "main.mjs").write_text(_CALLER, encoding="utf-8")
    done = subprocess.run(
        ["node", "main.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["label"] == wanted["label"].tolist()
    assert np.allclose(answer["probabilities"], wanted["probabilities"].reshape(-1), rtol=1e-12)
    assert answer["errors"] == [
        "column age is missing, or no array",
        "column for: 1 values, not 5 rows of 1",
        "column age: old is not a number of its type",
    ]
    assert answer["version"].startswith("churn 2.1, plan ")
    assert json.loads((tmp_path / "package.json").read_text("utf-8"))["version"] == "2.1.0"
    assert '"label": ("no" | "perhaps" | "\\u00e7a")[];' in (tmp_path / "index.d.ts").read_text()


def _plain(value: Any) -> Any:
    return None if value is None or pd.isna(value) else value


_CALLER = """
import { readFileSync } from "node:fs";
import { load } from "./index.js";
const rows = JSON.parse(readFileSync("rows.json", "utf8"));
const model = await load();
for (let k = 0; k < 50; k++) model.predict({ ...rows, "n items": new Float64Array(5) });
const { label, probabilities } = model.predict(rows);
const errors = [{}, { for: ["x"] }, { age: ["old", 1, 2, 3, 4] }].map((change, k) => {
  try {
    model.predict(k === 0 ? {} : { ...rows, ...change });
  } catch (error) {
    return error.message;
  }
});
const version = model.version;
console.log(JSON.stringify({ label, probabilities: [...probabilities], errors, version }));
"""


@pytest.mark.apart
@pytest.mark.parametrize("name", ["lightgbm", "table", "text"])
def test_aarch64(name: str, tmp_path: Path) -> None:
    """A library for 64-bit ARM has the bits of this machine's, under qemu."""
    compiler = "aarch64-linux-gnu-gcc"
    if which(compiler) is None or which("qemu-aarch64") is None:
        pytest.skip("qemu-user or a C compiler for aarch64 is not installed")
    plan, rows = models.fitted(name)
    made = export(plan, tmp_path, name="m", target="aarch64-linux-gnu")
    assert made.rows == 0, "nothing here runs it"
    few = image.image_of(plan, "m", "1")
    sample = replay.sample_of(few, plan, rows[:500])
    main = tmp_path / "main.c"
    main.write_text(_dumped(few, sample), encoding="utf-8")
    command = [compiler, "-O1", str(main), str(tmp_path / "m.so"), "-o", str(tmp_path / "run")]
    subprocess.run([*command, f"-Wl,-rpath,{tmp_path}"], check=True, timeout=120)
    run = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", str(tmp_path / "run")]
    done = subprocess.run(run, capture_output=True, check=True, timeout=120)
    start, answers = 0, {}
    for each in few.outputs:
        column = sample.outputs[each.name]
        answers[each.name] = np.frombuffer(done.stdout[start:], column.dtype, column.size)
        start += column.nbytes
    assert replay.check(few, sample, answers).rows == 500


def _dumped(made: image.Image, sample: replay.AnsweredRows) -> str:
    """A program that has the sample in it and writes the answers."""
    lines = ['#include "m.h"', "#include <stdio.h>", "#include <stdlib.h>"]
    lines.append(f"static const unsigned char text[] = {_bytes(sample.text)};")
    for each in made.inputs:
        array = sample.inputs[each.name]
        lines.append(f"static _Alignas(16) unsigned char in_{each.name}[] = {_bytes(array)};")
    for each in made.outputs:
        size = sample.outputs[each.name].nbytes
        lines.append(f"static _Alignas(16) unsigned char out_{each.name}[{size}];")
    lines.append("int main(void) {")
    for each in made.inputs:
        if each.dtype == "string":
            lines.append(f"    for (int k = 0; k < {sample.inputs[each.name].shape[0]}; k++)")
            lines.append(f"        ((int64_t *)in_{each.name})[2 * k] += (int64_t)text;")
    longest = [str(sample.longest)] if made.texts else []
    given = ", ".join([*(f"(void *)in_{each.name}" for each in made.inputs), *longest])
    lines.append(f"    m_input in = {{{given}}};")
    lines.append(
        f"    m_output out = {{{', '.join(f'(void *)out_{e.name}' for e in made.outputs)}}};"
    )
    lines.append(f"    void *scratch = malloc(m_scratch_size({sample.longest}));")
    lines.append(f"    if (m_predict(&in, &out, {sample.rows}, scratch)) return 1;")
    lines += [f"    fwrite(out_{e.name}, 1, sizeof out_{e.name}, stdout);" for e in made.outputs]
    return "\n".join([*lines, "    return 0;", "}", ""])


def _bytes(array: Any) -> str:
    return "{" + ",".join(map(str, array.tobytes())) + "}"


@pytest.mark.apart
def test_a_header_names_every_column() -> None:
    face = header(image.image_of(models.fitted("table").plan, "m", "1"))
    assert re.findall(r"^    .*[*](\w+);", face, re.MULTILINE) == [
        *("age", "n_items", "for_", "label", "probabilities", "scores")
    ]
    assert "size_t longest;" in face


def test_no_linker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(targets, "find_spec", lambda _: None)
    with pytest.raises(NotExportable, match="is needed, and none is installed"):
        targets.link_wasm(tmp_path / "a.o", tmp_path / "a.wasm", [])


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_strict_c(compiler: str, tmp_path: Path) -> None:
    """Programs without a model are exported as well, whatever the width of their numbers."""
    if which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    _, text, _ = export(_small(), tmp_path, to="c", verify=False).files
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-c"]
    strict += ["-o", str(tmp_path / "o")]
    subprocess.run([compiler, *strict, str(text)], check=True, timeout=60)
