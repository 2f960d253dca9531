"""The code for aarch64 answers as definitions do: it is run by qemu.

    python -m tests.oven.qemu_aarch64        (scripts/test-aarch64 sees to what it needs)

This process compiles for aarch64, on any machine: the operators of tests/cases.py and some whole
models. It writes a pack, and a file with the memory of every call: parameters, columns, and room
for answers, at the addresses that they will have. The pack's object code is linked with
tests/oven/qemu_aarch64.c into a program that makes the calls, and its answers are compared with the
operators' definitions in numpy, as closely as those of x86-64 are.

Plans of several runs are left out: the second run would need what the first one answers. So are
entries: they call Python's C interface, which would need a Python for aarch64.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import flour
import oven
from flour.core.sparse import Sparse, densify
from flour.data.coerce import coerce
from oven.codegen.string_cells import TextCells
from oven.compiler import cache, driver, levels, machine, packs
from oven.plans import program_image
from oven.plans.plan import Plan
from oven.plans.values import by_definition, native_column
from oven.run.native_run import NativeRun, given, settled
from oven.run.run_signature import TableLayout, aligned
from tests.cases import Case
from tests.columns import assert_close
from tests.flour.test_cases import columns
from tests.oven.test_cases import RUNNABLE, program

LEVEL = "aarch64"
#: Where the file of calls is mapped, and the memory that calls work in.
ARENA, MEMORY = 0x10_0000_0000, 0x20_0000_0000
_HEAD, _CALL = 6, 5
_SIZES = (1, 3, 300)
GCC, QEMU = f"{LEVEL}-linux-gnu-gcc", f"qemu-{LEVEL}"
_LONGEST = 600


class Image:
    """The memory of all calls, at the addresses that it will have."""

    def __init__(self) -> None:
        self.content = bytearray(8 * _HEAD)
        self.calls: list[list[int]] = []
        #: Words that are addresses of functions: where, and the function's cache key.
        self.places: list[tuple[int, str]] = []
        self.memory = 0
        self._known: dict[int, int] = {}
        self._kept: list[object] = []

    def put(self, array: NDArray[Any]) -> int:
        """Copy an array; where it will be."""
        known = self._known.get(id(array))
        if known is None:
            self.content += bytes(-len(self.content) % 64)
            known = self._known[id(array)] = ARENA + len(self.content)
            self._kept.append(array)  # so that no other array gets its id
            self.content += array.tobytes() + bytes(64)  # code may read beyond the end of texts
        return known

    def column(self, column: NDArray[Any] | Sparse) -> list[int]:
        """The words of a column in the table of columns, as `native_run.words` has them."""
        if isinstance(column, Sparse):
            parts = (column.indptr, column.indices, column.data)
            pointers, *rest = map(self.put, parts)
            return [pointers, 8, *rest]
        if isinstance(column, TextCells):
            column = self._cells(column)
        packed = np.ascontiguousarray(column)
        return [self.put(packed), packed.strides[0] if packed.ndim else 0]

    def _cells(self, cells: TextCells) -> NDArray[np.int64]:
        """Cells that point to copies of what they point to."""
        moved = np.array(cells, np.int64)
        text = np.frombuffer(cells.text, np.uint8)
        parts: list[tuple[NDArray[Any], Any]]
        parts = [(text, slice(0, None, 2) if cells.slices is None else 0)]
        parts += [(cells.slices, 1)] if cells.slices is not None else []
        parts += [(cells.values, 3)] if cells.values is not None else []
        for array, place in parts:
            moved[:, place] += self.put(array) - array.ctypes.data
        return moved

    def read(self, array: NDArray[Any], where: int) -> NDArray[Any]:
        """The array that is at this address now."""
        start = where - ARENA
        content = bytes(self.content[start : start + array.nbytes])
        return np.frombuffer(content, array.dtype).reshape(array.shape)

    def end(self, functions: Mapping[str, int]) -> None:
        """Write what the program reads first."""
        calls = self.put(np.array(self.calls, np.int64))
        places = self.put(np.array([(at, functions[key]) for at, key in self.places], np.int64))
        head = [len(self.calls), calls, len(self.places), places, self.memory, MEMORY]
        self.content[: 8 * _HEAD] = np.array(head, np.int64).tobytes()
        self._calls = calls

    @property
    def returned(self) -> list[int]:
        """What each call returned."""
        made = self.read(np.empty((len(self.calls), _CALL), np.int64), self._calls)
        return [int(each) for each in made[:, -1]]


class Expected(NamedTuple):
    """What a call has to answer."""

    name: str
    answers: Any
    result: NDArray[Any] | Sparse
    words: list[int]
    tolerance: float

    def check(self, image: Image) -> None:
        """Raise AssertionError if the call answered otherwise."""
        made: Any
        if isinstance(self.result, Sparse):
            parts = (self.result.indptr, self.result.indices, self.result.data)
            pointers, indices, data = (
                image.read(part, where)
                for part, where in zip(parts, [self.words[0], *self.words[2:]], strict=True)
            )
            made = settled(Sparse(data, indices, pointers, self.result.shape))
        else:
            made = image.read(self.result, self.words[0])
        assert_close(densify(made), densify(self.answers), self.tolerance, self.name)


class Trial:
    """All calls: first they are written down, then checked."""

    def __init__(self) -> None:
        self.image, self.expected = Image(), list[list[Expected]]()
        #: Plans that are more than one run.
        self.left_out: set[str] = set()

    def record(self) -> None:
        """Write down the calls of every operator and model."""
        for case in RUNNABLE:
            self._operator(case)
        for name, model, rows in _models():
            plan = oven.bake(flour.from_sklearn(model, rows), background=False)
            for count in _SIZES:
                given, size = coerce(plan.inputs, rows[:count])
                self._call(name, plan, given, size, 1e-9)

    def _operator(self, case: Case) -> None:
        plan = oven.bake(program(case), background=False)
        for rows in _SIZES:
            for odd in (False, True) if case.odd else (False,):
                drawn = columns(case, rows, odd=odd, seed=rows)
                given = {f"x{i}": value for i, value in enumerate(drawn)}
                self._call(case.name, plan, given, rows, case.tolerance)

    def _call(
        self, name: str, plan: Plan, known: dict[str, Any], rows: int, tolerance: float
    ) -> None:
        run = plan.code.steps[0] if len(plan.code.steps) == 1 else None
        if not isinstance(run, NativeRun):
            self.left_out.add(name)
            return
        wanted = by_definition(plan.program.optimised, known)
        values = {value: native_column(value, {}, known) for value in run.inputs}
        read = [given(values[value], value, stored=stored) for value, stored in run.form.read]
        lengths = run._lengths(read)
        longest = int(lengths.max(initial=0))
        results = [run._new(item, rows, lengths) for item in run.outputs]
        into = [self.image.column(column) for column in results]
        io = [word for column in read for word in self.image.column(column)]
        io += [word for column in into for word in column]
        scratch, room = aligned(run.memory_bytes), run._room_bytes(longest)
        self.image.memory = max(self.image.memory, scratch + room + 64)
        table = self.image.put(np.array([*io, MEMORY + scratch, longest], np.int64))
        self.image.calls.append([self._table(plan), table, rows, MEMORY, -1])
        places = {item: place for place, item in enumerate(run.outputs)}
        self.expected.append(
            [
                Expected(
                    f"{name}, {rows} rows, {leaf}", wanted[leaf], results[k], into[k], tolerance
                )
                for leaf, item in plan.leaves.items()
                if (k := places.get(item)) is not None
            ]
        )

    def _table(self, plan: Plan) -> int:
        """The run's table: see `NativeRun.of`."""
        draft = TableLayout(plan.program.stages, set(plan.leaves.values())).draft()
        table = np.array(draft.words, np.int64)
        for index, parameter in draft.parameters:
            table[index] = self.image.put(parameter.array)
        start = ARENA + len(self.image.content) + -len(self.image.content) % 64
        table[draft.inner] += start
        assert self.image.put(table) == start
        self.image.places += [
            (start + 8 * index, cache.key(source)) for index, source, _ in draft.codes
        ]
        return start

    def check(self) -> tuple[int, list[str]]:
        """How many calls refused their rows, and what is wrong with the answers of the others."""
        wrong = []
        returned = self.image.returned
        for code, expected in zip(returned, self.expected, strict=True):
            for each in expected if code == 0 else ():
                try:
                    each.check(self.image)
                except AssertionError as problem:
                    wrong.append(f"{each.name}: {' '.join(str(problem).split())[:200]}")
        return sum(map(bool, returned)), wrong


def _models() -> Iterator[tuple[str, Any, Any]]:
    """Whole models: their stages are fused."""
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 8))
    target = rows[:, 0] * 2 + rows[:, 1]
    for model in (
        make_pipeline(StandardScaler(), Ridge()),
        make_pipeline(StandardScaler(), LogisticRegression()),
        RandomForestRegressor(40, max_depth=8),
        GradientBoostingRegressor(n_estimators=50),
    ):
        two = isinstance(getattr(model, "steps", [(0, 0)])[-1][1], LogisticRegression)
        yield type(model).__name__, model.fit(rows, target > 0 if two else target), rows
    words = [*(f"word{number}" for number in range(200)), "Ünïcode", "日本", "naïve-test", "don't"]
    documents = [" ".join(rng.choice(words, rng.integers(0, 12))) for _ in range(300)]
    for vectoriser in (
        TfidfVectorizer(ngram_range=(1, 2)),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4)),
        HashingVectorizer(n_features=1 << 12),
    ):
        model = make_pipeline(vectoriser, Ridge()).fit(documents, target)
        yield type(vectoriser).__name__, model, documents


def link(pack: packs.Pack, keys: list[str], folder: Path) -> Path:
    """The program that makes the calls, with these functions of the pack."""
    objects, names = [], []
    for number, key in enumerate(keys):
        function = pack.find(key)
        assert function is not None
        objects.append(f"{number}.o")
        names.append(function.symbol)
        (folder / objects[-1]).write_bytes(function.code)
    driving = names[keys.index(cache.function_key(driver.run_stages))]
    lines = ["#include <stdint.h>", "typedef int64_t Stage(int64_t, int64_t, int64_t, int64_t);"]
    lines += [f"extern Stage {name};" for name in names]
    lines += [f"Stage *const functions[] = {{{', '.join(names)}}};"]
    lines += [f"Stage *const run_stages = {driving};"]
    (folder / "functions.c").write_text("\n".join(lines), encoding="ascii")
    (folder / "objects").write_text("\n".join(objects), encoding="ascii")
    main = Path(__file__).with_suffix(".c")
    command = [GCC, "-O1", "-static", "-o", "calls", str(main), "functions.c", "@objects", "-lm"]
    subprocess.run(command, cwd=folder, check=True, timeout=_LONGEST)
    return folder / "calls"


def main() -> int:
    """Compile, run and compare; 1 if an answer is wrong."""
    level = levels.named(LEVEL)
    assert level is not None
    program_image.KEPT[0] = False  # what this machine has baked before has no stages to compile
    machine.aim(level.cpu, level.listed, level.triple)
    trial = Trial()
    collected = cache.collect(trial.record)
    keys = sorted({key for _, key in trial.image.places} | {cache.function_key(driver.run_stages)})
    trial.image.end({key: number for number, key in enumerate(keys)})
    with tempfile.TemporaryDirectory() as place:
        path, calls = Path(place) / f"{LEVEL}.pack", Path(place) / "image"
        packs.write(path, LEVEL, cache.compilers(), collected)
        program = link(packs.read(path, LEVEL, cache.compilers()), keys, Path(place))
        calls.write_bytes(trial.image.content)
        subprocess.run([QEMU, program, calls, hex(ARENA)], check=True, timeout=_LONGEST)
        trial.image.content[:] = calls.read_bytes()
    refused, wrong = trial.check()
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    sys.stdout.write(
        f"{len(keys)} functions for {LEVEL} in {len(trial.expected)} calls: "
        f"{refused} refused their rows, {len(wrong)} answers are wrong; "
        f"{len(trial.left_out)} plans that are not a single run were left out\n"
    )
    return bool(wrong) or 4 * refused > len(trial.expected)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
