"""Where contestants' libraries live: the checkout's own environment, or one of their own.

Libraries whose versions clash with ours get an environment below .cache/venvs, made by
`python -m bench environments [name ...]`. What cannot be made stays absent, with the reason.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.machine import ROOT

PLACE = ROOT / ".cache" / "venvs"


@dataclass(frozen=True)
class Environment:
    """What is installed, and why not beside the rest."""

    packages: tuple[str, ...]
    why: str
    python: str = ""
    """A version that it needs, where it is not ours."""


ENVIRONMENTS = {
    "main": Environment((), "the checkout's own"),
    "onedal": Environment(
        ("scikit-learn-intelex", "scikit-learn==1.9.*", "lightgbm", "xgboost-cpu", "pandas"),
        "patches scikit-learn for its whole process",
    ),
    "treelite": Environment(("treelite", "tl2cgen", "numpy"), "only contestants need them"),
    "lleaves": Environment(
        ("lleaves==1.3.0", "llvmlite<0.45", "lightgbm", "numpy<2.3"),
        "lleaves uses the pass manager that llvmlite 0.45 took out",
        python="3.10",
    ),
    "mlserver_sklearn": Environment(
        ("mlserver", "scikit-learn==1.9.*", "numpy"), "pins its own web framework"
    ),
    "bentoml": Environment(
        ("bentoml", "scikit-learn==1.9.*", "uvloop", "httptools"), "pins its own web framework"
    ),
    "ray": Environment(("ray[serve]", "scikit-learn==1.9.*"), "brings a cluster along"),
    "litserve": Environment(("litserve", "scikit-learn==1.9.*"), "pins its own web framework"),
}


def python(name: str) -> Path | None:
    """The interpreter of an environment; None if it has not been made."""
    if name == "main":
        return Path(sys.executable)
    found = PLACE / name / "bin" / "python"
    return found if found.exists() else None


def reason(name: str) -> str:
    """Why an environment is not there: what making it said, or that nobody has."""
    said = PLACE / f"{name}.failed"
    if said.exists():
        return said.read_text(encoding="utf-8").strip()
    return f"make it with: python -m bench environments {name}"


def make(names: Iterable[str]) -> None:
    """Make the environments that are missing; a failure is kept as the reason."""
    for name in names:
        if python(name) is None:
            PLACE.mkdir(parents=True, exist_ok=True)
            problem = _make(name, ENVIRONMENTS[name])
            note = PLACE / f"{name}.failed"
            note.unlink(missing_ok=True)
            if problem:
                note.write_text(problem, encoding="utf-8")
                shutil.rmtree(PLACE / name, ignore_errors=True)
            print(f"{name}: {problem or 'made'}")


def _make(name: str, wanted: Environment) -> str:
    """Make one; what went wrong, or nothing."""
    folder = PLACE / name
    interpreter = shutil.which(f"python{wanted.python}") if wanted.python else sys.executable
    if interpreter is None:
        return f"it needs Python {wanted.python}, which is not installed"
    if wanted.python:
        _run([interpreter, "-m", "venv", str(folder)])
    else:
        venv.create(folder, with_pip=True)
    return _run([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *wanted.packages])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or ["failed without a word"])[-1][:300]
