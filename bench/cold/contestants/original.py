"""The library that trained the model."""

from __future__ import annotations

import json
import pickle
import sys
import time
from pathlib import Path

model, rows, sample = pickle.loads((Path(sys.argv[1]) / "model.pickle").read_bytes())
start = time.perf_counter()
model.predict(rows)
print(json.dumps({"first": time.perf_counter() - start, "at": time.time()}))
