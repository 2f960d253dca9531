"""The command `pretzel`: import models, look into them, serve them, predict files with them."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    from runtime.cli.program import run

    return run(arguments)


__all__ = ["main"]
