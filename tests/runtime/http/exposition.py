"""A reader of Prometheus' text that takes nothing on trust: what breaks the format fails."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
_LINE = re.compile(rf"({_NAME})(?:\{{((?:{_LABEL},?)*)\}})? (\S+)")
_ENDS = {"histogram": ("_bucket", "_sum", "_count")}

Labels = frozenset[tuple[str, str]]


@dataclass
class Read:
    """One family as it was read."""

    kind: str
    help: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


def read(text: str) -> dict[str, Read]:
    """All families; each is whole, has its help and its type first, and no sample twice."""
    assert text.endswith("\n")
    families: dict[str, Read] = {}
    name = ""
    lines = iter(text.split("\n")[:-1])
    for line in lines:
        if line.startswith("# HELP "):
            name, _, said = line[7:].partition(" ")
            kind = next(lines)
            assert kind.startswith(f"# TYPE {name} "), kind
            assert name not in families, f"{name} comes twice"
            families[name] = Read(kind.rpartition(" ")[2], said)
            continue
        _sample(line, name, families[name])
    for name, family in families.items():
        assert family.samples, name
        _check(name, family)
    return families


def _sample(line: str, name: str, family: Read) -> None:
    match = _LINE.fullmatch(line)
    assert match is not None, line
    own = match[1].removeprefix(name)
    assert own in _ENDS.get(family.kind, ("",)), line
    labels = [(key, _plain(value)) for key, value in re.findall(_LABEL, match[2] or "")]
    assert len(dict(labels)) == len(labels), line
    key = own, frozenset(labels)
    assert key not in family.samples, line
    family.samples[key] = float(match[5])


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), value)


def _check(name: str, family: Read) -> None:
    if family.kind == "counter" and name.startswith("pretzel_"):
        assert name.endswith("_total"), name
    if family.kind != "histogram":
        return
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (end, labels), value in family.samples.items():
        if end == "_bucket":
            bound = float(dict(labels)["le"])
            rest = frozenset(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, []).append((bound, value))
    for labels, buckets in series.items():
        buckets.sort()
        counts = [count for _, count in buckets]
        assert counts == sorted(counts), f"{name} goes down"
        assert buckets[-1][0] == float("inf")
        assert counts[-1] == family.samples["_count", labels]
        assert ("_sum", labels) in family.samples
