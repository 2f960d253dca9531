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

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flour.core.node import Node
from flour.core.op import Parameter, to_data
from flour.core.provenance import Origin
from flour.core.types import Vector
from objectstore import Archive, StoreError
from objectstore.archive import write
from objectstore.mapping import read_only
from oven.codegen.ports import Port
from oven.codegen.stages import Stage, Value, row_bytes
from oven.compiler import machine
from oven.errors import DamagedPlan
from oven.plans import characters, image_cache
from oven.plans import training as told
from oven.plans.code import PlanCode
from oven.plans.image import image_of
from oven.plans.image_cache import Entry
from oven.plans.program import PlanProgram

FORMAT = 1
"""Of the manifest. Another one has another meaning and is refused."""

DERIVED_BYTES = 4096
"""Parameters made for native code travel along from this size on: smaller ones are made faster."""

KEYS = {"derived", "exact", "flow", "format", "nodes", "optimised", "origins"}
MORE_KEYS = {"unicode", "code", "training"}


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


def save(
    program: PlanProgram,
    code: PlanCode,
    path: str | Path,
    *,
    durable: bool = True,
    levels: Sequence[str] = (),
    training: Mapping[str, Any],
) -> None:
    """Write a plan; a file that is there is replaced in one step.

    `levels` adds machine code for levels of processors, such as "x86-64-v3" or "host", which
    `oven.load(path, trust_code=True)` uses: see docs/explanation/cold-start.md. `training` is what
    is known of it, as data.
    """
    # Parameters that native code reads and no operator names, where they are worth their place.
    read = {item.digest: item for stage in program.stages for item in stage.parameters()}
    named = _named(program)
    derived = {
        digest: item
        for digest, item in read.items()
        if digest not in named and item.nbytes >= DERIVED_BYTES
    }
    manifest = described(program) | {"derived": sorted(derived)}
    if len(manifest["nodes"]) > MAX_NODES:
        raise DamagedPlan(
            "this plan is too large to be saved",
            found=f"{len(manifest['nodes']):,} nodes, at most {MAX_NODES:,} are allowed",
        )
    more: dict[str, Parameter] = {}
    if levels:
        from oven.plans import ahead, carried

        names = ahead.level_names(levels, "save(code=...)")
        with tempfile.TemporaryDirectory(prefix="pretzel-") as folder:
            alone = Path(folder) / "a.plan"
            write(alone, manifest, named | derived, durable=False)
            made = carried.compiled(alone, names)
        manifest["code"] = {name: blob.digest for name, blob in made.items()}
        more = {blob.digest: blob for blob in made.values()}
    if training:
        kept = told.as_blob(training)
        manifest["training"], more[kept.digest] = kept.digest, kept
    write(path, manifest, named | derived | more, durable=durable)
    if code.ready and code.tier:
        _remember(program, path)


def _remember(program: PlanProgram, path: str | Path) -> None:
    """Write the image of a plan that was saved just now: the next process loads that."""
    try:
        check_limits(program.stages)
        buffer = read_only(path)
    except (DamagedPlan, OSError, StoreError):
        return  # it can be saved; what is wrong with it is said when it is loaded
    write_image(program, Archive(buffer, str(path)), image_cache.find(buffer))


def write_image(program: PlanProgram, archive: Archive, entry: Entry | None) -> None:
    """Write a plan's image, unless there is one; not of a plan whose loading has to warn.

    Nor of one that numba was to compile: that is not in the file.
    """
    silent = archive.manifest.get("unicode") in (None, characters.VERSION)
    usual = program.compiler == machine.compiler()
    if entry is not None and entry.image is None and silent and usual:
        made = image_of(program, archive)
        if made is not None:
            image_cache.write(entry.name, made.to_bytes())


def described(program: PlanProgram) -> dict[str, Any]:
    """The manifest of a plan, but for its derived parameters."""
    # Nodes that run come first in the file.
    flows = {"optimised": program.optimised, "flow": program.flows[0]}
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
        "exact": program.exact,
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


def _named(program: PlanProgram) -> dict[str, Parameter]:
    """The parameters that operators name, by digest."""
    nodes = (item for flow in reversed(program.flows) for item in flow.nodes())
    return {each.digest: each for item in nodes for each in item.op.parameters()}
