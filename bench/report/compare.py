"""Compares two runs: which of our figures have changed."""

from __future__ import annotations

from bench.report.figures import OURS, shown
from bench.report.tables import Table
from bench.results import Read, Record

#: Changes within this are noise on most machines, unless both spreads are narrower.
NOISE = 0.1


def compared(before: Read, after: Read) -> str:
    """Figures that differ by more than noise, in Markdown: ours, and the number of others'.

    Others' code is the same in both runs, so changes of their figures are noise.
    """
    earlier = {_key(each): each for each in before.records}
    both = [(old, new) for new in after.records if (old := earlier.get(_key(new)))]
    pairs = [(old, new) for old, new in both if old.value and new.value]
    ours = [pair for pair in pairs if _is_ours(pair[1])]
    others = [pair for pair in pairs if not _is_ours(pair[1])]
    rows = sorted(_row(*pair) for pair in ours if _differs(*pair))
    theirs = sum(_differs(*pair) for pair in others)
    text = [
        f"{_of(before)} and {_of(after)}: {len(rows)} of our {len(ours)} figures differ.",
        f"What is within {NOISE:.0%} is noise, and so is where rounds of both runs overlap.",
    ]
    if others:
        text.append(
            f"Of others' {len(others)} figures, whose code is the same, {theirs} differ: as large "
            "a share of ours is the machine's doing."
        )
    if not rows:
        return " ".join(text) + "\n"
    columns = ["figure", "before", "after", "after by before"]
    return " ".join(text) + "\n\n" + Table("", "", columns, rows).markdown()


def _is_ours(item: Record) -> bool:
    """Whether the figure is of our code: of ours as a contestant, or in other ways."""
    return item.experiment in {"ablations", "reservation"} or item.contestant.startswith(OURS)


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
