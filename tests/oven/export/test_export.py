"""Exports: artefacts answer with the portable plan's bits, and say why there is none."""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pandas as pd
import pytest

import flour
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
    replay.check(made, sample, answers)
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


def _words() -> oven.Plan:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(TfidfVectorizer(tokenizer=str.split, token_pattern=None), Ridge())
    return oven.bake(flour.from_sklearn(model.fit(["a b", "b c"], [0, 1]), allow_python=True))


def _targets() -> oven.Plan:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multioutput import MultiOutputClassifier

    model = MultiOutputClassifier(LogisticRegression())
    return oven.bake(flour.from_sklearn(model.fit([[0.0], [1.0]], [["a", "x"], ["b", "y"]])))


def _compared() -> oven.Plan:
    x = source("x", Vector(2))
    return oven.bake(x.arg_max().take(["a", "b"]) == flour.category("word"))


@pytest.mark.parametrize(
    ("make", "how", "said"),
    [
        (_sine, {}, "Sin cannot be exported: `sin` is not computed with the same bits"),
        (_sine, {"outputs": ["nothing"]}, "there is no such output"),
        (_sine, {"to": "exe"}, "there is no such form of an export"),
        (_sine, {"cpus": ["x86-64-v4-vbmi"]}, "no library chooses such code"),
        (
            _sine,
            {"to": "c", "target": "aarch64-linux-gnu"},
            "targets and CPUs are for shared libraries",
        ),
        (
            lambda: models.fitted("logistic").plan,
            {"target": "riscv64-linux-gnu"},
            "shared libraries are made for x86-64",
        ),
        (_sparse, {}, "sparse vectors are not passed on in exports"),
        (_words, {}, "step 'tfidfvectorizer' cannot be exported: it calls Python"),
        (_targets, {}, "output 'label' cannot be exported: labels of several targets"),
        (_targets, {}, "hint   export outputs that do not need it: probabilities_0"),
        (_compared, {}, "SameText cannot be exported: it reads labels as texts"),
        *((_sine, {"name": name}, "cannot have this name") for name in (None, "日本", "x" * 101)),
        (_sine, {"version": 5}, "version=5"),
        (_sine, {"outputs": 5}, "outputs=5"),
        (_sine, {"outputs": [5]}, "outputs=[5]"),
        (_small, {"rows": np.ones((0, 4)), "verify": True}, "there are no rows to verify"),
    ],
)
def test_refused(
    make: Callable[[], oven.Plan], how: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(NotExportable, match=re.escape(said)):
        export(make(), tmp_path / "out", **{"verify": False, **how})
    assert not (tmp_path / "out").exists()


def test_foreign_files_stay(tmp_path: Path) -> None:
    """Files of an export may be written anew; nothing else, and nothing is half done."""
    for version in "12":
        export(_sine(), tmp_path, to="c", outputs=["value"], verify=False, version=version)
    (tmp_path / "iris.c").write_text("int main;", "utf-8")
    (tmp_path / "folder.c").mkdir()
    os.mkfifo(tmp_path / "pipe.c")
    (tmp_path / "link.c").symlink_to(tmp_path / "nowhere")
    (tmp_path / "ended.c").touch()
    export(_sine(), tmp_path, to="c", name="ended", outputs=["value"], verify=False)
    before = sorted(tmp_path.iterdir())
    for name in ("iris", "folder", "pipe", "link"):
        with pytest.raises(NotExportable, match=r"no export has written") as caught:
            export(_sine(), tmp_path, to="c", name=name, outputs=["value"], verify=False)
        assert caught.value.where == str(tmp_path / f"{name}.c")
    assert (sorted(tmp_path.iterdir()), (tmp_path / "iris.c").read_text()) == (before, "int main;")


def test_a_compiler_that_fails_is_quoted_by_its_errors() -> None:
    script = "import sys; print('x: error: no such cpu\\nnote: there are\\n a\\n b'); sys.exit(1)"
    with pytest.raises(NotExportable) as caught:
        targets.run([sys.executable, "-c", script], "it")
    assert caught.value.found == "x: error: no such cpu"


@pytest.mark.skipif(which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("name", ["pz", "pz_copy", "copy", "run", "stage_0"])
def test_names_beside_those_inside(name: str, tmp_path: Path) -> None:
    word = flour.category("word").categorise_text(["a"], [5], [0, 1], [1], [2], [3])
    assert export(oven.bake(outputs(value=word)), tmp_path, to="c", name=name).rows == 200


def test_a_part_of_a_refused_plan(tmp_path: Path) -> None:
    made = export(_sine(), tmp_path, to="c", outputs="value", verify=False)
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
    if (m_scratch_size(SIZE_MAX) != m_scratch_size((size_t)1 << 50)) return 2;
    for (int k = 0; k < 2; k++) { /* half of a surrogate pair; longer than any text may be */
        double number[2] = {1, 2}, scores[3], p[3]; int64_t label;
        size_t longest = k ? SIZE_MAX : 70;
        m_text text = {"\\355\\240\\200", k ? (int64_t)1 << 41 : 3};
        void *scratch = malloc(m_scratch_size(70));
        m_input in = INPUT; m_output out = {&label, p, scores};
        if (m_predict(&in, &out, 1, scratch) != 3 - k) return 3;
        (void)number; free(scratch);
    }
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
    whole = outputs(value=source("x", Vector(4, "int8")).cast("float64"))
    export(oven.bake(whole), tmp_path / "whole", to="npm")
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
        "column x: 300 is not a number of its type",
        "column x: 6 values, not 1 rows of 4",
    ]
    assert answer["version"].startswith("churn 2.1, plan ")
    assert json.loads((tmp_path / "package.json").read_text("utf-8"))["version"] == "2.1.0"
    assert '"label": ("no" | "perhaps" | "\\u00e7a")[];' in (tmp_path / "index.d.ts").read_text()


@pytest.mark.apart
def test_values_that_a_package_takes(tmp_path: Path) -> None:
    """Numbers that JavaScript's own are too short for, what is missing, and what is no value."""
    if which("node") is None or which("wasm-ld") is None:
        pytest.skip("node or wasm-ld is not installed")
    kinds = {"id": flour.Scalar("int64"), "flag": flour.Scalar("bool")}
    row = flour.record("row", {**kinds, **dict.fromkeys(("c", "both"), flour.Category("string"))})
    c, both = (
        row[name].categorise_text(["a"], [5], [0, 1], [none], [2], [3])
        for name, none in {"c": 3, "both": 1}.items()
    )
    flag, total = row["flag"].cast("int64"), source("v", Vector(4)).sum()
    made = outputs(id=row["id"] + 0, flag=flag, c=c, both=both, total=total)
    rows = pd.DataFrame({"id": [2**53 + 1, -(2**63) + 5, 3], "flag": [True, False, True]})
    rows = rows.assign(**dict.fromkeys(("c", "both"), np.array(["a", None, np.nan], object)))
    plan, data = oven.bake(made, background=False), {"row": rows, "v": np.ones((3, 4))}
    assert export(plan, tmp_path, to="npm", rows=data).rows == 3
    (tmp_path / "main.mjs").write_text(_TAKEN, encoding="utf-8")
    command = ["node", "main.mjs"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    wrong = " is not a number of its type"
    assert done.stdout.decode().splitlines() == [
        "9007199254740993 1 5 5 10",
        "-9007199254740991 0 2 1 NaN",
        "3 1 2 1 10",
        "3 1 2 2 10",
        "RangeError column v: row 0 has 5 values where 4 values go",
        "RangeError column v: row 1 has no array where 4 values go",
        "RangeError column v: row 0 has 0 values where 4 values go",
        *["TypeError column v is missing, or no array"] * 2,
        *(f"TypeError column c: {said} is no text" for said in ("5", '["Bern"]', '{"a":1}')),
        r'TypeError column c: "\ud800" is no text',
        *[f"TypeError column flag: 2{wrong}"] * 2,
        f"TypeError column id: {2**53}{wrong}, which is exact as a BigInt only",
    ]


_TAKEN = """
import { load } from "./index.js";
const model = await load();
const usual = { id: [3], flag: [true], c: ["a"], both: ["a"], v: [[1, 2, 3, 4]] };
const asked = [
  { id: [9007199254740993n] },
  { id: [-9007199254740991], flag: [0], c: [null], both: [null], v: [[1, 2, 3, null]] },
  { c: [undefined], both: [undefined], v: new Float64Array([1, 2, 3, 4]) },
  { c: [NaN], both: [NaN] },
  { v: [[1, 2, 3, 4, 5], [1, 2, 3]] },
  { v: [[1, 2, 3, 4], 5] },
  { v: [[], [1, 2, 3, 4]] },
  { v: 5 },
  { v: { a: 1 } },
  ...[5, ["Bern"], { a: 1 }, "\\ud800"].map((value) => ({ c: [value] })),
  { flag: [2] },
  { flag: new Uint8Array([2]) },
  { id: [9007199254740992] },
];
for (const input of asked) {
  try {
    const { id, flag, c, both, total } = model.predict({ ...usual, ...input });
    console.log(String(id[0]), flag[0], c[0], both[0], total[0]);
  } catch (error) {
    console.log(error.name, error.message);
  }
}
"""


def _plain(value: Any) -> Any:
    return None if value is None or pd.isna(value) else value


_CALLER = """
import { readFileSync } from "node:fs";
import { load } from "./index.js";
import { load as loadWhole } from "./whole/index.js";
const rows = JSON.parse(readFileSync("rows.json", "utf8"));
const [model, whole] = [await load(), await loadWhole()];
for (let k = 0; k < 50; k++) model.predict({ ...rows, "n items": new Float64Array(5) });
const { label, probabilities } = model.predict(rows);
const changes = [{ for: ["x"] }, { age: ["old", 1, 2, 3, 4] }];
const wrong = [[model, {}], ...changes.map((each) => [model, { ...rows, ...each }])];
wrong.push(...[[1, 2, 3, 300], [1, 2, 3, 4, 5, 6]].map((x) => [whole, { x }]));
const errors = wrong.map(([asked, input]) => {
  try {
    asked.predict(input);
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
    """A library for 64-bit ARM answers rows under qemu before it is handed out."""
    if targets.emulator(_ARM) is None:
        pytest.skip("qemu-user or a C compiler for aarch64 is not installed")
    plan, rows = models.fitted(name)
    made = export(plan, tmp_path, name="m", target=_ARM, rows=rows[:500])
    assert (made.rows, made.unseen) == (500, "")


_ARM = "aarch64-linux-gnu"


@pytest.mark.apart
def test_a_processor_that_nothing_here_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if which("ld.lld") is None and which(f"{_ARM}-gcc") is None:
        pytest.skip("a linker for aarch64 is not installed")
    monkeypatch.setattr(targets, "emulator", lambda _: None)
    made = export(models.fitted("logistic").plan, tmp_path, target=_ARM)
    assert made.rows == 0
    assert made.unseen.startswith("there is no qemu-aarch64, or no aarch64-linux-gnu-gcc")
    assert made.files[0].is_file()


@pytest.mark.apart
def test_names_that_languages_have_for_themselves(tmp_path: Path) -> None:
    """Words and macros of C and C++, the header's own field, and no name at all."""
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    names = ["longest", "bool", "class", "linux", "NULL", "*/ x", "ça va"]
    rng = np.random.default_rng(5)
    rows = pd.DataFrame({name: rng.normal(size=60) for name in names})
    rows[""] = rng.choice(np.array(["x", "y"], object), 60)
    coded = ColumnTransformer([("c", OneHotEncoder(), [""])], remainder="passthrough")
    model = make_pipeline(coded, Ridge()).fit(rows, rows["bool"] + (rows[""] == "x"))
    plan = oven.bake(flour.from_sklearn(model, rows), background=False)
    made = export(plan, tmp_path, to="c", name="new", rows=rows)
    assert made.rows == 60
    (tmp_path / "both.cc").write_text('#include "new__arrow.h"\nint main() { return 0; }\n')
    for compiler in filter(which, ("g++", "clang++")):
        command = [compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "both.cc"]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=120)


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
@pytest.mark.parametrize("plan", [_small, lambda: models.fitted("weighted").plan])
def test_strict_c(compiler: str, plan: Callable[[], oven.Plan], tmp_path: Path) -> None:
    """Words of C in all widths of numbers, without assignments of variables to themselves."""
    if which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    _, text, _ = export(plan(), tmp_path, to="c", verify=False).files
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-c"]
    strict += ["-o", str(tmp_path / "o")]
    subprocess.run([compiler, *strict, str(text)], check=True, timeout=60)
