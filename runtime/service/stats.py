"""Figures of a runtime's work, and its decision on a call in words."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from runtime.service.catalog import CatalogStats
from runtime.service.costs import Costs
from runtime.service.groups import GroupStats
from runtime.service.memory import MemoryStats
from runtime.service.version import ModelVersion
from scheduler import Decision, InlineStats, PoolStats


class VersionStats(NamedTuple):
    """One registered version."""

    name: str
    version: str
    in_service: bool
    resident: bool
    tier: int | None
    """1 where native code answers, 0 where definitions do; None for a plan that was dropped."""
    ready: bool
    """True if all code is there that usual calls need."""
    seconds_left: float
    """About how long it will take until that is compiled; 0 where it is there."""
    reserved: int
    inline_calls: int
    batch_calls: int
    row_seconds: float | None
    """Seconds of a call of one row; None before one was measured."""
    engine: str | None
    reason: str | None
    """The choice for the last call that the policy was asked about, and its reason."""
    compute_seconds: float
    """Computing seconds of all its calls, from a sample of them."""


class RuntimeStats(NamedTuple):
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

    def table(self) -> list[tuple[str, ...]]:
        """A row of text for each version, after one of headings."""
        head = ("model", "in service", "in memory", "tier", "inline", "batch", "one row", "engine")
        return [head, *map(_version_row, self.versions)]

    def __str__(self) -> str:
        rows = self.table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, self._memory_line()])

    def _repr_html_(self) -> str:
        """The table, as notebooks show it."""
        head, *rows = self.table()
        made = [_html_row("th", head), *(_html_row("td", row) for row in rows)]
        return f"<table>{''.join(made)}</table><p>{escape(self._memory_line())}</p>"

    def _memory_line(self) -> str:
        memory = self.memory
        budget = "no budget" if memory.budget is None else f"a budget of {memory.budget:,}"
        return (
            f"{memory.used:,} bytes of parameters and plans ({budget}), "
            f"{memory.resident} plans in memory, {memory.dropped} dropped, "
            f"{self.result_bytes:,} bytes of kept results"
        )


def _version_row(one: VersionStats) -> tuple[str, ...]:
    return (
        f"{one.name}@{one.version}",
        "yes" if one.in_service else "no",
        "yes" if one.resident else "no",
        tier_text(one),
        f"{one.inline_calls:,}",
        f"{one.batch_calls:,}",
        "" if one.row_seconds is None else f"{one.row_seconds * 1e6:,.1f} us",
        one.engine or "",
    )


def tier_text(one: VersionStats) -> str:
    """The tier that answers, and the time until native code does."""
    tier = "" if one.tier is None else str(one.tier)
    return tier if one.ready else f"{tier}, compiling: {one.seconds_left:.1f} s left"


def _html_row(cell: str, texts: tuple[str, ...]) -> str:
    return f"<tr>{''.join(f'<{cell}>{escape(text)}</{cell}>' for text in texts)}</tr>"


def version_stats(version: ModelVersion, costs: Costs, *, in_service: bool) -> VersionStats:
    """Figures of one version."""
    last, plan = version.learned.decision, version.plan
    return VersionStats(
        name=version.name,
        version=version.version,
        in_service=in_service,
        resident=plan is not None,
        tier=None if plan is None else plan.code.tier,
        ready=version.ready,
        seconds_left=version.seconds_left,
        reserved=version.reserved,
        inline_calls=version.counts.inline.value,
        batch_calls=version.counts.batch.value,
        row_seconds=costs.seconds(version, 1),
        engine=None if last is None else last.engine.value,
        reason=None if last is None else last.reason,
        compute_seconds=costs.model.spent.get(version.owner, 0.0),
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
