"""Plans for where there is no Python: C, shared libraries, WebAssembly.

    from oven.export import export

    export(plan, "out", to="wasm", name="churn")

An artefact has the plan's preprocessing and model for the outputs that are asked for, and answers
with the same bits on every processor: those of `image.portable_plan`. It is handed out once it has
answered sample rows like that.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from flour.core.errors import are_texts
from oven.compiler.levels import architecture
from oven.compiler.linkable import CHOSEN_AT_LOAD
from oven.errors import NotExportable
from oven.export import replay, targets
from oven.export.c_file import header, write_c, write_faces
from oven.export.image import Image, identifier, image_of
from oven.export.npm import write_demo, write_package
from oven.export.report import Report, measured
from oven.export.wasi import write_command
from oven.plans.plan import Plan

#: The forms of artefacts.
Form = Literal["c", "so", "wasm", "wasi", "npm"]
_LONGEST_NAME = 100
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
    #: The reason why it has answered no rows, if it has not.
    unseen: str = ""


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
    _check(to, target, cpus, blocks=blocks, float32=float32)
    outputs = _texts(version, outputs)
    if not isinstance(plan, Plan):
        raise NotExportable(
            "a plan is exported, not a graph of several",
            found=type(plan).__name__,
            hint="export the models that it names, one by one",
        )
    image = image_of(plan, _named(name), version, outputs, blocks=blocks, float32=float32)
    sample = replay.sample_of(image, plan, rows) if verify else None
    with tempfile.TemporaryDirectory(prefix="pretzel-export-") as directory:
        work = Path(directory)
        triple = target or targets.this_machine()
        files, answers = _WRITERS[to](image, work, triple, cpus)
        unseen = answers if isinstance(answers, str) else "" if verify else "it was not asked to"
        rows_seen, away, apart = 0, 0.0, None
        if sample is not None and not isinstance(answers, str):
            found, rows_seen, away = answers(sample), sample.rows, sample.away
            if float32:
                apart = replay.compare(image, sample, found)
                away = apart.absolute
            else:
                replay.check(image, sample, found)
        report = measured(image, files[1], target, cpus, apart) if float32 else None
        if report is not None:
            write_faces(image, work, report.lines())
        if to == "npm":
            files.append(write_demo(image, work, sample))
        into = Path(folder)
        into.mkdir(parents=True, exist_ok=True)
        _check_places([into / file.name for file in files])
        made = tuple(Path(shutil.copy(file, into / file.name)) for file in files)
    return Exported(made, rows_seen, away, image.about, report, unseen)


#: A text that every file of an export has in it.
_OURS = re.compile(rb"plan [0-9a-f]{32}, image [0-9a-f]{32}")


def _check_places(files: Sequence[Path]) -> None:
    """Refuse to write over what no export has written; an empty file may be of one that ended."""
    for file in filter(os.path.lexists, files):
        status = file.lstat()
        regular = stat.S_ISREG(status.st_mode)
        if not regular or (status.st_size and not _OURS.search(file.read_bytes())):
            raise NotExportable(
                "something of this name is there that no export has written",
                where=str(file),
                hint="choose another folder or name",
            )


def _named(name: object) -> str:
    """The name of files and functions."""
    if isinstance(name, str) and re.search("[A-Za-z0-9]", name) and len(name) <= _LONGEST_NAME:
        return identifier(name)
    raise NotExportable(
        "files and functions cannot have this name",
        found=repr(name)[:80],
        hint=f"name= (--name) with letters of a to z or digits, {_LONGEST_NAME} characters at most",
    )


def _texts(version: object, outputs: str | Sequence[str]) -> Sequence[str]:
    """The names of outputs, once they and the version are texts."""
    outputs = [outputs] if isinstance(outputs, str) else outputs
    for option, given, texts in (("version", version, [version]), ("outputs", outputs, outputs)):
        if not are_texts(texts):
            raise NotExportable(f"{option} takes texts alone", found=f"{option}={given!r}"[:80])
    return outputs


def _check(to: Form, triple: str, cpus: Sequence[str], *, blocks: bool, float32: bool) -> None:
    """Refuse options that do not go together."""
    target = ", ".join([triple, *cpus]).strip(", ")
    unknown = [each for each in cpus if each not in CHOSEN_AT_LOAD and to == "so"]
    of_library = bool(target) and to != "so" and not float32
    forms, why = ", ".join(get_args(Form)), "blocks of rows are for vectors, and C has none"
    for refused, reason, found, hint in (
        (to not in forms.split(", "), "there is no such form of an export", to, f"one of {forms}"),
        (float32 and to != "c", "float32 is for C", to, "to='c'"),
        (of_library, "targets and CPUs are for shared libraries, or float32", target, "to='so'"),
        (unknown, "no library chooses such code", unknown, f"one of {', '.join(CHOSEN_AT_LOAD)}"),
        (blocks and to == "c", why, to, "to='so', or without blocks"),
    ):
        if refused:
            raise NotExportable(reason, found=repr(found)[:80], hint=hint)


#: The files of an artefact, and what it answers; or why nothing here can run it.
Artefact = tuple[list[Path], Callable[[replay.AnsweredRows], replay.Answers] | str]


def _shared(image: Image, work: Path, triple: str, levels: Sequence[str]) -> Artefact:
    library = work / f"{image.name}.so"
    objects = targets.write_object(image, triple, work / "code.o", levels)
    targets.link_shared(objects, library, triple)
    files = [library, *write_faces(image, work)]
    if not targets.is_own(triple) and targets.emulator(triple) is None:
        kind = architecture(triple)
        return files, f"there is no qemu-{kind}, or no {kind}-linux-gnu-gcc with its C library"
    return files, lambda sample: replay.by_library(image, sample, library, triple)


def _source(image: Image, work: Path, *_: object) -> Artefact:
    files = write_c(image, work)
    compiler, library = shutil.which("cc"), work / f"{image.name}.so"
    if compiler is None and image.single:
        return files, "there is no C compiler"

    def answers(sample: replay.AnsweredRows) -> replay.Answers:
        if compiler is None:
            raise NotExportable(
                "a C compiler is needed to verify the export", hint="apt install gcc"
            )
        command = [compiler, *_STRICT, "-o", str(library), str(files[1]), "-lm"]
        targets.run(command, "the C compiler")
        return replay.by_library(image, sample, library, targets.this_machine())

    return files, answers


def _module(image: Image, work: Path, *_: object) -> Artefact:
    code, module, face = (work / f"{image.name}.{ending}" for ending in ("o", "wasm", "h"))
    targets.write_object(image, targets.WASM, code)
    entries = ("predict", "scratch_size", "version")
    targets.link_wasm(code, module, [f"{image.name}_{each}" for each in entries])
    face.write_text(header(image), encoding="utf-8")
    write_package(image, work)
    return [module, face], lambda sample: replay.by_package(image, sample, work)


def _package(image: Image, work: Path, *_more: object) -> Artefact:
    (module, _), answers = _module(image, work)
    return [module, *write_package(image, work)], answers


def _command(image: Image, work: Path, *_more: object) -> Artefact:
    """A command around a module's object code, which answers the sample."""
    command = work / f"{image.name}-command.wasm"
    _, answers = _module(image, work)
    write_command(image, work / f"{image.name}.o", command)
    return [command], answers


_WRITERS: dict[Form, Callable[[Image, Path, str, Sequence[str]], Artefact]]
_WRITERS = {"c": _source, "so": _shared, "wasm": _module, "wasi": _command, "npm": _package}
