"""Machine code in the file of a plan: a pack for each level of processors that it was saved for.

Object code in a file is a program of whoever wrote the file, and nothing can check what it does. So
it is only looked at where the reader says that the file is trusted. Then it is used if it is
whole, made by this release, and for a level that this processor runs; what is not is named by one
warning, and compiled instead.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from objectstore import Archive, Blob, StoreError
from objectstore.layout import Container
from oven.compiler import cache, levels, machine, packs
from oven.plans import ahead


def compiled(plan: Path, names: Sequence[str]) -> dict[str, Blob]:
    """The code that the plan in this file needs, for each of these levels."""
    with tempfile.TemporaryDirectory(prefix="pretzel-") as folder:
        made = {name: Path(folder) / name for name in names}
        for name, path in made.items():
            ahead.write_pack([plan], name, path)
        return {name: Blob.of(np.fromfile(path, np.uint8)) for name, path in made.items()}


def level_names(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The levels that a manifest says there is code for, each with the digest of its pack."""
    found = manifest.get("code", {})
    texts = isinstance(found, dict) and all(isinstance(one, str) for one in found.values())
    return dict(found) if texts else {}


def offer(buffer: Container, where: str) -> None:
    """Let the code in this file be found, which is trusted."""
    with Archive(buffer, where) as archive:
        found = level_names(archive.manifest)
        if not found:
            return
        try:
            triple, features = machine.triple(), machine.features()
            level = next(
                (each for each in levels.runnable(triple, features) if each.name in found), None
            )
            if level is None:
                raise packs.Refused(f"it is for {', '.join(found)}")
            blob = archive.load(found[level.name])
            if not isinstance(blob, Blob):
                raise packs.Refused("it is no pack")
            cache.offer(packs.opened(blob.array.tobytes(), level.name, cache.compilers()))
        except (packs.Refused, StoreError, ValueError, TypeError, KeyError) as problem:
            what = problem.what if isinstance(problem, StoreError) else str(problem)
            said = f"{where}: the machine code in it is not used: {what}; code is compiled instead"
            warnings.warn(said, RuntimeWarning, stacklevel=2)
