"""TL2cgen: trees as C code, compiled by the system's gcc, which is part of the wait."""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
import time
from pathlib import Path

import tl2cgen
import treelite

folder = Path(sys.argv[1])
text = folder / "lightgbm.txt"
if text.exists():
    import numpy as np

    rows = np.load(folder / "rows.npy")
else:
    import treelite.sklearn

    forest, rows, _ = pickle.loads((folder / "model.pickle").read_bytes())
start = time.perf_counter()
if text.exists():
    model = treelite.frontend.load_lightgbm_model(str(text))
else:
    model = treelite.sklearn.import_model(forest)
with tempfile.TemporaryDirectory() as place:
    library = str(Path(place) / "model.so")
    tl2cgen.export_lib(
        model, toolchain="gcc", libpath=library, params={"parallel_comp": 4}, verbose=False
    )
    tl2cgen.Predictor(library, nthread=1).predict(tl2cgen.DMatrix(rows))
    print(json.dumps({"first": time.perf_counter() - start, "at": time.time()}))
