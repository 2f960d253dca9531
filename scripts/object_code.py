"""Print a digest of the object code of each operator in the table, to compare two checkouts.

    python scripts/object_code.py > before; ...; python scripts/object_code.py | diff before -

Text that says the same in other words gives the same object code; what differs has to be measured.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import oven
from flour.core.source import Source
from flour.language.flow import source
from oven.compiler import native
from tests.cases import CASES


def digests(words: list[str]) -> Iterator[str]:
    """Return a line for each stage of each case whose name contains one of these words."""
    for case in CASES:
        if (
            isinstance(case.op, Source)
            or not case.native
            or (words and not any(word in case.name for word in words))
        ):
            continue
        flow = case.op(*(source(f"x{i}", kind) for i, kind in enumerate(case.inputs)))
        for exact in (False, True):
            plan = oven.bake(flow, exact=exact)
            for number, stage in enumerate(plan.program.stages):
                if stage.source:
                    code = native.compile_source(stage.source, stage.name).code
                    digest = hashlib.sha256(code).hexdigest()[:16]
                    yield f"{case.name} {exact} {number} {len(code)} {digest}"


if __name__ == "__main__":
    for line in digests(sys.argv[1:]):
        print(line, flush=True)
