"""The example of a container, step by step without one: its commands, in a new environment."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import pytest
from hatchling.builders.wheel import WheelBuilder
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
from oven.compiler import levels, machine
from tests.house import ROOT, until

pytestmark = [pytest.mark.soak, pytest.mark.once]

CONTAINERFILE = ROOT / "deploy" / "container" / "Containerfile"
PORT = 8917
#: Of processor time, from the start of the command to the first answer; and of wall time, on a
#: machine that has nothing else to do.
MOST_SECONDS = 1.0


class Image:
    """What the Containerfile makes, below a folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.text = root, CONTAINERFILE.read_text(encoding="utf-8")

    def placed(self, command: str) -> list[str]:
        """A command with its absolute paths below the folder."""
        return [
            re.sub(r"^/(?=opt|models|code)", f"{self.root}/", part) for part in shlex.split(command)
        ]

    def run(self, step: str) -> str:
        """What the RUN line that begins like this makes of the folder."""
        (line,) = re.findall(rf"^RUN ({re.escape(step)}.*)$", self.text, re.MULTILINE)
        done = subprocess.run(
            self.placed(line), check=True, capture_output=True, text=True, cwd="/"
        )
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """What processes of the image are started with."""
        (line,) = re.findall(r"^ENV (\S+)$", self.text, re.MULTILINE)
        name, _, value = line.partition("=")
        return {name: f"{self.root}{value}", "PATH": "/usr/bin:/bin", "HOME": "/nowhere"}

    @contextmanager
    def started(self, **more: str) -> Iterator[subprocess.Popen[str]]:
        """The image's own command."""
        (line,) = re.findall(r"^CMD (\[.*\])$", self.text, re.MULTILINE)
        command = [*self.placed(shlex.join(json.loads(line))), "--port", str(PORT)]
        process = subprocess.Popen(
            command, env=self.environment | more, cwd="/", text=True, stderr=subprocess.PIPE
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=60)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The wheel and the plans where the Containerfile has them, and its commands run."""
    root = tmp_path_factory.mktemp("image")
    made = Image(root)
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(root), versions=["standard"]))
    assert "RUN python -m venv /opt/pretzel\n" in made.text
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", root / "opt/pretzel"], check=True
    )
    python = root / "opt/pretzel/bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    # The distributions that it needs are those of this environment; nothing else of it is there.
    (site,) = (root / "opt/pretzel/lib").glob("python*/site-packages")
    needed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "needed.pth").write_text("\n".join(needed) + "\n", encoding="utf-8")
    _save_plans(root / "models")
    said = made.run("/opt/pretzel/bin/pretzel warm")
    assert said.count(" functions, ") == 4
    return made


def _save_plans(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(100, 5))
    target = (rows[:, 0] > 0).astype(int)
    documents = [" ".join(rng.choice(["ab", "cd", "ef"], 4)) for _ in target]
    models = {
        "linear": make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, target),
        "trees": RandomForestClassifier(10, max_depth=4).fit(rows, target),
        "text": make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(documents, target),
    }
    for name, model in models.items():
        path = folder / name / "1" / f"{name}.pretzel"
        path.parent.mkdir(parents=True)
        oven.bake(flour.from_sklearn(model)).save(path)


def _answered(name: str, row: object) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{PORT}/predict/{name}", json.dumps(row).encode()) as found:
            return "label" in json.load(found)
    except URLError:
        return False


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_it_answers_within_a_second_of_its_start(
    image: Image, record_property: Callable[[str, object], None]
) -> None:
    walls, processors = [], []
    for _ in range(5):
        start = time.monotonic()
        with image.started() as process:
            until(lambda: _answered("linear", [1.0, 2.0, 3.0, 4.0, 5.0]))
            walls.append(time.monotonic() - start)
            processors.append(_processor_seconds(process.pid))
    record_property("seconds", (min(walls), min(processors)))
    assert min(processors) < MOST_SECONDS


def test_it_compiles_nothing_and_is_ready_at_once(image: Image) -> None:
    level = levels.best(machine.triple(), machine.features())
    assert level is not None
    assert (image.root / "code" / f"{level.name}.pack").is_file()
    with image.started(PRETZEL_DEBUG="1") as process:
        until(lambda: _answered("text", "ab cd"))
        until(lambda: _answered("trees", [1.0, 2.0, 3.0, 4.0, 5.0]))
        with urlopen(f"http://127.0.0.1:{PORT}/v2/health/ready") as found:
            assert json.load(found) == {"ready": True}
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert "loaded text@1" in said
    assert not re.findall(r"compiled \w+ in", said)


def test_nothing_is_written_into_the_image(image: Image) -> None:
    before = {path: path.stat().st_mtime_ns for path in image.root.rglob("*") if path.is_file()}
    with image.started(PYTHONDONTWRITEBYTECODE="1"):
        until(lambda: _answered("linear", [1.0, 2.0, 3.0, 4.0, 5.0]))
    after = {path: path.stat().st_mtime_ns for path in image.root.rglob("*") if path.is_file()}
    changed = {path for path in after if before.get(path) != after[path]}
    assert not {path for path in changed if path.is_relative_to(image.root / "models")}
    assert not {path for path in changed if path.is_relative_to(image.root / "opt")}
