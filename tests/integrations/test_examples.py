"""The programs of examples/, built and run by the commands of its page."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import flour
import oven
from oven.export import export, image, replay

pytestmark = [pytest.mark.integrations, pytest.mark.apart]
EXAMPLES = Path(__file__).parents[2] / "examples"
_SECTION = re.compile(r"^## (\w+)\n\n(?:[^#`].*?\n\n)?```sh\n(.*?)```", re.MULTILINE | re.DOTALL)
SCRIPTS = dict(_SECTION.findall((EXAMPLES / "README.md").read_text("utf-8")))
_TOOLS = {"c": "cc", "go": "go", "rust": "rustc", "java": "javac", "sqlite": "sqlite3"}
_TOOLS |= {"cortex": "qemu-system-arm", "postgres": "pg_config"}
_HEADERS = {"sqlite": "sqlite3ext.h", "postgres": "postgres.h"}


def _has(language: str) -> bool:
    """True if the tool of an example is here, and the header that it needs."""
    if shutil.which(_TOOLS[language]) is None:
        return False
    places = ["-I", _asked("--includedir-server")] if language == "postgres" else []
    text = f"#include <{_HEADERS.get(language, 'stdint.h')}>"
    command = ["cc", "-E", *places, "-x", "c", "-"]
    done = subprocess.run(
        command, input=text.encode(), capture_output=True, check=False, timeout=60
    )
    return done.returncode == 0


def _asked(what: str) -> str:
    return subprocess.run(
        ["pg_config", what], text=True, capture_output=True, check=True, timeout=60
    ).stdout.strip()


@contextmanager
def _postgres(folder: Path) -> Iterator[dict[str, str]]:
    """A server with a socket in this folder, and the environment of its clients."""
    tools, asked = Path(_asked("--bindir")), f"-k {folder} -c listen_addresses= -c fsync=off"
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []  # root may not be it
    if user:
        shutil.chown(folder, "postgres")

    def run(tool: str, *more: str) -> None:
        command = [*user, str(tools / tool), "-D", str(folder / "data"), *more]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=120, cwd=folder)

    run("initdb", "-A", "trust", "-U", "postgres", "--no-sync")
    run("pg_ctl", "-w", "-t", "60", "-l", str(folder / "log"), "-o", asked, "start")
    try:
        yield {"PGHOST": str(folder), "PGUSER": "postgres"}
    finally:
        run("pg_ctl", "-m", "immediate", "stop")


@cache
def _iris() -> tuple[oven.Plan, np.ndarray]:
    data = load_iris()
    names = data.target_names.astype(str)[data.target]
    model = LogisticRegression(max_iter=500).fit(data.data, names)
    return oven.bake(flour.from_sklearn(model), background=False), data.data


@pytest.mark.parametrize("language", sorted(_TOOLS))
def test_an_example_has_the_bits_of_the_plan(language: str, tmp_path: Path) -> None:
    if not _has(language):
        pytest.skip(f"{_TOOLS[language]} is not installed")
    plan, rows = _iris()
    if language == "postgres":
        rows = np.resize(rows, (10_000, 4)) + np.random.default_rng(6).normal(size=(10_000, 4))
    small = language == "cortex"
    folder = shutil.copytree(EXAMPLES, tmp_path / "examples") / language
    names = ["label", "probabilities"]
    made = export(plan, folder, to="c", name="iris", outputs=names, rows=rows, float32=small)
    lines = [" ".join(map(repr, row)) + "\n" for row in rows.tolist()]
    (folder / "rows.txt").write_text("".join(lines), encoding="utf-8")
    run = partial(subprocess.run, ["bash", "-euc", SCRIPTS[language]], text=True, timeout=300)
    if language == "postgres":
        # The server runs as another user, and paths of sockets are short.
        with TemporaryDirectory(prefix="pretzel-pg-") as place, _postgres(Path(place)) as more:
            folder = shutil.copytree(folder, Path(place) / "example")
            done = run(cwd=folder, capture_output=True, env={**os.environ, **more})
    else:
        done = run(cwd=folder, capture_output=True)
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
