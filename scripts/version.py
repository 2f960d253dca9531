"""The version of this source: the tag it stands on, or a development version of the next one.

    python scripts/version.py

hatchling evaluates it where a distribution is built from a checkout or from `git archive`. A source
distribution has its version in PKG-INFO, which counts there.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

#: As long as there is no tag.
FIRST = "0.1.0"
#: In an archive, git replaces it by what `git describe` says: .gitattributes.
ARCHIVED = "$Format:%(describe:tags=true,match=v[0-9]*)$"


def version(root: Path | None = None) -> str:
    """The version of the checkout or archive of this file, or of another checkout."""
    here = Path(__file__).resolve().parent.parent
    told = ARCHIVED if root is None and not ARCHIVED.startswith("$") else described(root or here)
    return numbered(told)


def described(root: Path) -> str:
    """The last tag of a checkout and the commits since then, as git describes them."""
    command = ["git", "describe", "--tags", "--match", "v[0-9]*"]
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(root.parent)}  # not a checkout around it
    try:
        done = subprocess.run(
            command, cwd=root, env=alone, capture_output=True, text=True, check=False, timeout=60
        )
    except OSError:  # there is no git
        return ""
    return done.stdout.strip()


def numbered(told: str) -> str:
    """The version for a description: v1.2.3 is 1.2.3, and four commits later is 1.2.4.dev4."""
    if not told:
        return FIRST
    found = re.fullmatch(r"v((?:\d+\.){2})(\d+)(?:(a|b|rc)(\d+))?(?:-(\d+)-g[0-9a-f]+)?", told)
    if found is None:
        raise SystemExit(f"scripts/version.py: the tag of {told!r} is not v1.2.3 or v1.2.3rc4")
    series, patch, early, number, since = found.groups()
    last = int(number or patch) + (since is not None)
    numbers = f"{series}{patch}{early}{last}" if early else f"{series}{last}"
    return numbers if since is None else f"{numbers}.dev{since}"


if __name__ == "__main__":
    print(version())
