"""Exports in float32 for small machines: how far they are from the plan, and what they take."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest

import oven
from flour.core.types import Vector
from flour.language.flow import outputs, source
from flour.ops.trees.walk import Walk
from oven.errors import NotExportable
from oven.export import Exported, export, image, replay, report
from tests.oven.export import models
from tests.oven.export.test_export import HOSTILE

pytestmark = [pytest.mark.once, pytest.mark.apart]

_FAMILIES = ["logistic", "mlp", "lightgbm", "categories", "xgboost", "forest"]
_COMPILED = pytest.mark.skipif(which("cc") is None, reason="there is no C compiler")


def _exported(name: str, folder: Path, rows: Any = None, **more: Any) -> Exported:
    plan, usual = models.fitted(name)
    rows = usual if rows is None else rows
    return export(plan, folder, to="c", name="m", float32=True, rows=rows, **more)


def _apart(made: Exported) -> replay.Differences:
    assert made.report is not None
    assert made.report.differences is not None
    return made.report.differences


@_COMPILED
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("name", _FAMILIES)
def test_float32_is_near_the_plan(name: str, tmp_path: Path) -> None:
    """Within some units in float32's last place of numbers of this size, and floats alone."""
    made = _exported(name, tmp_path)
    apart = _apart(made)
    assert (made.rows, made.away) == (models.COUNT, apart.absolute)
    assert apart.absolute < 5e-6
    assert apart.relative < 1e-4
    assert apart.far == 0
    assert apart.equal == (None if name in {"categories", "xgboost"} else 1.0)
    assert apart.trees == (name not in {"logistic", "mlp"})
    face, text, _ = (each.read_text(encoding="utf-8") for each in made.files)
    assert "double" not in face + text
    assert made.report is not None
    assert all(f"/* {line} */" in face for line in made.report.lines())
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wdouble-promotion", "-Werror", "-O1"]
    for compiler in filter(which, ("gcc", "clang")):
        command = [compiler, *strict, "-c", "m.c", "-o", "m.o"]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
        command = [
            compiler,
            *strict[:4],
            "-Werror",
            "-fsyntax-only",
            "-include",
            "m_arrow.h",
            "m.c",
        ]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=60)


@_COMPILED
def test_rows_next_to_thresholds(tmp_path: Path) -> None:
    """A threshold's own rows stay on its side; of those right above, it is said how many do not."""
    plan = models.fitted("lightgbm").plan
    walk = next(item.op for item in plan.flow.nodes() if isinstance(item.op, Walk))
    rng = np.random.default_rng(5)
    x = models.fitted("lightgbm").rows.copy()
    limits = [walk.threshold.array[walk.feature.array == k] for k in range(6)]
    at = np.stack([rng.choice(each, len(x)) for each in limits], axis=1)
    assert _apart(_exported("lightgbm", tmp_path, at)).far == 0
    above = np.where(np.arange(len(x))[:, None] < 100, np.nextafter(at, np.inf), x)
    made = _exported("lightgbm", tmp_path, above)
    assert 0 < _apart(made).far <= 100
    face = made.files[0].read_text(encoding="utf-8")
    assert f"{_apart(made).far} rows are further away than 0.0001 (next to a tree's" in face
    with pytest.raises(NotExportable, match="float32 is too short for this model"):
        _exported("lightgbm", tmp_path, np.nextafter(at, np.inf))


def test_what_float32_cannot_hold(tmp_path: Path) -> None:
    """One row whose answer is no number any more, and a parameter beyond float32."""
    made = image.image_of(models.fitted("logistic").plan, "m", "1", float32=True)
    sample = replay.sample_of(made, models.fitted("logistic").plan)
    answers = {name: np.array(column) for name, column in sample.outputs.items()}
    assert replay.compare(made, sample, answers).absolute == 0
    answers["scores"][3, 1] = np.nan
    with pytest.raises(NotExportable, match="float32 is too short"):
        replay.compare(made, sample, answers)
    large = oven.bake(outputs(value=source("x", Vector(2)) * 1e200), background=False)
    with pytest.raises(NotExportable, match="a parameter is beyond float32"):
        export(large, tmp_path, to="c", float32=True)


@pytest.mark.parametrize(
    ("name", "how", "said"),
    [
        ("power", {}, "YeoJohnson cannot be exported: it has no form in float32"),
        ("svm", {}, "Distances cannot be exported: it has no form in float32"),
        ("text", {}, "cannot be exported: it has no form in float32"),
        ("table", {}, "step 'columntransformer.c' cannot be exported: it has no form in float32"),
        ("logistic", {"to": "so"}, "float32 is for C"),
    ],
)
def test_refused(name: str, how: dict[str, Any], said: str, tmp_path: Path) -> None:
    plan = models.fitted(name).plan
    with pytest.raises(NotExportable, match=said):
        export(plan, tmp_path / "out", **{"to": "c", **how}, float32=True, verify=False)
    assert not (tmp_path / "out").exists()


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    made = _exported("logistic", tmp_path)
    assert made.rows == 0
    assert made.report is not None
    assert made.report.code is None
    said = "\n".join(made.report.lines())
    assert "not compared with the float64 plan, as it was not built and run" in said
    assert "not measured: no arm-none-eabi-gcc is here" in said
    assert said.splitlines()[0] in made.files[0].read_text(encoding="utf-8")


@pytest.mark.skipif(which("arm-none-eabi-gcc") is None, reason="no C compiler for Arm")
@pytest.mark.parametrize("cpu", ["", "cortex-m0"])
def test_what_it_takes(cpu: str, tmp_path: Path) -> None:
    """Its code and constants are those of the object, and no number is a double."""
    made = _exported("forest", tmp_path, cpus=[cpu] if cpu else []).report
    assert made is not None
    assert f"-mcpu={cpu or 'cortex-m4'} " in made.machine
    compiler = [*made.machine.split(), "-std=c99", "-O2", "-c", "m.c"]
    subprocess.run(compiler, cwd=tmp_path, check=True, timeout=60)
    size = ["arm-none-eabi-size", "m.o"]
    listed = subprocess.run(size, cwd=tmp_path, check=True, capture_output=True, text=True)
    text, data, *_ = map(int, listed.stdout.splitlines()[1].split()[:2])
    assert made.code is not None
    assert abs(made.code + made.constants - text - data) < 64, "without tables of unwinding"
    assert 64 < (made.stack or 0) < 1000
    assert 128 <= made.scratch <= 512, "for a row, not for a tile"
    symbols = ["arm-none-eabi-nm", "--undefined-only", "m.o"]
    needed = subprocess.run(symbols, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert not re.search(r"_[id]?d2|_dadd|_dmul|_ddiv|_dcmp|_f2d|malloc", needed.stdout)


def test_the_stack_is_that_of_the_deepest_call() -> None:
    """The sum along calls, whatever is beside them; functions of the library count as nothing."""
    sizes = {"m_predict": 8, "m.c:run": 40, "m.c:long": 100, "m.c:short": 16, "m.c:other": 999}
    calls = ["m_predict m.c:run", "m.c:run m.c:short", "m.c:run m.c:long", "m.c:long sqrtf"]
    node = 'node: {{ title: "{}" label: "f\\nm.c:1:2\\n{} bytes (static)" }}\n'
    text = "".join(node.format(*each) for each in sizes.items())
    text += 'node: { title: "sqrtf" label: "sqrtf\\n<built-in>" shape : ellipse }\n'
    edge = 'edge: {{ sourcename: "{}" targetname: "{}" label: "m.c:1:3" }}\n'
    text += "".join(edge.format(*each.split()) for each in calls)
    assert report._stack(text, "m_predict") == 148


@pytest.mark.skipif(which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("name", ["forest", "lightgbm", "categories", "mlp"])
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_sanitizers(name: str, tmp_path: Path) -> None:
    """No undefined behaviour on numbers of every kind, for arrays without room behind them."""
    kept = {"outputs": ["value"] if name == "categories" else ["label", "probabilities"]}
    _exported(name, tmp_path, **kept, verify=False)
    main = HOSTILE[0].replace("double", "float").replace("bits, 8", "bits, 4")
    if name == "categories":
        main = main.replace(".label = &label, .probabilities = p", ".value = p")
        main = main.replace("int64_t label;", "int64_t label = 0;")
    (tmp_path / "main.c").write_text(main, encoding="utf-8")
    strict = ["-std=c99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = ["gcc", *strict, "-Wall", "-Wextra", "-Werror", "main.c", "m.c", "-lm", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    done = subprocess.run(
        [tmp_path / "main"], capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "codes 0" in done.stdout, "some rows are answered"
