"""Reading plans from files, which may come from anybody: see oven.plans.manifest."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, TypeVar

from flour.core.callables import allowing
from flour.core.errors import FlourError, PythonRefused
from flour.core.node import Node, node, topological
from flour.core.op import Parameter, from_data
from flour.core.provenance import Origin
from flour.language.flow import Flow, with_origins, without_unread
from objectstore import Archive, BadDigest, Blob, MissingBlob, StoreError
from objectstore.archive import array_at, copied, opened
from objectstore.layout import ArrayRecord, Container, Copied
from objectstore.mapping import AT_ONCE, frozen_bytes, release, settle
from oven import debug
from oven.errors import CompileError, DamagedPlan
from oven.plans import characters, image_cache
from oven.plans import training as told
from oven.plans.background import Background
from oven.plans.image import PlanImage
from oven.plans.manifest import FORMAT, KEYS, MAX_NODES, MORE_KEYS, check_limits, write_image
from oven.plans.plan import Plan, bakers, reporters, restore
from oven.plans.program_image import keep_image
from oven.run.native_run import NativeRun

if TYPE_CHECKING:
    from objectstore import Store

T = TypeVar("T")

_READ_AT_MOST = 64 << 20

PRACTICE_BYTES = 64 << 20
"""A row that touches more would take milliseconds: its plan is loaded without trying one."""

SHORT_ORIGIN = 256
"""Characters: places in source that plans have in common are kept once for all of them."""

_LONG_VERSION = 20

STUMBLES = (
    *(TypeError, ValueError, LookupError, ArithmeticError, AttributeError),
    *(AssertionError, NotImplementedError, RecursionError),
)
"""Errors of operators that trip over parameters or inputs they were not written for."""


def load(
    path: str | Path,
    *,
    store: Store | None = None,
    background: Background = None,
    allow_python: bool = False,
    trust_code: bool = False,
    mapped: bool = True,
) -> Plan:
    """The plan in a file, checked; its parameters are views into it.

    Other bytes written over a mapped file, instead of a new file renamed to its name, change or end
    what uses it; with `mapped=False`, one of at most 64 MiB is read into memory. Large equal
    arrays of such files are there once.

    With a `store`, parameters live there instead: those it has already are not read again, and
    all plans and processes that use the store share one copy. `background` is that of `oven.bake`.
    A plan with Python stages names functions; `allow_python` imports their modules and runs them.
    Machine code that was saved with the plan is used with `trust_code`: do that only if you would
    run a program from the same source.
    """
    file = opened(path)
    buffer = file if mapped or file.nbytes > _READ_AT_MOST else copied(file, str(path))
    if trust_code:
        from oven.plans import carried

        carried.offer(buffer, str(path))
    return _plan_in(buffer, str(path), store, background=background, allow_python=allow_python)


def to_bytes(plan: Plan, training: Mapping[str, Any] | None = None) -> bytes:
    """Return the bytes of a file of the plan; `training` is that of `save`."""
    with tempfile.TemporaryDirectory(prefix="pretzel-") as folder:
        path = Path(folder) / "a.plan"
        plan.save(path, durable=False, training=training)
        return path.read_bytes()


def from_bytes(raw: bytes) -> Plan:
    """The plan that `to_bytes` has written, checked as a file is, with its native code.

    Python functions that it names are not imported.
    """
    return _plan_in(frozen_bytes(raw), "a plan in memory", None, background=False)


class PlanSource(NamedTuple):
    """The file of a plan, and the store that its parameters are in, if they are in one."""

    buffer: Container
    where: str
    store: Store | None

    def find(self, record: ArrayRecord) -> Blob:
        """An array of the file."""
        store = self.store
        if store is None:
            return array_at(self.buffer, record, self.where)
        if record.digest not in store:
            store.put(array_at(self.buffer, record, self.where))
        there = store.get(record.digest)
        assert isinstance(there, Blob), "digests of arrays name arrays"
        return there

    def programs(self) -> tuple[Flow, Flow]:
        """The program as it was written, and what runs."""
        with Archive(self.buffer, self.where) as archive:
            reader = _ManifestReader(archive, self.store, self.where)
            return reader.checked(reader.programs)

    def restored(
        self, image: bytes, read: Callable[[], tuple[Flow, Flow]], background: Background
    ) -> Plan | None:
        """The plan of an image; None where it has to be made again."""
        try:
            restored = PlanImage.from_bytes(image).restore(self.find)
        except (LookupError, StoreError):
            return None  # the code has gone, or the file is damaged, which is then found out
        return restore(restored, read, check_limits, background=background)


def derived(plan: Plan, name: str, make: Callable[[], Flow]) -> Plan:
    """The plan of a program made of this plan's, by `name`.

    That of a plan from a file has an image by the file, whose parameters it shares; `make` is then
    called when the program is looked at.
    """
    source, key = plan.source, f"{name} {os.environ.get('PRETZEL_WITHOUT', '')}"
    file = source if isinstance(source, PlanSource) and not debug.asked() else None
    entry = file and image_cache.find(file.buffer, key)
    if file is None or entry is None:
        return bakers[-1](make(), exact=plan.exact)

    def read() -> tuple[Flow, Flow]:
        from oven.optimise.rewrite import optimise

        flow = without_unread(make())
        return flow, optimise(flow, exact=plan.exact)

    known = None if entry.image is None else file.restored(entry.image, read, None)
    if known is not None:
        return known
    made = Plan(*read(), exact=plan.exact, check=check_limits)
    keep_image(made, entry.name, Archive(file.buffer, file.where))
    return made


def _plan_in(
    buffer: Container,
    where: str,
    store: Store | None,
    *,
    background: Background = None,
    allow_python: bool = False,
) -> Plan:
    try:
        with allowing(allow_python):
            plan = _loaded(buffer, where, store, background=background)
    finally:
        release(buffer)  # verifying has read all of it, a row reads a part
    plan.source = PlanSource(buffer, where, store)
    if not plan.program.in_memory and not isinstance(buffer, Copied):
        # Have what single rows read of the file in memory before the first one waits for it.
        #
        # Documents may need any part of their dictionaries. A row of numbers reads a part of what
        # there is for blocks, and about the same part as any other row does.
        read = (item.array for item in plan.program.resident() if isinstance(item, Blob))
        (run,) = plan.code.steps  # as of all restored plans
        assert isinstance(run, NativeRun), "only native code has an image"
        brief = run.form.plain and run.row_work <= PRACTICE_BYTES
        if settle(buffer, read, AT_ONCE if brief else None):
            run.practise()
    plan.training = partial(told.read, buffer, where)
    return plan


def _loaded(buffer: Container, where: str, store: Store | None, *, background: Background) -> Plan:
    """The plan in these bytes: from its image, or made again."""
    entry = None if debug.asked() else image_cache.find(buffer)
    if entry is not None and entry.image is not None:
        source = PlanSource(buffer, where, store)
        plan = source.restored(entry.image, source.programs, background)
        if plan is not None:
            return plan
    with Archive(buffer, where) as archive:
        reader = _ManifestReader(archive, store, where)
        plan = reader.checked(lambda: reader.plan(background=background))
        if plan.ready and plan.code.tier:
            write_image(plan.program, archive, entry)
    characters.compare(reader.manifest.get("unicode"), where)
    if debug.asked():
        for report in reporters:
            report(plan, None)
    return plan


def code_levels(path: str | Path) -> tuple[str, ...]:
    """The levels of processors whose machine code is in the file of a plan."""
    from oven.plans import carried

    with Archive.open(path) as archive:
        return tuple(carried.level_names(archive.manifest))


# --- reading ----------------------------------------------------------------------------------


class _ManifestReader:
    """A manifest that becomes a plan; nothing in it is believed."""

    def __init__(self, archive: Archive, store: Store | None, where: str) -> None:
        self.manifest: Mapping[str, Any] = archive.manifest
        self.where, self._archive, self._store = where, archive, store

    def find(self, digest: str) -> Parameter:
        """A parameter: of the file, or of the store, which is given what it lacks."""
        if self._store is None:
            return self._archive.get(digest)
        if digest not in self._store:
            self._store.put(self._archive.get(digest))
        return self._store.get(digest)

    def checked(self, make: Callable[[], T]) -> T:
        """The result of `make`; any error in it is reported as damage of the file."""
        try:
            return make()
        except (CompileError, DamagedPlan, PythonRefused):
            raise
        except (FlourError, MissingBlob, BadDigest) as problem:
            damaged = self.damaged(problem.what, problem.found)
            damaged.hint = problem.hint
            raise damaged from problem
        except STUMBLES as problem:
            raise self.damaged("this program makes no sense", str(problem)) from problem

    def programs(self) -> tuple[Flow, Flow]:
        """The program as it was written, and what runs."""
        self._check_keys()
        nodes = self._nodes()
        origins: dict[Node, tuple[Origin, ...]] = {}
        for item in self._list("origins"):
            match item:
                case [place, list(found)] if _is_index(place, len(nodes)):
                    origins[nodes[place]] = tuple(map(self._origin, found))
                case _:
                    raise self.damaged("this is not an origin", repr(item)[:80])
        optimised = _with_its_own(self._outputs("optimised", nodes), origins)
        flow = _with_its_own(self._outputs("flow", nodes), origins)
        # What runs must answer what was written: same names, same types, no other inputs.
        if flow.types != optimised.types or list(flow.outputs) != list(optimised.outputs):
            raise self.damaged("the optimised program has other outputs", repr(optimised))
        known = flow.inputs()
        if any(known.get(name) != kind for name, kind in optimised.inputs().items()):
            raise self.damaged("the optimised program has other inputs", repr(optimised.inputs()))
        return flow, optimised

    def plan(self, *, background: Background) -> Plan:
        """The plan, after all checks."""
        self._check_keys()
        # Held until the plan has its own: what code needs is then found here, not made a second
        # time.
        found = self._list("derived")
        if not all(isinstance(item, str) for item in found):
            raise self.damaged("derived parameters are named by digest", repr(found)[:80])
        derived = [self.find(digest) for digest in found]
        flow, optimised = self.programs()
        exact = self.manifest["exact"]
        plan = Plan(flow, optimised, exact=exact, background=background, check=check_limits)
        del derived
        return plan

    def damaged(self, what: str, found: str | None = None) -> DamagedPlan:
        """The error that says so, and where."""
        return DamagedPlan(what, where=self.where, found=found[:200] if found else None)

    def _check_keys(self) -> None:
        form = self.manifest.get("format")
        if form != FORMAT or isinstance(form, bool):
            raise DamagedPlan(
                "this is not a plan this release can read",
                where=self.where,
                found=f"format {form!r:.40}, this release reads format {FORMAT}",
                hint="save it again with this release, or update",
            )
        keys = self.manifest.keys()
        if keys - MORE_KEYS != KEYS or not isinstance(self.manifest["exact"], bool):
            raise self.damaged("the manifest is not that of a plan", ", ".join(keys))
        known = self.manifest.get("unicode", "")
        if not isinstance(known, str) or len(known) > _LONG_VERSION:
            raise self.damaged("this is no version of Unicode", repr(known)[:80])
        if not isinstance(self.manifest.get("training", ""), str):
            raise self.damaged("what is known of the training is named by a digest")

    def _list(self, key: str, most: int = MAX_NODES) -> list[Any]:
        found = self.manifest[key]
        if not isinstance(found, list) or len(found) > most:
            raise self.damaged(f"{key} is no list, or too long", repr(found)[:80])
        return found

    def _nodes(self) -> list[Node]:
        made: list[Node] = []
        for item in self._list("nodes"):
            match item:
                case [op, list(inputs)] if all(_is_index(i, len(made)) for i in inputs):
                    made.append(node(from_data(op, self.find), [made[i] for i in inputs]))
                case _:
                    raise self.damaged(f"node {len(made)} is not a node", repr(item)[:80])
        return made

    def _outputs(self, key: str, nodes: Sequence[Node]) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for item in self._list(key):
            match item:
                case [str(name), place] if _is_index(place, len(nodes)) and name not in found:
                    found[name] = nodes[place]
                case _:
                    raise self.damaged(f"{key} has something that is no output", repr(item)[:80])
        return found

    def _origin(self, data: object) -> Origin:
        match data:
            case [str(file), int(line), str(step)] if not isinstance(line, bool):
                # What is kept for the next plans is short: a file may come from anybody.
                short = len(file) + len(step) <= SHORT_ORIGIN
                return _origin(file, line, step) if short else Origin(file, line, step)
        raise self.damaged("this is not an origin", repr(data)[:80])


def _with_its_own(outputs: Mapping[str, Node], origins: Mapping[Node, tuple[Origin, ...]]) -> Flow:
    """A program that knows where its own nodes come from."""
    inside = topological(outputs.values())
    return with_origins(outputs, {item: origins[item] for item in inside if item in origins})


@lru_cache(4096)  # plans come from few lines of few programs
def _origin(file: str, line: int, step: str) -> Origin:
    return Origin(file, line, step)


def _is_index(value: object, end: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end
