"""A champion with a shadow of every request over HTTP, beside servers that run two services."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.crew import Absent
from bench.experiments.graph_servers import figures
from bench.goal import Goal
from bench.servers import SHADOWS
from bench.servers.shadow_parts import ALONE, SHADOWED, WIDTH, Parts, probability, write
from bench.wrk import Outcome

OURS = "shadow_pretzel"


def measured() -> Iterator[Goal]:
    """What a shadow takes on each server that is installed, and what of that ours takes."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "parts.pickle")
        parts = write(file)
        ours = _shadowed(OURS, file, parts)
        for name, kind in SHADOWS.items():
            if name == OURS:
                continue
            try:
                theirs = _shadowed(name, file, parts)
            except (Absent, ConnectionError, OSError, KeyError) as problem:
                print(f"{kind.title}: left out, {problem}")
                continue
            said = f"{ours.rate:,.4g} to {theirs.rate:,.4g} requests/s"
            yield Goal(f"a shadow, rate of {kind.title}: {said}, x", ours.rate / theirs.rate, 1.0)
            said = f"{ours.p50:,.4g} to {theirs.p50:,.4g} ms"
            yield Goal(f"a shadow, p50 of {kind.title}: {said}, x", theirs.p50 / ours.p50, 1.0)


def _shadowed(name: str, file: Path, parts: Parts) -> Outcome:
    """The figures with a shadow; what it costs is printed."""
    alone, both = (
        figures(
            name,
            SHADOWS[name],
            [str(file), mode],
            WIDTH,
            lambda row: 1.0 - probability(parts.champion, row),
        )
        for mode in (ALONE, SHADOWED)
    )
    print(
        f"{SHADOWS[name].title}: without and with the shadow {alone.rate:,.0f} and "
        f"{both.rate:,.0f} requests/s ({alone.rate / both.rate:.2f}x), p50 {alone.p50:.3g} and "
        f"{both.p50:.3g} ms"
    )
    return both
