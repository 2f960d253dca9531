"""Environments of contestants' libraries: the checkout's own, or separate ones.

Libraries whose versions clash with ours get an environment below .cache/venvs, made by
`python -m bench environments [name ...]`. An environment that cannot be made stays absent, with the
reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.machine import ROOT

PLACE = ROOT / ".cache" / "venvs"
_PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"


@dataclass(frozen=True)
class Environment:
    """The packages of an environment, and the reason for a separate one."""

    packages: tuple[str, ...]
    why: str
    python: str = ""
    """The Python version that it needs, if it is not ours."""


ENVIRONMENTS = {
    "main": Environment((), "the checkout's own"),
    "onedal": Environment(
        ("scikit-learn-intelex", "scikit-learn==1.9.*", "lightgbm", "xgboost-cpu", "pandas"),
        "patches scikit-learn for its whole process",
    ),
    "catboost": Environment(("catboost", "numpy"), "only a contestant needs it"),
    "hessboost": Environment(
        ("hessboost", "lightgbm", "scikit-learn==1.9.*", "numpy"), "only a contestant needs it"
    ),
    "treelite": Environment(
        ("treelite", "tl2cgen", "numpy", "scikit-learn==1.9.*"), "TL2cgen reads models by it"
    ),
    "m2cgen": Environment(
        ("m2cgen", "lightgbm", "scikit-learn==1.9.*", "numpy"), "only a contestant needs it"
    ),
    "lleaves": Environment(
        ("lleaves==1.3.0", "llvmlite<0.45", "lightgbm", "numpy<2.3"),
        "lleaves uses the pass manager that llvmlite 0.45 took out",
        python="3.10",
    ),
    "mlserver_sklearn": Environment(
        ("mlserver", "scikit-learn==1.9.*", "numpy"), "pins its own web framework"
    ),
    "kserve_sklearn": Environment(
        ("kserve", "scikit-learn==1.9.*", "httpx"), "pins its own web framework"
    ),
    "bentoml": Environment(
        ("bentoml", "scikit-learn==1.9.*", "uvloop", "httptools"), "pins its own web framework"
    ),
    "ray": Environment(("ray[serve]", "scikit-learn==1.9.*"), "brings a cluster along"),
    "faststream": Environment(
        ("faststream[redis]", "hiredis", "scikit-learn==1.9.*"), "only a contestant needs it"
    ),
    "grpcio": Environment(("grpcio",), "only a contestant needs it"),
    "litserve": Environment(("litserve", "scikit-learn==1.9.*"), "pins its own web framework"),
}


def python(name: str) -> Path | None:
    """The interpreter of an environment; None if it has not been made."""
    if name == "main":
        return Path(sys.executable)
    interpreter = PLACE / name / "bin" / "python"
    return interpreter if interpreter.exists() else None


def reason(name: str) -> str:
    """Why an environment is missing: the error of making it, or that it was not made."""
    note = PLACE / f"{name}.failed"
    if note.exists():
        return note.read_text(encoding="utf-8").strip()
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


def _make(name: str, environment: Environment) -> str:
    """Make one; returns the error, empty if it worked."""
    folder = PLACE / name
    interpreter = _interpreter(environment.python) if environment.python else sys.executable
    if interpreter is None:
        return f"it needs Python {environment.python}, which is not installed"
    return _run([interpreter, "-m", "venv", str(folder)]) or _run(
        [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *environment.packages]
    )


def _interpreter(version: str) -> str | None:
    """An interpreter of this version that runs: on PATH there may be a placeholder for one."""
    places = [shutil.which(f"python{version}"), *_PYENV.glob(f"{version}.*/bin/python")]
    return next((str(each) for each in places if each and not _run([str(each), "-V"])), None)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or ["failed without a word"])[-1][:300]
