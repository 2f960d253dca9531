"""Plans for where there is no Python: C, shared libraries, WebAssembly.

    from oven.export import export

    export(plan, "out", to="wasm", name="churn")

An artefact has the plan's preprocessing and model for the outputs that are asked for, and answers
with the same bits on every processor: those of `image.portable_plan`. It is handed out once it has
answered sample rows like that.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from oven.compiler.levels import architecture as _kind
from oven.errors import NotExportable
from oven.export import replay, targets
from oven.export.c_file import header, write_c, write_faces
from oven.export.image import Image, identifier, image_of
from oven.export.npm import write_demo, write_package
from oven.export.objects import write_object
from oven.export.report import Report, measured
from oven.export.wasi import write_command
from oven.plans.plan import Plan

#: The forms of artefacts.
Form = Literal["c", "so", "wasm", "wasi", "npm"]
_STRICT = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


class Exported(NamedTuple):
    """An artefact that was handed out."""

    files: tuple[Path, ...]
    #: Rows that it answered with the right bits (in float32, that were compared); none if nothing
    #: here runs it.
    rows: int
    #: The largest difference to a number of the plan itself (relative above 1, but in float32),
    #: whose code is for one processor.
    away: float
    about: str
    #: Of float32: what it takes and what it changes.
    report: Report | None = None


def export(  # noqa: PLR0913 (each is an option)
    plan: Plan,
    folder: str | Path,
    *,
    to: Form = "so",
    name: str = "model",
    version: str = "1",
    target: str = "",
    cpus: Sequence[str] = (),
    blocks: bool = False,
    float32: bool = False,
    outputs: Sequence[str] = (),
    rows: object = None,
    verify: bool = True,
) -> Exported:
    """Write a plan's artefact into a folder.

    `outputs` are those that it has: all but the numbers of leaves, unless they are named. `target`
    is the triple of a shared library, such as aarch64-linux-gnu; it also has code for
    these `cpus` (x86-64-v3, x86-64-v4), the best of which is chosen with the first call. With
    `blocks`, trees have code and tables for many rows at once, which takes more memory. `rows`
    verify it; without them, rows are made up.

    With `float32`, C has numbers of 32 bits alone and takes row after row, for small machines: the
    report, which is in the header as well, has the differences to the float64 plan, and the
    memory that it takes on a `target` (arm-none-eabi) with a CPU (cortex-m4).
    """
    _check(to, [target, *cpus], blocks=blocks, float32=float32)
    if not isinstance(plan, Plan):
        raise NotExportable(
            "a plan is exported, not a graph of several",
            found=type(plan).__name__,
            hint="export the models that it names, one by one",
        )
    image = image_of(plan, identifier(name), version, outputs, blocks=blocks, float32=float32)
    sample = replay.sample_of(image, plan, rows) if verify else None
    with tempfile.TemporaryDirectory(prefix="pretzel-export-") as directory:
        work = Path(directory)
        triple = target or targets.this_machine()
        files, answers = _WRITERS[to](image, work, triple, cpus)
        done: replay.Replayed | replay.Differences = replay.Replayed(0, 0.0)
        if sample is not None and answers is not None:
            done = (replay.compare if float32 else replay.check)(image, sample, answers(sample))
        report = measured(image, files[1], target, cpus, done) if float32 else None
        if report is not None:
            write_faces(image, work, report.lines())
        if to == "npm":
            files.append(write_demo(image, work, sample))
        into = Path(folder)
        into.mkdir(parents=True, exist_ok=True)
        made = tuple(Path(shutil.copy(file, into / file.name)) for file in files)
    return Exported(made, *done[:2], image.about, report)


def _check(to: Form, processors: Sequence[str], *, blocks: bool, float32: bool) -> None:
    """Refuse options that do not go together."""
    if to not in get_args(Form):
        hint = f"one of {', '.join(get_args(Form))}"
        raise NotExportable("there is no such form of an export", found=repr(to)[:80], hint=hint)
    if float32 and to != "c":
        raise NotExportable("float32 is for C", found=repr(to), hint="to='c'")
    found = ", ".join(processors).strip(", ")
    if found and to != "so" and not float32:
        raise NotExportable("a target is that of a shared library", found=found, hint="to='so'")
    if blocks and to == "c":
        raise NotExportable(
            "blocks of rows are for vectors, and C has none", hint="to='so', or without blocks"
        )


#: The files of an artefact, and what it answers; None where nothing here can run it.
Artefact = tuple[list[Path], Callable[[replay.AnsweredRows], replay.Answers] | None]


def _shared(image: Image, work: Path, triple: str, levels: Sequence[str]) -> Artefact:
    code, library = work / "code.o", work / f"{image.name}.so"
    objects = write_object(image, triple, code, levels)
    targets.link_shared(objects, library, triple)
    faces = write_faces(image, work)
    own = _kind(triple) == _kind(targets.this_machine())
    answers = (lambda sample: replay.by_library(image, sample, library)) if own else None
    return [library, *faces], answers


def _source(image: Image, work: Path, *_: object) -> Artefact:
    files = write_c(image, work)
    compiler, library = shutil.which("cc"), work / f"{image.name}.so"

    def answers(sample: replay.AnsweredRows) -> replay.Answers:
        if compiler is None:
            raise NotExportable(
                "a C compiler is needed to verify the export", hint="apt install gcc"
            )
        command = [compiler, *_STRICT, "-o", str(library), str(files[1]), "-lm"]
        targets.run(command, "the C compiler")
        return replay.by_library(image, sample, library)

    return files, answers if compiler or not image.single else None


def _module(image: Image, work: Path, *_: object) -> Artefact:
    code, module = work / "code.o", work / f"{image.name}.wasm"
    write_object(image, targets.WASM, code)
    entries = ("predict", "scratch_size", "version")
    targets.link_wasm(code, module, [f"{image.name}_{each}" for each in entries])
    write_package(image, work)
    face = work / f"{image.name}.h"
    face.write_text(header(image), encoding="utf-8")
    return [module, face], lambda sample: replay.by_package(image, sample, work)


def _package(image: Image, work: Path, *_more: object) -> Artefact:
    (module, _), answers = _module(image, work)
    return [module, *write_package(image, work)], answers


def _command(image: Image, work: Path, *_more: object) -> Artefact:
    """A command around a module's object code, which answers the sample."""
    _, answers = _module(image, work)
    command = work / f"{image.name}-command.wasm"
    write_command(image, work / "code.o", command)
    return [command], answers


_WRITERS: dict[Form, Callable[[Image, Path, str, Sequence[str]], Artefact]]
_WRITERS = {"c": _source, "so": _shared, "wasm": _module, "wasi": _command, "npm": _package}
