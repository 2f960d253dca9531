"""The programs of examples/, built and run by the commands of its page."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import flour
import oven
from oven.export import export, image, replay

pytestmark = [pytest.mark.integrations, pytest.mark.apart]
EXAMPLES = Path(__file__).parents[2] / "examples"
_SECTION = re.compile(r"^## (\w+)\n\n(?:[^#`].*\n\n)?```sh\n(.*?)```", re.MULTILINE | re.DOTALL)
SCRIPTS = dict(_SECTION.findall((EXAMPLES / "README.md").read_text("utf-8")))
_TOOLS = {"c": "cc", "go": "go", "rust": "rustc", "java": "javac", "sqlite": "sqlite3"}
_TOOLS["cortex"] = "qemu-system-arm"

_SQLITE = Path("/usr/include/sqlite3ext.h")


@cache
def _iris() -> tuple[oven.Plan, np.ndarray]:
    data = load_iris()
    names = data.target_names.astype(str)[data.target]
    model = LogisticRegression(max_iter=500).fit(data.data, names)
    return oven.bake(flour.from_sklearn(model), background=False), data.data


@pytest.mark.parametrize("language", [each.name for each in EXAMPLES.iterdir() if each.is_dir()])
def test_an_example_has_the_bits_of_the_plan(language: str, tmp_path: Path) -> None:
    if shutil.which(_TOOLS[language]) is None or (language == "sqlite" and not _SQLITE.is_file()):
        pytest.skip(f"{_TOOLS[language]} is not installed")
    plan, rows = _iris()
    small = language == "cortex"
    folder = shutil.copytree(EXAMPLES, tmp_path / "examples") / language
    names = ["label", "probabilities"]
    made = export(plan, folder, to="c", name="iris", outputs=names, rows=rows, float32=small)
    lines = [" ".join(map(repr, row)) + "\n" for row in rows.tolist()]
    (folder / "rows.txt").write_text("".join(lines), encoding="utf-8")
    run = ["bash", "-euc", SCRIPTS[language]]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    wanted = image.portable_plan(plan).run(rows)
    said = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in said] == wanted["label"].tolist()
    found = np.array([list(map(float, line[1:])) for line in said])
    if small:  # as far from the plan as on this machine, which the header tells
        face = image.image_of(plan, "iris", "1", names, float32=True)
        sample = replay.sample_of(face, plan, rows)
        answers = {**sample.outputs, "probabilities": found.astype(np.float32)}
        assert made.report is not None
        assert replay.compare(face, sample, answers) == made.report.differences
        assert made.report.lines()[-1] in (folder / "iris.h").read_text("utf-8")
        return
    assert found.tobytes() == np.ascontiguousarray(wanted["probabilities"]).tobytes()
