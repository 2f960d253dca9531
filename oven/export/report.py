"""A report on C in float32: what it takes of a machine's memory, and what float32 changed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from oven.export.image import Image
from oven.export.replay import FAR, RELATIVE, Differences
from oven.export.targets import run
from oven.run.run_signature import WORD

#: The names that memory is measured for, if no others are given.
_TARGET, _CPU = "arm-none-eabi", "cortex-m4"


class Report(NamedTuple):
    """Bytes of memory, and differences to the float64 plan; None is not known."""

    constants: int
    #: Of the caller, for a thread.
    scratch: int
    code: int | None = None
    #: Of a call.
    stack: int | None = None
    #: The compiler that code and stack are of, with its processor.
    machine: str = ""
    differences: Differences | None = None

    def facts(self) -> dict[str, object]:
        """The report as data."""
        apart = self.differences and self.differences._asdict()
        return {**self._asdict(), "differences": apart}

    def lines(self) -> list[str]:
        """The report as text."""
        said = ["float32; not compared with the float64 plan, as it was not built and run"]
        if self.differences is not None:
            rows, absolute, relative, far, equal, trees = self.differences
            said[0] = (
                f"float32; the numbers of {rows:,} rows are within {absolute:.1e} of those of the "
                f"float64 plan, from {RELATIVE} on within {relative:.1e} of their size"
            )
            if equal is not None:
                said.append(f"labels are equal for {round(equal * rows):,} of them")
            why = " (next to a tree's threshold, a row may take the other side)" * trees
            said.append(f"{far:,} rows are further away than {FAR}{why}")
        said.append(f"constants {self.constants:,} bytes, scratch memory {self.scratch:,}")
        said.append(f"code and the stack of a call were not measured: no {self.machine} is here")
        if self.code is not None:
            said[-1] = (
                f"code {self.code:,} bytes, stack of a call {self.stack:,}, besides the functions "
                f"of the C library ({self.machine} -O2)"
            )
        return said


def measured(image: Image, source: Path, target: str, cpus: Sequence[str], done: object) -> Report:
    """The memory that C takes on this processor, as its compiler has it, if there is one."""
    apart = done if isinstance(done, Differences) else None
    scratch = int(re.findall(r"size = (\d+)", image.functions["scratch_size"])[0])
    held = sum(blob.array.nbytes for blob in image.parameters) + WORD * len(image.table)
    compiler, made = f"{target or _TARGET}-gcc", source.with_suffix(".o")
    if shutil.which(compiler) is None:
        return Report(held, scratch, machine=compiler, differences=apart)
    of = [f"-mcpu={cpu}" for cpu in [*cpus, *([] if target else [_CPU])][:1]]
    of += ["-mthumb", "-mfloat-abi=softfp"] * compiler.startswith("arm-")
    command = [compiler, *of, "-std=c99", "-O2", "-fcallgraph-info=su", "-c", "-o", str(made)]
    run([*command, str(source)], "the C compiler")
    listed = run([compiler.replace("gcc", "size"), "-A", str(made)], "the list of sections")
    sizes = dict.fromkeys(("text", "rodata", "data"), 0)
    for name, size in re.findall(r"^\.(text|rodata|data)\S* +(\d+)", listed, re.MULTILINE):
        sizes[name] += int(size)
    stack = _stack(made.with_suffix(".ci").read_text("utf-8"), f"{image.name}_predict")
    constants = sizes["rodata"] + sizes["data"]
    return Report(constants, scratch, sizes["text"], stack, " ".join([compiler, *of]), apart)


def _stack(calls: str, name: str) -> int:
    """The deepest stack of a function, by the compiler's graph of calls."""
    node = r'node: { title: "([^"]+)" label: "[^"]*?(\d+) bytes'
    own = {function: int(size) for function, size in re.findall(node, calls)}
    edges = re.findall(r'edge: { sourcename: "([^"]+)" targetname: "([^"]+)"', calls)

    def deepest(function: str) -> int:
        inner = (deepest(called) for caller, called in edges if caller == function)
        return own.get(function, 0) + max(inner, default=0)

    return deepest(name)
