"""Exports where they are used: in a browser, as commands by WASI, in programs of musl."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pandas as pd
import pytest

import flour
import oven
from flour.language.flow import outputs
from oven.export import export, image, replay, targets
from tests.house import until
from tests.oven.export import models
from tests.runtime.http.test_page import browser

pytestmark = [pytest.mark.integrations, pytest.mark.apart]
_BROWSER = which("chromedriver") and which("wasm-ld")
_CHROMIUM = pytest.mark.skipif(not _BROWSER, reason="no chromedriver or wasm-ld")
_LIBRARY = find_spec("ziglang") or (which("clang") and Path("/usr/include/wasm32-wasi").is_dir())
_WASI = pytest.mark.skipif(not _LIBRARY, reason="no C compiler for WASI")
_TYPED = """
const field = document.querySelector(`[name="${NAME}"]`);
field.value = VALUE;
field.dispatchEvent(new Event("input", { bubbles: true }));
const texts = ({ cells }) => [...cells].slice(0, 2).map((cell) => cell.innerText);
const rows = (id) => [...document.querySelectorAll(`#${id} tr`)].map(texts);
const [answer, shares] = ["answer", "shares"].map((id) => Object.fromEntries(rows(id)));
return { error: document.getElementById("error").innerText, answer, shares };
"""


def typed(ask: Any, name: str, value: str) -> Any:
    """The text of the page once this is typed."""
    return ask(_TYPED.replace("NAME", json.dumps(name)).replace("VALUE", json.dumps(value)))


@_CHROMIUM
def test_the_demo_page_answers_as_one_types(tmp_path: Path) -> None:
    plan, rows = models.fitted("table")
    export(plan, tmp_path, to="npm", name="churn", rows=rows)
    row: dict[str, Any] = {"age": [1.5], "n items": [2], "for": ["x"]}
    with browser((tmp_path / "demo.html").as_uri()) as ask:
        until(lambda: ask("return 'model' in globalThis"))
        usual = float(ask("return document.querySelector('[name=age]').value"))
        said = [typed(ask, name, str(value)) for name, (value,) in row.items()][-1]
        refused, missing = (typed(ask, "age", value)["error"] for value in ("old", ""))
    assert usual == np.sort(rows["age"])[len(rows) // 2]
    wanted, without = plan.run(row), plan.run({**row, "age": [usual]})
    assert (said["error"], said["answer"]["label"], missing) == ("", wanted["label"][0], "")
    share = wanted["probabilities"][0] - without["probabilities"][0]
    found = [float(said["answer"]["probabilities: ça"]), float(said["shares"]["age"])]
    assert found == pytest.approx([wanted["probabilities"][0, 2], share[2]], rel=1e-4)
    assert "old is not a number" in refused


@_CHROMIUM
def test_a_sentiment_pipeline_in_the_browser(tmp_path: Path) -> None:
    """Words are told apart, and a review takes less than a millisecond."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(0)
    words = np.array([f"{a}{b}{c}" for a in "bdfglm" for b in "aeiou" for c in range(700)])
    good = rng.random(6000) < 0.5
    texts = [f"{' '.join(rng.choice(words, 20))} {'good' if each else 'bad'}" for each in good]
    pipeline = make_pipeline(TfidfVectorizer(max_features=20_000), LogisticRegression())
    plan = oven.bake(flour.from_sklearn(pipeline.fit(texts, good)), background=False)
    assert len(pipeline[0].vocabulary_) == 20_000
    export(plan, tmp_path, to="npm", name="reviews", rows=texts[:500], outputs=["scores"])
    (name,) = plan.inputs
    with browser((tmp_path / "demo.html").as_uri()) as ask:
        until(lambda: ask("return 'model' in globalThis"))
        said = typed(ask, name, f"{texts[0]} </script>")
        each = ask(
            f"const texts = {json.dumps(texts[:1000])}, name = {json.dumps(name)}, times = [];"
            "for (let turn = 0; turn < 5; turn++) { times.push(-performance.now());"
            "for (const each of texts) model.predict({ [name]: [each] });"
            "times[turn] += performance.now(); } return Math.min(...times)"  # us each
        )
    strongest, share = max(said["shares"].items(), key=lambda item: abs(float(item[1])))
    assert (strongest, float(share) > 0) == (("good", True) if good[0] else ("bad", False))
    sys.stdout.write(f"\n20,000 terms in Chromium: {each:.1f} us a review\n")
    assert each < 1000


# --- commands ------------------------------------------------------------------------------------

_NODE = """
import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";
const wasi = new WASI({ version: "preview1" });
const module = new WebAssembly.Module(readFileSync(process.argv[2]));
process.exit(wasi.start(new WebAssembly.Instance(module, wasi.getImportObject())));
"""


def commanded(module: Path, rows: str | bytes) -> tuple[int, str, str]:
    """The exit code of a command, its answers, and what it complains about: by two runtimes."""
    script, (given, *said) = module.with_name("run.mjs"), (module.with_name(n) for n in "iae")
    given.write_bytes(rows.encode() if isinstance(rows, str) else rows)
    script.write_text(_NODE, encoding="utf-8")
    run = ["node", "--no-warnings", str(script), str(module)]
    data = given.read_bytes()
    done = subprocess.run(run, input=data, capture_output=True, timeout=120, check=False)
    made = done.returncode, done.stdout.decode(), done.stderr.decode()
    if find_spec("wasmtime") is not None:
        wasmtime = import_module("wasmtime")
        store, config, code = wasmtime.Store(), wasmtime.WasiConfig(), 0
        config.stdin_file, config.stdout_file, config.stderr_file = map(str, (given, *said))
        linker = wasmtime.Linker(store.engine)
        linker.define_wasi()
        store.set_wasi(config)
        program = linker.instantiate(store, wasmtime.Module.from_file(store.engine, str(module)))
        try:
            program.exports(store)["_start"](store)
        except wasmtime.ExitTrap as end:
            code = end.code
        assert (code, *(each.read_text("utf-8") for each in said)) == made
    return made


def same_bits(out: str, name: str, wanted: Any) -> None:
    """Answers in text are these numbers."""
    rows = list(csv.DictReader(StringIO(out)))[: len(wanted)]
    made = np.array([[float(row[f"{name}_{k}"]) for k in range(wanted.shape[1])] for row in rows])
    assert made.tobytes() == np.ascontiguousarray(wanted).tobytes()


@_WASI
def test_a_command_has_the_bits_of_the_plan(tmp_path: Path) -> None:
    """Quoted cells, columns in another order and more of them, missing values, odd words."""
    plan, rows = models.fitted("table")
    (module,) = export(plan, tmp_path, to="wasi", name="churn", rows=rows).files
    few = rows.iloc[:500].copy()
    few.loc[few.index[0], "for"] = 'a "quoted", cell\nof two lines'
    shuffled = few.assign(other='"x"')[["other", "for", "n items", "age"]]
    text = shuffled.to_csv(index=False, lineterminator="\r\n")
    code, out, err = commanded(module, "\ufeff" + text)
    assert (code, err) == (0, "")
    wanted = image.portable_plan(plan).run(few.assign(**{"for": few["for"].fillna(np.nan)}))
    assert [row["label"] for row in csv.DictReader(StringIO(out))] == wanted["label"].tolist()
    for name in ("probabilities", "scores"):
        same_bits(out, name, wanted[name])
    text = 'age,n items,for\n1,2,x\nold,2,x\n1,two,x\n1,2\n\n0x10,2,x\n1,2,"x"y\n,3,\n1,2,"x'
    code, out, err = commanded(module, text)
    said = [line.strip(",") == "" for line in out.splitlines()]
    assert (code, said) == (1, [*(False, False), *(True, True, True, True, True), *(False, True)])
    quotes = "quotes are not closed, or in the middle of a cell"
    assert err.splitlines() == [
        "line 3: column age: this is no value of its type",
        "line 4: column n items: this is no value of its type",
        "line 5: it has not as many cells as the first line",
        "line 7: column age: this is no value of its type",
        *(f"line 8: {quotes}", f"line 10: {quotes}"),
    ]
    missing, twice = "column n items: it is missing", "column age: several have this name"
    for first, told in {"age,for": missing, "age,for,age,n items\n": twice}.items():
        assert commanded(module, first) == (2, "", f"line 1: {told}\n")


@_WASI
def test_numbers_are_read_and_written_to_the_bit(tmp_path: Path) -> None:
    dtypes = {"x": "float64", "small": "int8", "large": "uint64", "flag": "bool"}
    row = flour.record("row", {name: flour.Scalar(each) for name, each in dtypes.items()})
    x, large, flag = row["x"], row["large"].cast("float64"), row["flag"].cast("int64")
    made = outputs(same=x + 0.0, single=x.cast("float32"), s=row["small"] + 0, l=large, f=flag)
    plan = oven.bake(made, background=False)
    (module,) = export(plan, tmp_path, to="wasi", name="same", verify=False).files
    bits = np.random.default_rng(4).integers(-(1 << 63), 1 << 63, 4000)
    texts = [repr(each) for each in bits.view(np.float64).tolist()]
    texts += ["5e-324", "2.5e-324", "1e400", "-inf", "nan", "", " 7 ", "True", "9007199254740993"]
    texts += ["0.1" + "0" * 900 + "1", "179769313486231580793728971405301e277", "1E5", "-0.0"]
    texts += [f"{'9' * digits}.{'3' * digits}e-{digits}" for digits in range(1, 60)]
    rows = [f"{text},-128,18446744073709551615,true" for text in texts]
    rows += ["1,128,1,0", "1,1,-1,0", "1,1,1,2"]
    code, out, err = commanded(module, "\n".join([",".join(dtypes), *rows]))
    refused = [line.split(": ")[1] for line in err.splitlines()]
    assert (code, refused) == (1, ["column small", "column large", "column flag"])
    names, *lines = (line.split(",") for line in out.split())
    assert (names, lines[len(texts) :]) == (["same", "single", "s", "l", "f"], [[""] * 5] * 3)
    whole = {" ".join(each[2:]) for each in lines[: len(texts)]}
    assert whole == {"-128 1.8446744073709552e+19 1"}
    wanted = np.array([float({"": "nan", "True": "1"}.get(text, text)) for text in texts])
    with np.errstate(over="ignore"):
        columns = wanted + 0.0, wanted.astype(np.float32).astype(float)
    for place, truth in enumerate(columns):
        found = np.array([float(line[place]) for line in lines[: len(texts)]])
        same = (found.view(np.int64) == truth.view(np.int64)) | np.isnan(found) & np.isnan(truth)
        assert same.all(), [texts[k] for k in np.flatnonzero(~same)[:5]]


@_WASI
def test_a_first_line_of_numbers_is_a_row(tmp_path: Path) -> None:
    """Where columns go by their order, as `pretzel predict` reads them."""
    plan, rows = models.fitted("logistic")
    (module,) = export(plan, tmp_path, to="wasi", name="m", rows=rows[:50]).files
    text = "".join(" ,".join(map(repr, row)) + "\n" for row in rows[:3].tolist())
    for first in ("", "\ufeff", "a,b,c,d,e,f\n", "1,2,3,4,5,f\n"):
        code, out, err = commanded(module, first + text)
        assert (code, err, out.count("\n")) == (0, "", 4)
        same_bits(out, "scores", image.portable_plan(plan).run(rows[:3])["scores"])
    assert commanded(module, "1,2\n")[2] == (
        "line 1: the model reads another number of columns, by their order\n"
    )


@_WASI
def test_a_command_reads_texts(tmp_path: Path) -> None:
    """Long ones, odd ones; one that is no UTF-8 is refused."""
    plan, rows = models.fitted("text")
    (module,) = export(plan, tmp_path, to="wasi", name="words", rows=rows).files
    texts = [*rows[2:300], 'ｆｕｌｌ, "naïve"\nfilm', "x" * 200_000, ""]
    text = pd.DataFrame({"review": texts}).to_csv(index=False).encode()
    code, out, err = commanded(module, text + b"\xff\n\xed\xa0\x80\n")
    wrong = [f"line {len(texts) + more}: a text is no UTF-8" for more in (3, 4)]
    assert (code, err.splitlines()) == (1, wrong)
    same_bits(out, "scores", image.portable_plan(plan).run(texts)["scores"])


# --- another C library ---------------------------------------------------------------------------

#: Debian's packages, unpacked: where musl is installed, pip takes the machine for one that has it.
_MUSL = Path(__file__).parents[2] / ".cache" / "musl"
_WITH_MUSL = """#!/bin/sh
of=M/usr/lib/x86_64-linux-musl
exec gcc -nostdinc -isystem M/usr/include/x86_64-linux-musl -nostdlib -no-pie \
  $of/crt1.o $of/crti.o "$@" M/lib/x86_64-linux-musl/libc.so $of/crtn.o
"""


@pytest.mark.parametrize("name", ["lightgbm", "table", "text"])
def test_musl(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program of musl loads a library, and C compiled with its headers: the same bits."""
    loader = _MUSL / "lib/x86_64-linux-musl/libc.so"
    if not loader.is_file() or which("gcc") is None:
        pytest.skip("musl is not unpacked in .cache/musl")
    plan, rows = models.fitted(name)
    rows, compiler, triple = rows[:500], tmp_path / "gcc", "x86_64-linux-musl"
    compiler.write_text(_WITH_MUSL.replace("M/", f"{_MUSL.resolve()}/"), encoding="utf-8")
    compiler.chmod(0o755)
    made = export(plan, tmp_path, name="m", target=triple, rows=rows, cpus=["x86-64-v3"])
    export(plan, tmp_path, to="c", name="m", verify=False)
    headers = ["-nostdinc", "-isystem", str(_MUSL / "usr/include/x86_64-linux-musl")]
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
    of_c = tmp_path / "c.so"
    command = ["gcc", *headers, *strict, "-nostdlib", str(tmp_path / "m.c"), "-o", str(of_c)]
    subprocess.run(command, check=True, timeout=120)
    # The program that emulators run is one of musl here.
    monkeypatch.setattr(targets, "is_own", lambda _: False)
    monkeypatch.setattr(targets, "emulator", lambda _: (str(compiler), [str(loader)]))
    face = image.image_of(plan, "m", "1")
    sample = replay.sample_of(face, plan, rows)
    for library in (made.files[0], of_c):
        replay.check(face, sample, replay.by_library(face, sample, library, triple))
