"""`pretzel export`: a model as C, a shared library or a WebAssembly module."""

from __future__ import annotations

import argparse
from typing import Any

from runtime.cli import common
from runtime.cli.errors import Exit
from runtime.cli.output import CommandOutput
from runtime.graph.plan import GraphPlan

DESCRIPTION = """\
Write a model, with its preprocessing, for programs without Python: as C99, as a shared library with
its header, as a WebAssembly module, as a command that reads CSV (WASI), or as a package for
browsers and node with a page to try. It answers with the same bits on every processor, and is
written once it has answered rows like that.

Shared libraries need gcc or lld, WebAssembly lld (wasm-ld) and node, WASI also clang
with wasi-libc, or ziglang."""
EXAMPLES = """\
  pretzel export models/fraud --to c --out fraud
  pretzel export models/fraud --to npm --out fraud --outputs label,probabilities
  pretzel export models/fraud --to so --target aarch64-linux-gnu --out fraud
  pretzel export models/fraud --to c --float32 --target arm-none-eabi --cpus cortex-m0 --out fraud
"""
FORMS = ("c", "so", "wasm", "wasi", "npm")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common.model(parser)
    parser.add_argument("--to", choices=FORMS, required=True, help="what to write")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="where the files go")
    parser.add_argument("--name", help="of the files and functions; by default the model's")
    parser.add_argument(
        "--float32", action="store_true", help="C for small machines: what it takes and changes"
    )
    parser.add_argument(
        "--target", metavar="TRIPLE", default="", help="of a shared library, or a small machine"
    )
    parser.add_argument(
        "--cpus", metavar="NAMES", default="", help="x86-64-v3,x86-64-v4: for so; cortex-m4"
    )
    parser.add_argument(
        "--blocks", action="store_true", help="faster for many rows, and larger: trees"
    )
    parser.add_argument(
        "--outputs", metavar="NAMES", default="", help="answers to export, with commas between"
    )
    parser.add_argument("--rows", metavar="FILE", help="verify with the first 1,000 of these")
    parser.add_argument("--no-verify", action="store_true", help="write it without running it")
    common.rows(parser)


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Export the model."""
    from oven.export import export
    from runtime.bulk.refused import ROW_ERRORS
    from runtime.cli.models import open_asked
    from runtime.cli.reading import first_block

    opened = open_asked(options)
    plan: Any = opened.plan
    plan = plan.whole() if isinstance(plan, GraphPlan) else plan
    block = first_block(plan, options, options.rows, 1000) if options.rows else None
    try:
        made = export(
            plan,
            options.out,
            to=options.to,
            name=options.name or opened.model.name,
            version=opened.model.version,
            target=options.target,
            cpus=[name for name in options.cpus.split(",") if name],
            blocks=options.blocks,
            float32=options.float32,
            outputs=[name for name in options.outputs.split(",") if name],
            rows=block and block.data,
            verify=not options.no_verify,
        )
    except ROW_ERRORS as problem:
        raise (block.located(problem) if block else problem) from None
    files = {str(path): path.stat().st_size for path in made.files}
    lines = [f"{path}  {size:,} bytes" for path, size in files.items()]
    told = [f"{made.rows:,} rows answered with the plan's bits"]
    if made.unseen:
        told = [f"not verified: {made.unseen}"]
    facts = {"files": files, "rows": made.rows, "away": made.away, "about": made.about}
    facts["unseen"] = made.unseen
    if made.report is not None:
        told, facts["float32"] = made.report.lines(), made.report.facts()
    out.result({"model": opened.model.name, **facts}, "\n".join([*lines, *told]))
    return Exit.OK
