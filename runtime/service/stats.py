"""What a runtime has done, as plain data, and what it would do with a call, in words."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.service.catalog import CatalogStats
from runtime.service.engines import Engines
from runtime.service.materialise import GroupStats
from runtime.service.memory import MemoryStats
from runtime.service.version import ModelVersion
from scheduler import Decision, InlineStats, PoolStats


@dataclass(frozen=True, slots=True)
class VersionStats:
    """One registered version."""

    name: str
    version: str
    in_service: bool
    resident: bool
    reserved: int
    inline_calls: int
    batch_calls: int
    row_seconds: float | None
    """What a call of one row takes; None when none was measured yet."""
    engine: str | None
    reason: str | None
    """What was chosen for the last call that the policy was asked about, and why."""


@dataclass(frozen=True, slots=True)
class RuntimeStats:
    """All there is to know; every part is plain data."""

    versions: tuple[VersionStats, ...]
    inline: InlineStats
    batch: PoolStats | None
    """None as long as no executor was needed."""
    catalog: CatalogStats
    memory: MemoryStats
    groups: tuple[GroupStats, ...]
    """Versions whose common first part is materialised, or was tried."""
    result_bytes: int
    thread_bytes: int
    """Scratch memory that the process' threads keep, rooms for documents included."""


def version_stats(served: ModelVersion, engines: Engines, *, in_service: bool) -> VersionStats:
    """What is known of one version."""
    estimate = engines.estimate(served, 1)
    last = served.decision
    return VersionStats(
        name=served.name,
        version=served.version,
        in_service=in_service,
        resident=served.plan is not None,
        reserved=served.reserved,
        inline_calls=served.inline.value,
        batch_calls=served.batch.value,
        row_seconds=None if estimate is None else estimate.seconds,
        engine=None if last is None else last.engine.value,
        reason=None if last is None else last.reason,
    )


def explained(served: ModelVersion, decision: Decision, rows: int) -> str:
    """A decision in words, with the plan it is about."""
    lines = [
        f"{served.owner}: {rows:,} rows go {decision.engine.value}",
        f"  because {decision.reason}",
    ]
    if decision.inline_seconds is not None and decision.batch_seconds is not None:
        lines.append(
            f"  inline {_us(decision.inline_seconds)}, batch {_us(decision.batch_seconds)} "
            f"in chunks of {decision.chunk_rows:,} rows"
        )
    if decision.late:
        lines.append("  it would be late either way")
    if served.call is not None:
        lines.append("  a single row (vector, dict, str) takes the shortest way, inline")
    shared = served.shared
    if shared is not None:
        group = shared.group
        lines.append(
            f"  its first part is common to {len(group.members)} versions; "
            f"materialisation is {group.rows.mode} for rows, {group.blocks.mode} for blocks"
        )
    plan = served.plan
    lines.append(f"  {plan!r}" if plan is not None else "  dropped for memory; loaded when called")
    return "\n".join(lines)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} us"
