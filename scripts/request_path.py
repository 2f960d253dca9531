"""Which files and rooms calls pass through: predictions, inference over HTTP, and an import.

The predictions are those that machine code does not answer alone: rows as lists, frames, rows as
dicts, and a block that is too large for the plan's entry. What happens on the threads of executors
is not seen.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402 (the checkout comes first)
import pandas as pd  # noqa: E402 (as above)
from sklearn.linear_model import LogisticRegression  # noqa: E402 (as above)
from sklearn.pipeline import make_pipeline  # noqa: E402 (as above)
from sklearn.preprocessing import StandardScaler  # noqa: E402 (as above)

import flour  # noqa: E402 (as above)
from runtime import Runtime  # noqa: E402 (as above)
from runtime.http import ServerSettings  # noqa: E402 (as above)
from runtime.http.service import Service  # noqa: E402 (as above)
from runtime.http.wire.messages import Request  # noqa: E402 (as above)

FRAME = pd.DataFrame(np.arange(40.0).reshape(10, 4) - 9, columns=list("abcd"))
#: Packages without folders.
FLAT = {"objectstore", "scheduler"}
PACKAGES = ("flour", "objectstore", "oven", "pretzel", "runtime", "scheduler")
#: The file of the class that users hold: it is no room, as the faces of packages are none.
FACES = {"runtime.runtime"}
#: So many calls, and what is made by a version's first ones has been made.
WARM = 300


Calls = list[Callable[[], object]]


def request_path() -> dict[str, float]:
    """Return the gauges of each kind of call: those of the call that passes through most."""
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(FRAME, FRAME["a"] > 0)
    with Runtime(executors=1) as runtime:
        kinds: dict[str, Calls] = {
            "request": predictions(runtime),
            "HTTP": inferences(runtime),
            "import": [lambda: flour.from_sklearn(model, FRAME)],
        }
        for calls in kinds.values():
            for call in calls * WARM:
                call()
        paths = {kind: [entered(call) for call in calls] for kind, calls in kinds.items()}
    return {name: value for kind, found in paths.items() for name, value in gauges(kind, found)}


def gauges(kind: str, paths: list[list[str]]) -> Iterator[tuple[str, float]]:
    """Return the gauges of the paths of one kind of call."""
    yield f"{kind}: files", max(len(set(path)) for path in paths)
    yield f"{kind}: rooms", max(len({*map(room_of, path)} - {""}) for path in paths)
    most = max(max(Counter(path).values(), default=0) for path in paths)
    yield f"{kind}: most entries into a file", most


def room_of(module: str) -> str:
    """Return the room of a module; a package without folders is one, and its face is none."""
    package, *rest = module.split(".")
    if module in FACES:
        return ""
    if package in FLAT:
        return package
    return f"{package}.{rest[0]}" if rest else ""


def predictions(runtime: Runtime) -> Calls:
    """Return calls of `Runtime.predict`."""
    names = list(FRAME.columns)
    row = flour.record("row", dict.fromkeys(names, flour.Scalar()))
    linear = flour.vector("x", 4).linear([[1.0, 2.0, 3.0, 4.0]], [1.0])
    runtime.register("rows", linear, background=False)
    runtime.register("columns", row.columns(names).multiply([2.0]), background=False)
    sums_of = flour.scalar("a") + flour.scalar("b")
    runtime.register("sums", sums_of, background=False)
    rows = np.ones((10, 4)).tolist()
    dicts = FRAME.to_dict("records")
    sums = {"a": np.ones(10), "b": np.ones(10)}
    return [
        lambda: runtime.predict("rows", rows),
        lambda: runtime.predict("columns", FRAME),
        lambda: runtime.predict("columns", dicts),
        lambda: runtime.predict("sums", sums),
        lambda: runtime.predict("rows", rows, engine="inline"),
    ]


def inferences(runtime: Runtime) -> Calls:
    """Return requests of the inference protocol, answered on the thread of the event loop."""
    service = Service(runtime, ServerSettings())
    rows = {"name": "x", "datatype": "FP64", "shape": [3, 4], "data": [1.0] * 12}
    columns = [{"name": name, "datatype": "FP64", "shape": [3], "data": [1.0] * 3} for name in "ab"]

    def infer(model: str, inputs: object) -> Callable[[], object]:
        body, path = json.dumps({"inputs": inputs}).encode(), f"/v2/models/{model}/infer"
        return lambda: service.respond(Request("POST", path, "", {}, body))

    return [infer("rows", [rows]), infer("sums", columns)]


def entered(call: Callable[[], object]) -> list[str]:
    """Return the modules of ours in which functions are called, in order, none twice in a row."""
    names: list[str] = []

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            names.append(frame.f_globals.get("__name__", ""))

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    ours = [name for name in names if name.split(".")[0] in PACKAGES]
    return [name for name, _ in groupby(ours)]
