"""What a runtime has done, as plain data, and what it would do with a call, in words."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.service.catalog import CatalogStats
from runtime.service.costs import Costs
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


def version_stats(version: ModelVersion, costs: Costs, *, in_service: bool) -> VersionStats:
    """What is known of one version."""
    last = version.learned.decision
    return VersionStats(
        name=version.name,
        version=version.version,
        in_service=in_service,
        resident=version.plan is not None,
        reserved=version.reserved,
        inline_calls=version.counts.inline.value,
        batch_calls=version.counts.batch.value,
        row_seconds=costs.seconds(version, 1),
        engine=None if last is None else last.engine.value,
        reason=None if last is None else last.reason,
    )


def explained(version: ModelVersion, decision: Decision, rows: int) -> str:
    """A decision in words, with the plan it is about."""
    lines = [
        f"{version.owner}: {rows:,} rows go {decision.engine.value}",
        f"  because {decision.reason}",
    ]
    if decision.inline_seconds is not None and decision.batch_seconds is not None:
        lines.append(
            f"  inline {_us(decision.inline_seconds)}, batch {_us(decision.batch_seconds)} "
            f"in chunks of {decision.chunk_rows:,} rows"
        )
    if decision.late:
        lines.append("  it would be late either way")
    if version.entry.function is not None:
        lines.append("  a single row (vector, dict, str) goes to the plan's entry, inline")
    shared = version.shared
    if shared is not None:
        group = shared.group
        lines.append(
            f"  its first part is common to {len(group.members)} versions; "
            f"materialisation is {group.rows.mode} for rows, {group.blocks.mode} for blocks"
        )
    plan = version.plan
    lines.append(f"  {plan!r}" if plan is not None else "  dropped for memory; loaded when called")
    return "\n".join(lines)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.0f} us"
