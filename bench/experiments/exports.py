"""Artefacts of plans: what they weigh, how long they take, and beside other compilers of trees.

    python -m bench export

Times are of the processor, in turns, the least of many short rounds; from those of a row from
Python, the time of a row of a model that does next to nothing is taken, which is exported as well.
Compilers of trees need their environments (`python -m bench environments`), onnxruntime-web needs
npm once, and Chromium. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.crew import Absent, Member
from bench.experiments import exports_web
from bench.experiments.graphs import least
from bench.goal import Goal
from bench.machine import ROOT
from bench.report import markdown
from bench.workload import Saved, Spec, saved

if TYPE_CHECKING:
    from oven import Plan
    from oven.export.image import Image
    from oven.export.replay import AnsweredRows

QUESTION = "Artefacts of plans: size, load, memory, a row, and other compilers of trees"
PAGE = ROOT / "docs" / "how-to" / "export-c.md"
MARKS = "<!-- sizes: begin -->", "<!-- sizes: end -->"
_BIG = "LightGBM, 500 trees of 63 leaves"
MODELS = {
    "scaler + logistic regression": Spec("lin", 1, 0.1),
    "LightGBM, 100 trees of 31 leaves": Spec("gbt", 1, 1.0),
    _BIG: Spec("gbt", 1, 5.0),
    "tf-idf + logistic regression": Spec("sa", 1, 0.02),
}
PEERS = ("tl2cgen", "lleaves", "m2cgen")
#: The levels of processors that a library for blocks has code for.
_CPUS = ("x86-64-v3",) if platform.machine() == "x86_64" else ()
_ROWS, _BLOCK, _SECONDS, _KB = 20, 1000, 120.0, 1024


class _Figures(NamedTuple):
    """Measurements of a library."""

    size: int
    parameters: int
    seconds: float
    #: Seconds of a row of the artefact and of the plan, then of a block's.
    row: float
    by_plan: float
    block: float
    block_by_plan: float


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    lines = ["```text", _line("", "so", "parameters", "wasm", "a row", "of a block", "in node")]
    with TemporaryDirectory(prefix="pretzel-bench-") as folder:
        for number, (title, spec) in enumerate(MODELS.items()):
            place = Path(folder) / str(number)  # no library is written over another that is open
            lines.append((yield from _of_model(title, saved(spec), place)))
    markdown.put(PAGE, "\n".join([*lines, "```"]), *MARKS)


def _of_model(title: str, workload: Saved, folder: Path) -> Generator[Goal, None, str]:
    from oven.export import export

    plan, rows = _plan(workload)
    found = _library(plan, rows, folder / "so")
    load, resident = _loaded(folder / "so" / "m.so")
    over = (found.size - found.parameters) / _KB
    yield Goal(f"{title}: so over its parameters, KiB", over, 64, at_most=True)
    yield Goal(f"{title}: load, ms", 1e3 * load, 10, at_most=True)
    yield Goal(f"{title}: resident over its file, KiB", resident / _KB, 1024, at_most=True)
    yield Goal(f"{title}: a row, of the plan's, x", found.row / found.by_plan, 1.2, at_most=True)
    many = found
    if workload.name == "gbt":
        many = _library(plan, rows, folder / "blocks", blocks=True, cpus=_CPUS)
        slower = many.block / many.block_by_plan
        yield Goal(f"{title}: with blocks, a block, of the plan's, x", slower, 2, at_most=True)
    if title == _BIG:
        yield Goal(f"{title}: export, s", found.seconds, 5, at_most=True)
        yield Goal(f"{title}: MB", found.size / 1e6, 0.6, at_most=True)
        yield Goal(f"{title}: with blocks, MB", many.size / 1e6, 2, at_most=True)
    elif many is not found:
        yield from _beside(workload, many.block)
    node, size = float("nan"), 0
    if shutil.which("node") and shutil.which("wasm-ld"):
        size = export(plan, folder / "npm", to="npm", name="m", rows=rows).files[0].stat().st_size
        over = (size - found.parameters) / _KB
        yield Goal(f"{title}: wasm over its parameters, KiB", over, 100, at_most=True)
        if isinstance(rows, np.ndarray):
            node = _in_node(folder / "npm", rows)
            yield Goal(f"{title}: a row in node, of the so's, x", node / found.row, 2, at_most=True)
            if title != _BIG:
                yield from exports_web.beside(title, plan, rows, folder / "npm")
    sizes = (f"{each / 1000:,.0f} KB" for each in (found.size, found.parameters, size))
    times = (f"{1e9 * each:,.0f} ns" for each in (found.row, many.block, node))
    return _line(title, *sizes, *times).replace("nan ns", "     –")


def _line(title: str, *figures: str) -> str:
    return f"{title:34}" + "".join(f"{each:>12}" for each in figures)


def _plan(workload: Saved) -> tuple[Plan, NDArray[Any]]:
    import flour
    import oven

    flow = flour.from_sklearn(workload.pipelines()[0].estimator())
    plan = oven.bake(flour.outputs(probabilities=flow["probabilities"]), background=False)
    return plan, workload.inputs.data[:_BLOCK]


def _library(
    plan: Plan, rows: NDArray[Any], folder: Path, cpus: Sequence[str] = (), *, blocks: bool = False
) -> _Figures:
    """Export a plan and ask both, in turns."""
    import flour
    import oven
    from oven.export import export, image, replay

    start = sum(os.times()[:4])  # with the processes that it starts
    made = export(plan, folder, name="m", rows=rows, blocks=blocks, cpus=cpus)
    seconds = sum(os.times()[:4]) - start
    held = image.image_of(plan, "m", "1", blocks=blocks)
    calls = _calls(made.files[0], held, replay.sample_of(held, plan, rows))
    numbers = isinstance(rows, np.ndarray)
    each = [rows[k : k + 1] if numbers else rows[k] for k in range(_ROWS)]
    width = rows.shape[1] if numbers else 1
    empty = oven.bake(flour.outputs(value=flour.vector("X", width).max()), background=False)
    entry, least_entry, none = plan.entry(), empty.entry(), np.zeros((1, width))
    hollow = export(empty, folder / "empty", name="m", verify=False).files[0]
    face = image.image_of(empty, "m", "1")
    least_calls = _calls(
        hollow, face, replay.sample_of(face, empty, np.zeros((_BLOCK + _ROWS, width)))
    )
    ways: dict[str, Callable[[], object]] = {
        "row": lambda: [call() for call in calls[1]],
        "nothing": lambda: [call() for call in least_calls[1]],
        "plan": lambda: [entry(row) for row in each],
        "an empty plan": lambda: [least_entry(none) for _ in each],
        "block": calls[_BLOCK][0],
        "plan's block": lambda: entry(rows),
    }
    row, nothing, by_plan, empty_plan, *blocks_of = least(ways).values()
    once = (max(1e-9, (a - b) / _ROWS) for a, b in ((row, nothing), (by_plan, empty_plan)))
    parameters = sum(blob.array.nbytes for blob in held.parameters)
    size = made.files[0].stat().st_size
    return _Figures(size, parameters, seconds, *once, *(each / _BLOCK for each in blocks_of))


def _calls(
    library: Path, image: Image, sample: AnsweredRows
) -> dict[int, list[Callable[[], object]]]:
    """Calls of the library for a row, and for a block, from each of some rows on."""
    loaded = ctypes.CDLL(str(library))
    loaded.m_scratch_size.restype = ctypes.c_size_t
    arrays = [sample.inputs[each.name] for each in image.inputs]
    for each, array in zip(image.inputs, arrays, strict=True):
        if each.dtype == "string":
            array[:, 0] += sample.text.ctypes.data
    outputs = [np.zeros_like(each) for each in sample.outputs.values()]
    into = (ctypes.c_size_t * len(outputs))(*(each.ctypes.data for each in outputs))
    scratch = ctypes.create_string_buffer(loaded.m_scratch_size(sample.longest))
    _HELD.append((sample, arrays, outputs))  # calls have addresses in them
    made: dict[int, list[Callable[[], object]]] = {1: [], _BLOCK: []}
    for row in range(_ROWS):
        places = zip(arrays, image.inputs, strict=True)
        words = [array.ctypes.data + row * each.row_bytes for array, each in places]
        given = (ctypes.c_size_t * (len(words) + 1))(*words, sample.longest)
        for count, calls in made.items():
            size = ctypes.c_size_t(count)
            calls.append(partial(loaded.m_predict, given, into, size, scratch))
    return made


_HELD: list[object] = []


def _loaded(library: Path) -> tuple[float, float]:
    """Seconds to load a library in a process of its own, and bytes of memory over its file's."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_load, str(library)).result(_SECONDS)


def _load(library: str) -> tuple[float, float]:
    ctypes.CDLL(None)
    before, start = _resident(), time.process_time()
    loaded = ctypes.CDLL(library)
    took = time.process_time() - start
    loaded.m_version.restype = ctypes.c_char_p
    loaded.m_version()
    return took, max(0, _resident() - before - Path(library).stat().st_size)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def _in_node(folder: Path, rows: NDArray[Any]) -> float:
    """Seconds of a row of the module in node, without the package around it."""
    (folder / "rows.json").write_text(json.dumps(rows[:_ROWS].tolist()), encoding="utf-8")
    (folder / "time.mjs").write_text(_SCRIPT, encoding="utf-8")
    command = ["node", str(folder / "time.mjs")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS)
    return float(done.stdout) / 1e9


_SCRIPT = """\
import { readFileSync } from "node:fs";
import { load } from "./index.js";
const rows = JSON.parse(readFileSync(new URL("./rows.json", import.meta.url)));
const { exports, ...model } = await load();
const { memory, m_predict, m_scratch_size, __heap_base } = exports;
const start = Math.ceil(__heap_base.value / 64) * 64;
const size = 8 * rows[0].length, made = start + 64 + size * rows.length, scratch = made + 4096;
memory.grow(Math.ceil((scratch + m_scratch_size(0)) / 65536));
const view = new DataView(memory.buffer);
rows.flat().forEach((value, k) => view.setFloat64(start + 64 + 8 * k, value, true));
view.setUint32(start + 8, made, true);
let best = Infinity;
for (let round = 0; round < 300; round++) {
  const began = process.hrtime.bigint();
  for (let k = 0; k < 200; k++) {
    view.setUint32(start, start + 64 + size * (k % rows.length), true);
    m_predict(start, start + 8, 1, scratch);
  }
  best = Math.min(best, Number(process.hrtime.bigint() - began) / 200);
}
console.log(best);
"""


# --- other compilers of trees ---------------------------------------------------------------------


def _beside(workload: Saved, ours: float) -> Iterator[Goal]:
    """A row of a block in other compilers' libraries, and in ours."""
    for name in PEERS:
        try:
            with Member(name) as member:
                start, folder = time.perf_counter(), str(workload.folder)
                member.ask("prepare", folder=folder, count=1)
                print(f"# {name}: made in {time.perf_counter() - start:.1f} s", flush=True)
                member.ask("load", folder=folder, numbers=[0], count=1)
                asked = {"batch": _BLOCK, "seconds": 1.0, "callers": 1}
                found = [member.ask("throughput", **asked) for _ in range(3)]
        except Absent as problem:
            print(f"# {name}: left out, {problem}")
            continue
        theirs = min(each["cpu_seconds"] / each["rows"] for each in found)
        yield Goal(f"{name}: rows of a block, times as long as ours", theirs / ours, 1)
