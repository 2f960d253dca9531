"""Processors that artefacts are made for: object code of an image, linkers, emulators.

LLVM aborts on some code for WebAssembly with vectors, so what it does to this process must not
matter: it is another one, and is asked again without vectors.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from oven.compiler import levels, machine
from oven.compiler.machine import Aim
from oven.errors import NotExportable
from oven.export.image import Image

WASM = "wasm32-unknown-unknown"
#: Features that every engine of the last years has; the first is left out where the compiler fails.
_SIMD, _WASM_FEATURES = "+simd128", "+bulk-memory,+nontrapping-fptoint,+sign-ext"
#: Fits every x86-64 server since 2009.
_X86 = "x86-64-v2"
#: A linker or a compiler may take so many seconds.
SECONDS = 600.0


def aim_of(triple: str, level: str = "", *, simd: bool = True) -> Aim:
    """The processor of this level that code is exported for, or the least of its kind."""
    kind = levels.architecture(triple)
    if kind == "wasm32":
        features = f"{_SIMD},{_WASM_FEATURES}" if simd else _WASM_FEATURES
        return Aim("generic", features, triple, linked=True)
    found = levels.named(level or (_X86 if kind == "x86_64" else "aarch64"))
    if found is None or levels.architecture(found.triple) != kind:
        raise NotExportable(
            "shared libraries are made for x86-64 and 64-bit ARM",
            found=f"{triple} {level}".strip(),
            hint="--to c has sources for every other processor",
        )
    return Aim(found.cpu, found.listed, triple, linked=True)


def this_machine() -> str:
    """The triple of this process."""
    return machine.host().triple


def write_object(image: Image, triple: str, made: Path, levels: Sequence[str] = ()) -> list[Path]:
    """Write an image as object code; that of further levels of processors is in files beside it."""
    index = {blob: place for place, blob in enumerate(image.parameters)}
    order = {
        "name": image.name,
        "about": image.about,
        "functions": image.functions,
        "levels": [*levels],
        "columns": [len(image.inputs), len(image.outputs), int(image.texts)],
        "table": [word if isinstance(word, int) else [index[word]] for word in image.table],
        "sizes": [blob.array.nbytes for blob in image.parameters],
    }
    data = b"".join(blob.array.tobytes() for blob in image.parameters)
    made.with_suffix(".parameters").write_bytes(data)
    objects = [(made, ""), *((made.with_name(f"{level}.o"), level) for level in levels)]
    for file, level in objects:
        file.with_suffix(".json").write_text(json.dumps(order), encoding="utf-8")
        aim = aim_of(triple, level)
        try:
            _write(aim, file, level)
        except NotExportable:
            if "simd" not in aim.features:
                raise
            _write(aim_of(triple, simd=False), file, level)
    return [file for file, _ in objects]


def _write(aim: Aim, file: Path, level: str) -> None:
    what = f"LLVM's code generator for {aim.triple}"
    run_apart("oven.compiler.linkable", [*aim[:3], str(file), level], what)


def is_own(triple: str) -> bool:
    """True if this process can load what is made for a triple."""
    return levels.architecture(triple) == levels.architecture(this_machine())


def link_shared(objects: Sequence[Path], made: Path, triple: str) -> None:
    """Link object code into a shared library that needs nothing but memcpy and its kin.

    It names no library of C, as that of the program has them: glibc, musl, or another.
    """
    kind = levels.architecture(triple)
    compiler = "cc" if is_own(triple) else f"{kind}-linux-gnu-gcc"
    ways = [[compiler, "-shared", "-nostdlib"]] if shutil.which(compiler) else []
    ways += [[name, "-shared"] for name in _found("ld.lld")]
    ways += [[*zig, "cc", f"--target={kind}-linux-gnu", "-shared", "-nostdlib"] for zig in _zig()]
    _run(ways, ["-s", "-o", str(made), *map(str, objects)], "a linker", "apt install gcc or lld")


def link_wasm(object_file: Path, made: Path, exported: Sequence[str]) -> None:
    """Link object code into a module that has its memory and imports nothing."""
    names = [f"--export={name}" for name in (*exported, "__heap_base")]
    ways = [[name] for name in _found("wasm-ld")] + [[*zig, "wasm-ld"] for zig in _zig()]
    rest = ["--no-entry", "--strip-all", *names, "-o", str(made), str(object_file)]
    _run(ways, rest, "wasm-ld", "apt install lld, or pip install ziglang")


def emulator(triple: str) -> tuple[str, list[str]] | None:
    """A C compiler for another processor, and the command that runs its programs; or None."""
    kind = levels.architecture(triple)
    compiler, program = (shutil.which(name) for name in (f"{kind}-linux-gnu-gcc", f"qemu-{kind}"))
    if compiler is None or program is None:
        return None
    libc = Path(run([compiler, "-print-file-name=libc.so.6"], "the C compiler").strip())
    # Without the files of its C library, a compiler tells the name alone.
    return (compiler, [program, "-L", str(libc.parents[1])]) if libc.is_absolute() else None


def _found(name: str) -> list[str]:
    """A program of this name, or under the name of its version, if there is one."""
    names = (name, *(f"{name}-{version}" for version in range(22, 13, -1)))
    return [path for each in names if (path := shutil.which(each))][:1]


def _zig() -> list[list[str]]:
    return [[sys.executable, "-m", "ziglang"]] if find_spec("ziglang") is not None else []


def _run(ways: Sequence[Sequence[str]], rest: Sequence[str], what: str, hint: str) -> None:
    """Run the first of several commands that is there."""
    if not ways:
        raise NotExportable(f"{what} is needed, and none is installed", hint=hint)
    run([*ways[0], *rest], what)


#: A function `main` of ours in a process that finds modules where this one does.
_PROGRAM = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "importlib.import_module(sys.argv[2]).main(*sys.argv[3:])"
)


def run_apart(module: str, arguments: Sequence[str], what: str) -> None:
    """Run the `main` of a module of ours in a process of its own."""
    paths = json.dumps([each or str(Path.cwd()) for each in sys.path])
    run([sys.executable, "-c", _PROGRAM, paths, module, *arguments], what)


def run(command: Sequence[str], what: str) -> str:
    """The output of a command; NotExportable quotes it where the command fails."""
    try:
        done = subprocess.run(  # noqa: S603 (compilers, linkers, and programs of ours)
            command, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise NotExportable(f"{what} took more than {SECONDS:g} s", where=command[0]) from late
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        said = [line for line in lines if "error" in line.lower()] or lines
        found = " / ".join(said[-3:])[:400] or f"exit code {done.returncode}"
        raise NotExportable(f"{what} failed", where=command[0], found=found)
    return done.stdout
