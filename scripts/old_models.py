"""Environments of old versions, the models that they train, and how our import answers.

python scripts/old_models.py [--all] [VERSION...]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.flour.versions.compare import FOLDER, REFUSED, RIGHT, SAMPLED, WRONG, Archive, packed  # noqa: E402 (the checkout comes first)

PLACE = Path(os.environ.get("OLD_MODELS", ROOT / ".cache" / "old-models"))


class Environment(NamedTuple):
    """The Python and the versions of libraries that belong together."""

    python: str
    numpy: str
    scipy: str
    lightgbm: str
    xgboost: str
    skops: str = ""


#: By the version of scikit-learn.
ENVIRONMENTS = {
    "0.22.2": Environment("3.8", "<1.20", "<1.5", "2.3.1", "xgboost==0.90"),
    "0.23.2": Environment("3.8", "<1.20", "<1.6", "3.0.0", "xgboost==1.1.1"),
    "0.24.2": Environment("3.8", "<1.24", "<1.9", "3.1.1", "xgboost==1.3.3"),
    "1.0.2": Environment("3.8", "<1.24", "<1.9", "3.2.1", "xgboost==1.4.2"),
    "1.1.3": Environment("3.9", "<1.25", ">1", "3.3.2", "xgboost==1.5.2"),
    "1.2.2": Environment("3.9", "<2", ">1", "3.3.5", "xgboost==1.7.6"),
    "1.3.2": Environment("3.11", "<2", ">1", "4.0.0", "xgboost==2.0.3"),
    "1.4.2": Environment("3.11", "<2", ">1", "4.3.0", "xgboost-cpu==2.1.1"),
    "1.5.2": Environment("3.11", "<2.1", ">1", "4.5.0", "xgboost-cpu==2.1.4", "0.10.0"),
    "1.6.1": Environment("3.11", ">=2", ">1", "4.6.0", "xgboost-cpu==3.0.0"),
    "1.7.2": Environment("3.11", ">=2", ">1", "4.6.0", "xgboost-cpu==3.0.5"),
    "1.8.0": Environment("3.11", ">=2", ">1", "4.6.0", "xgboost-cpu==3.1.1"),
}


def python_of(version: str) -> str:
    """An interpreter of a version of Python."""
    places = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    known = [str(path) for path in places.glob(f"{version}.*/bin/python")]
    found = next(iter(known), None) or shutil.which(f"python{version}")
    if found is None:
        raise SystemExit(f"old-models: there is no Python {version}: pyenv install {version}")
    return found


def environment(version: str) -> Path:
    """The interpreter of an environment with these libraries, made if it is not there."""
    folder, wanted = PLACE / f"venv-{version}", ENVIRONMENTS[version]
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        subprocess.run([python_of(wanted.python), "-m", "venv", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        libraries = [f"scikit-learn=={version}", f"numpy{wanted.numpy}", f"scipy{wanted.scipy}"]
        subprocess.run([*pip, *libraries, "joblib"], check=True)
        # Without what else they ask for: of XGBoost this is code for GPUs.
        boosters = [f"lightgbm=={wanted.lightgbm}", wanted.xgboost]
        subprocess.run([*pip, "--no-deps", *boosters], check=True)
        if wanted.skops:
            subprocess.run([*pip, f"skops=={wanted.skops}"], check=True)
        (folder / "complete").touch()
    return python


def trained(version: str, *, everything: bool) -> Path:
    """The archive of what a version has trained and answered."""
    files = PLACE / f"files-{version}"
    shutil.rmtree(files, ignore_errors=True)
    train = [str(FOLDER / "train.py"), str(files), *(["--all"] if everything else [])]
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    python = str(environment(version))
    subprocess.run([python, *train], check=True, timeout=900, cwd=PLACE, env={**os.environ, **one})
    archive = (PLACE if everything else FOLDER) / f"{version}.tar.xz"
    archive.write_bytes(packed(files))
    return archive


def main(arguments: list[str]) -> int:
    """Train and compare; 1 if an answer is wrong."""
    everything = "--all" in arguments
    versions = [each for each in arguments if each in ENVIRONMENTS]
    if len(versions) + everything < len(arguments):
        raise SystemExit(f"old-models: versions are {', '.join(ENVIRONMENTS)}")
    PLACE.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for version in versions or ENVIRONMENTS:
        archive = Archive(trained(version, everything=everything))
        found = [*archive.compared()]
        for each in found:
            if each.outcome in (REFUSED, WRONG):
                print(version, *each)
        counts = {
            name: sum(each.outcome == name for each in found)
            for name in (RIGHT, SAMPLED, REFUSED, WRONG)
        }
        print(version, archive.versions, counts, flush=True)
        wrong += counts[WRONG]
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
