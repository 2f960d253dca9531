"""Plans as data: one file with a manifest and parameters; no pickle, no Python names, and no code
unless it was asked for, which is not looked at unless the reader trusts the file.

    format      the version of this layout
    exact       whether the plan was baked with rules that keep every bit only
    nodes       [[operator, [index of each input]], ...]     inputs before readers
    optimised   [[output name, index], ...]                  what runs
    flow        [[output name, index], ...]                  the program as it was written
    origins     [[index, [[file, line, step], ...]], ...]    where nodes come from
    derived     [digest, ...]                                parameters made for native code
    unicode     the version whose characters the program knows; absent where it reads no text
    code        {level of processors: digest of a pack}; absent unless it was asked for
    training    digest of what was known at the import; absent where nothing was

Operators and types are written by `flour.core.op.to_data` and `flour.core.types.to_data`;
parameters are blobs of the container (see objectstore.archive), named by digest and mapped, not
copied.

A file may come from anybody. Every node is made again through its operator's own checks and type
rule, so what loads is a program that could have been written by hand; code is emitted from it and
found in the code cache. Anything else is an error before any of it runs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, TypeVar
from weakref import ref

from flour.core.callables import allowing
from flour.core.errors import FlourError, PythonRefused
from flour.core.node import Node, node, topological
from flour.core.op import Parameter, from_data, to_data
from flour.core.provenance import Origin
from flour.core.types import Vector
from flour.language.flow import Flow, with_origins, without_unread
from objectstore import Archive, BadDigest, Blob, MissingBlob, StoreError
from objectstore.archive import array_at, copied, opened, write
from objectstore.layout import ArrayRecord, Container, Copied
from objectstore.mapping import AT_ONCE, frozen_bytes, read_only, release, settle
from oven import debug
from oven.codegen.ports import Port
from oven.codegen.stages import Stage, Value, row_bytes
from oven.compiler import machine
from oven.errors import CompileError, DamagedPlan
from oven.plans import characters, image_cache
from oven.plans import training as told
from oven.plans.background import Background
from oven.plans.image import PlanImage, image_of, keep
from oven.plans.image_cache import Entry
from oven.plans.plan import Plan, bakers, reporters, restore
from oven.run.native_run import NativeRun

# Limits on the resources of a plan from a file.
#
# A program written here is as large as its author wants. One from a file is held to these limits,
# so that a few bytes that describe something huge cannot make a server run out of memory: far above
# what fitted pipelines need, far below what hurts.


MAX_NODES = 1 << 16
"""Of both programs together; a bagging of a hundred pipelines has some thousand."""

MAX_ROW_BYTES = 1 << 27
"""Of one value in one row, where it is dense: 16 million float64."""

MAX_SCRATCH_BYTES = 1 << 30
"""Of the memory in which a thread computes one row (or block) of a stage."""


def check_limits(stages: Iterable[Stage]) -> None:
    """Raise DamagedPlan if running these stages would take absurd amounts of memory."""
    for stage in stages:
        for value in (*stage.inputs, *stage.outputs):
            if isinstance(value.type, Vector) and row_bytes(value.type) > MAX_ROW_BYTES:
                _check_sparse(value, stage, f"{value.type}: {row_bytes(value.type):,} bytes a row")
        scratch = sum(slot.scratch or 0 for slot in stage.slots)
        if scratch > MAX_SCRATCH_BYTES:
            found = f"{scratch:,} bytes of scratch, at most {MAX_SCRATCH_BYTES:,} are allowed"
            raise DamagedPlan("a stage needs too much memory", where=stage.title, found=found)


def _check_sparse(value: Value, stage: Stage, size: str) -> None:
    """Raise DamagedPlan unless the stage has this wide vector without its zeros."""
    assert isinstance(value.type, Vector)
    stored = value.type.sparse and not stage.source and not isinstance(value, Port)
    if not stage.stores(value) and not (stored and stage.nodes[-1].op.takes_sparse):
        found = f"{size}, at most {MAX_ROW_BYTES:,} are allowed"
        raise DamagedPlan("a vector is too wide", where=stage.title, found=found)


if TYPE_CHECKING:
    from objectstore import Store

T = TypeVar("T")

FORMAT = 1
"""Of the manifest. Another one has another meaning and is refused."""

DERIVED_BYTES = 4096
"""Parameters made for native code travel along from this size on: smaller ones are made faster."""

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

KEYS = {"derived", "exact", "flow", "format", "nodes", "optimised", "origins"}
MORE_KEYS = {"unicode", "code", "training"}


def save(
    plan: Plan,
    path: str | Path,
    *,
    durable: bool = True,
    code: Sequence[str] = (),
    training: Mapping[str, Any] | None = None,
) -> None:
    """Write the plan; a file that is there is replaced in one step.

    `code` adds machine code for levels of processors, such as "x86-64-v3" or "host", which
    `oven.load(path, trust_code=True)` uses: see docs/explanation/cold-start.md. `training` is what
    is known of it, as data; without one, what the plan was loaded with.
    """
    # Parameters that native code reads and no operator names, where they are worth their place.
    read = {item.digest: item for stage in plan.program.stages for item in stage.parameters()}
    named = _named(plan)
    derived = {
        digest: item
        for digest, item in read.items()
        if digest not in named and item.nbytes >= DERIVED_BYTES
    }
    manifest = describe(plan) | {"derived": sorted(derived)}
    if len(manifest["nodes"]) > MAX_NODES:
        raise DamagedPlan(
            "this plan is too large to be saved",
            found=f"{len(manifest['nodes']):,} nodes, at most {MAX_NODES:,} are allowed",
        )
    more: dict[str, Parameter] = {}
    if code:
        from oven.plans import ahead, carried

        names = ahead.level_names(code, "save(code=...)")
        with tempfile.TemporaryDirectory(prefix="pretzel-") as folder:
            alone = Path(folder) / "a.plan"
            write(alone, manifest, named | derived, durable=False)
            made = carried.compiled(alone, names)
        manifest["code"] = {name: blob.digest for name, blob in made.items()}
        more = {blob.digest: blob for blob in made.values()}
    known = plan.training() if training is None else training
    if known:
        kept = told.as_blob(known)
        manifest["training"], more[kept.digest] = kept.digest, kept
    write(path, manifest, named | derived | more, durable=durable)
    _remember(plan, path)


def _remember(plan: Plan, path: str | Path) -> None:
    """Write the image of a plan that was saved just now: the next process loads that."""
    if not plan.ready or not plan.code.tier:
        return
    try:
        check_limits(plan.program.stages)
        buffer = read_only(path)
    except (DamagedPlan, OSError, StoreError):
        return  # it can be saved; what is wrong with it is said when it is loaded
    _write_image(plan, Archive(buffer, str(path)), image_cache.find(buffer))


def _write_image(plan: Plan, archive: Archive, entry: Entry | None) -> None:
    """Write a plan's image, unless there is one; not of a plan whose loading has to warn.

    Nor of one that numba was to compile: that is not in the file.
    """
    silent = archive.manifest.get("unicode") in (None, characters.VERSION)
    usual = plan.program.compiler == machine.compiler()
    if entry is not None and entry.image is None and silent and usual:
        made = image_of(plan, archive)
        if made is not None:
            image_cache.write(entry.name, made.to_bytes())


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
    buffer = file if mapped or file.nbytes > _READ_AT_MOST else copied(file)
    if trust_code:
        from oven.plans import carried

        carried.offer(buffer, str(path))
    return _plan_in(buffer, str(path), store, background=background, allow_python=allow_python)


def to_bytes(plan: Plan, training: Mapping[str, Any] | None = None) -> bytes:
    """Return the bytes of a file of the plan; `training` is that of `save`."""
    with tempfile.TemporaryDirectory(prefix="pretzel-") as folder:
        path = Path(folder) / "a.plan"
        save(plan, path, durable=False, training=training)
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
    archive = Archive(file.buffer, file.where)
    made.code.when_ready(partial(keep, ref(made), entry.name, archive))
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
            _write_image(plan, archive, entry)
    characters.compare(reader.manifest.get("unicode"), where)
    if debug.asked():
        for report in reporters:
            report(plan, None)
    return plan


def describe(plan: Plan) -> dict[str, Any]:
    """The manifest of a plan, but for its derived parameters."""
    # What runs comes first, so that its nodes are the first of the file.
    flows = {"optimised": plan.program.optimised, "flow": plan.flow}
    places: dict[Node, int] = {}
    origins: dict[int, dict[Origin, None]] = {}
    for flow in flows.values():
        for item in flow.nodes():
            places.setdefault(item, len(places))
    for flow in flows.values():
        for item, found in flow.origins().items():
            if item in places:
                origins.setdefault(places[item], {}).update(dict.fromkeys(found))
    known = characters.version(*flows.values())
    return {
        "format": FORMAT,
        "exact": plan.exact,
        "nodes": [
            [to_data(each.op), [places[source] for source in each.inputs]] for each in places
        ],
        **{
            name: [[output, places[item]] for output, item in flow.outputs.items()]
            for name, flow in flows.items()
        },
        "origins": [[n, [list(origin) for origin in origins[n]]] for n in sorted(origins)],
        **({"unicode": known} if known else {}),
    }


def _named(plan: Plan) -> dict[str, Parameter]:
    """The parameters that operators name, by digest."""
    nodes = (item for flow in (plan.program.optimised, plan.flow) for item in flow.nodes())
    return {each.digest: each for item in nodes for each in item.op.parameters()}


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


__all__ = ["DERIVED_BYTES", "FORMAT", "STUMBLES", "code_levels", "describe", "load", "save"]
