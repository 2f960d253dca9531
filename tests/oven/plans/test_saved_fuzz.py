"""Mutated plan files: an error each, or exactly the right answer; never a crash or a hang.

Every mutation runs in a worker process, so that a crash is seen and not suffered: a worker that
dies, or does not answer in time, names the mutation it died of. A mutation that still loads is run
with rows, in checked memory first: native code that would read or write elsewhere is found even
where the machine would have let it pass.
"""

from __future__ import annotations

import copy
import os
import resource
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oven
from flour.core.errors import FlourError
from flour.data.coerce import coerce, native_types
from objectstore import Archive, Blob, StoreError, Strings
from objectstore.archive import write
from oven.explain.timing import sample
from oven.plans.plan import Plan
from tests import checked
from tests.oven.plans.test_bounds import Never, _changed
from tests.oven.programs import PROGRAMS

# What is mutated is the file: without rules it is another one, and no more of a danger.
pytestmark = pytest.mark.once

REFUSED = (FlourError, StoreError)
BATCH = 100
# Of address space, in one worker: a mutation that asks for more is seen as MemoryError.
MOST_MEMORY = 8 << 30
ROWS = 3


def flipped(raw: bytes, rng: np.random.Generator) -> bytes:
    """The file as a disk or a network would damage it."""
    made = bytearray(raw)
    match int(rng.integers(4)):
        case 0:
            made[rng.integers(len(made))] ^= 1 << int(rng.integers(8))
        case 1:
            return bytes(made[: rng.integers(len(made))])
        case 2:
            place = int(rng.integers(len(made)))
            made[place : place + 8] = rng.bytes(8)
        case _:
            place = int(rng.integers(len(made)))
            del made[place : place + int(rng.integers(1, 70))]
    return bytes(made)


def forged(raw: bytes, rng: np.random.Generator) -> bytes:
    """The file as somebody hostile would write it: anything in it changed, and sealed again."""
    with Archive.from_bytes(raw) as archive:
        manifest: Any = copy.deepcopy(archive.manifest)
        parameters: dict[str, Blob | Strings] = {d: archive.get(d) for d in archive.digests()}
    for _ in range(int(rng.integers(1, 4))):
        holder, key = _spot(manifest, rng)
        holder[key] = _replaced(holder[key], parameters, manifest, rng)
    with tempfile.TemporaryFile() as file:
        write(file, manifest, parameters)
        file.seek(0)
        return file.read()


def _spot(manifest: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """A random place in a manifest, as its container and key: most are fields of operators."""
    if rng.random() < 0.6:
        nodes = manifest["nodes"] if isinstance(manifest["nodes"], list) else []
        fields = [node[0][1] for node in nodes if _has_fields(node)]
        if fields:
            holder = fields[rng.integers(len(fields))]
            return holder, list(holder)[rng.integers(len(holder))]
    holder, key = manifest, list(manifest)[rng.integers(len(manifest))]
    while rng.random() < 0.8 and isinstance(holder[key], list | dict) and holder[key]:
        holder = holder[key]
        if isinstance(holder, dict):
            key = list(holder)[rng.integers(len(holder))]
        else:
            key = int(rng.integers(len(holder)))
    return holder, key


def _has_fields(node: Any) -> bool:
    """Whether it still is an operator with fields: mutations may follow each other."""
    match node:
        case [[str(), {} as fields], _]:
            return len(fields) > 0
    return False


def _replaced(value: Any, parameters: Any, manifest: Any, rng: np.random.Generator) -> Any:
    """Something else: another parameter, a changed one, a number, or a piece of elsewhere."""
    choice = rng.random()
    digest = value.get("parameter") if isinstance(value, dict) else None
    if isinstance(digest, str) and digest in parameters and choice < 0.7:
        if choice < 0.2:
            names = sorted(parameters)
            return {"parameter": names[rng.integers(len(names))]}
        return _changed(value, parameters, rng)
    if choice < 0.3:
        holder, key = _spot(manifest, rng)
        return copy.deepcopy(holder[key])
    if choice < 0.4:
        return [None, 0, -1, 1 << 40, "", [], {}, True, "float64"][rng.integers(9)]
    return _changed(value, parameters, rng)


def outcome(path: Path, name: str) -> str:
    """What becomes of one file: refused, the same plan, or another plan that is harmless."""
    try:
        plan = oven.load(path, background=Never())
    except REFUSED as problem:
        return f"refused: {type(problem).__name__}"
    return _ran(plan, name)


def _ran(plan: Plan, name: str) -> str:
    original, data = _original(name)
    try:
        if all(
            got.outputs == want.outputs
            for got, want in (
                (plan.flow, original.flow),
                (plan.program.optimised, original.program.optimised),
            )
        ):
            kinds = native_types(plan.inputs, data)
            plan = plan if kinds == plan.inputs else plan.variants.baked(kinds)
            columns, rows = coerce(plan.inputs, data)
            columns = {key: _first(value) for key, value in columns.items()}
            checked.run(plan, columns, min(rows, ROWS))
            return "the same"
        checked.run(plan, sample(plan.inputs, ROWS), ROWS)
    except REFUSED:
        return "refused when run"
    return "another plan"


def _first(column: Any) -> Any:
    if isinstance(column, dict):
        return {key: _first(value) for key, value in column.items()}
    if isinstance(column, np.ndarray | list):
        return column[:ROWS]
    from flour.core.sparse import Sparse

    return Sparse.of(column.toarray()[:ROWS])


_ORIGINALS: dict[str, tuple[Plan, Any]] = {}


def _original(name: str) -> tuple[Plan, Any]:
    if name not in _ORIGINALS:
        flow, data = PROGRAMS[name]()
        _ORIGINALS[name] = oven.bake(flow), data
    return _ORIGINALS[name]


def work(name: str, first: int, count: int) -> dict[str, int]:
    """Mutations `first`.. of one program's file, tallied by what became of them."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.plan"
        _original(name)[0].save(path)
        raw = path.read_bytes()
        for number in range(first, first + count):
            rng = np.random.default_rng([number, len(name)])
            path.unlink()  # a plan that is not compiled yet may still have the former mapped
            path.write_bytes((forged if number % 4 else flipped)(raw, rng))
            try:
                found[outcome(path, name)] += 1
            except BaseException as problem:
                raise AssertionError(f"mutation {number} of {name}: {problem!r}") from problem
    return dict(found)


def batches(total: int) -> Iterator[tuple[str, int, int]]:
    each = -(-total // len(PROGRAMS))
    for first in range(0, each, BATCH):
        for name in PROGRAMS:
            yield name, first, min(BATCH, each - first)


def run_all(total: int, seconds: float) -> Counter[str]:
    """All mutations on all cores; a batch that takes too long, or kills its worker, fails."""
    found: Counter[str] = Counter()
    cores = min(4, os.cpu_count() or 1)
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(work, *batch) for batch in batches(total)]
        for batch, job in zip(batches(total), jobs, strict=True):
            try:
                found.update(job.result(timeout=seconds))
            except Exception as problem:
                pool.shutdown(wait=False, cancel_futures=True)
                raise AssertionError(f"{batch}: {problem!r}") from problem
    return found


def expect_all(found: Counter[str], total: int) -> None:
    assert sum(found.values()) >= total
    refused = sum(count for what, count in found.items() if what.startswith("refused"))
    # Were everything refused, or nothing, then the mutations would be no good.
    assert 0.3 * total < refused < 0.98 * total, found
    assert found["another plan"] > 0, found
    assert found["the same"] > 0, found


def test_thousands_of_mutated_plans() -> None:
    expect_all(run_all(5_000, seconds=120), 5_000)


@pytest.mark.soak
def test_a_hundred_thousand_mutated_plans() -> None:
    found = run_all(100_000, seconds=600)
    expect_all(found, 100_000)
