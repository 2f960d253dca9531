"""Two runs side by side: what has become slower, faster, larger, smaller."""

from __future__ import annotations

from bench.report.figures import shown
from bench.report.tables import Table
from bench.results import Read, Record

#: Changes within this are noise on most machines, unless both spreads are narrower.
NOISE = 0.1


def compared(before: Read, after: Read) -> str:
    """A table of our figures that differ by more than noise, in Markdown."""
    known = {_key(each): each for each in before.records}
    rows = []
    for new in after.records:
        old = known.get(_key(new))
        if old is not None and old.value and new.value and _differs(old, new):
            rows.append(_row(old, new))
    columns = ["figure", "before", "after", "after by before"]
    rows.sort(key=lambda row: row[0])
    head = (
        f"{_of(before)} and {_of(after)}: {len(rows)} of {len(after.records)} figures differ.\n\n"
    )
    return head + Table("", "", columns, rows).markdown()


def _of(run: Read) -> str:
    return str(run.about.get("machine", {}).get("commit", "?"))


def _key(item: Record) -> tuple[object, ...]:
    return item.experiment, item.workload, item.contestant, item.metric, item.x


def _differs(old: Record, new: Record) -> bool:
    """Whether the medians are further apart than noise, and the spreads do not overlap."""
    assert old.value is not None
    assert new.value is not None
    apart = abs(new.value / old.value - 1) > NOISE
    if None in {old.low, old.high, new.low, new.high}:
        return apart
    overlap = new.low <= old.high and old.low <= new.high  # type: ignore[operator]
    return apart and not overlap


def _row(old: Record, new: Record) -> list[str]:
    at = "" if new.x is None else f" at {new.x:g}"
    name = f"{new.experiment} {new.workload} {new.contestant} {new.metric}{at}, {new.unit}"
    change = (new.value or 0.0) / (old.value or 1.0)
    return [name, shown(old.value), shown(new.value), f"{change:.2f}"]
