"""Where contestants that need versions of their own live; running this file makes those places."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

PLACE = Path(__file__).parents[4] / ".cache" / "venvs"
#: The environment of each contestant ("" is ours), and what is in it.
CONTESTANTS = {
    "pretzel": "",
    "handwritten": "",
    "lightgbm": "",
    "xgboost": "",
    "sklearn": "",
    "onnxruntime": "onnx",
    "treelite": "treelite",
    "tl2cgen": "treelite",
    "lleaves": "lleaves",
    "onedal": "onedal",
}
PACKAGES = {
    "onnx": ("onnx<1.19", "onnxmltools", "skl2onnx", "onnxruntime", "lightgbm", "xgboost-cpu"),
    "treelite": ("treelite", "tl2cgen", "scikit-learn==1.9.*"),
    # The pass manager it uses was taken out of llvmlite 0.45.
    "lleaves": ("lleaves==1.3.0", "llvmlite<0.45", "numpy<2.3", "lightgbm", "pandas"),
    "onedal": ("scikit-learn-intelex", "scikit-learn==1.9.*", "lightgbm", "xgboost-cpu"),
}
PYTHONS = {"lleaves": "python3.10"}


def interpreter(contestant: str) -> Path | None:
    """The Python a contestant runs in, None where it has not been made."""
    name = CONTESTANTS[contestant]
    found = PLACE / name / "bin" / "python" if name else Path(sys.executable)
    return found if found.exists() else None


def make() -> None:
    """Make what is missing."""
    for name, packages in PACKAGES.items():
        if (PLACE / name).exists():
            continue
        python = shutil.which(PYTHONS.get(name, "")) or sys.executable
        subprocess.run([python, "-m", "venv", str(PLACE / name)], check=True)
        pip = [str(PLACE / name / "bin" / "python"), "-m", "pip", "install", "-q"]
        subprocess.run([*pip, *packages], check=True)


if __name__ == "__main__":
    make()
