"""How much of mapped files is in this process, as Linux says it."""

from __future__ import annotations

import re
from pathlib import Path

_HEAD = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ +(.*)$")


def resident_bytes(path: Path, *, below: bool = False) -> int:
    """Bytes of a file, or of all files `below` a directory, that this process has mapped now."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if found := _HEAD.match(line):
            ours = found[1].startswith(f"{path}/") if below else found[1] == str(path)
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total
