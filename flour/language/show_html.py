"""A program as one HTML page that needs nothing else: boxes in layers, each with its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from flour.core.errors import ParameterError
from flour.core.node import Node
from flour.core.provenance import here
from flour.language.flow import Flow
from flour.language.show import Line, lines, mermaid, text

WIDTH, HEIGHT, ACROSS, DOWN, EDGE = 236, 74, 24, 46, 16

STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --soft: #5d6b7a; --paper: #fbfaf7;
  --box: #fff; --line: #c9c2b4; --mark: #b5651d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e4da; --soft: #9aa5b1; --paper: #14181d;
  --box: #1e242b; --line: #414b57; --mark: #e0a458; } }
body { margin: 1.5rem; background: var(--paper); color: var(--ink);
  font: 14px/1.4 system-ui, sans-serif; }
h1 { font-size: 1.1rem; } p { color: var(--soft); }
.graph { overflow: auto; }
svg text { fill: var(--ink); font: 12px ui-monospace, monospace; }
svg .name { font-weight: 600; } svg .soft { fill: var(--soft); font-size: 11px; }
svg rect { fill: var(--box); stroke: var(--line); }
svg .end rect { stroke: var(--mark); stroke-width: 2; }
svg path { fill: none; stroke: var(--line); stroke-width: 1.5; }
"""


def page(flow: Flow) -> str:
    """The whole page."""
    summary = f"{len(flow.nodes())} values, outputs {', '.join(flow.outputs)}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Program</title><style>{STYLE}</style></head><body>\n"
        f"<h1>Program {escape(flow.digest[:12])}</h1><p>{escape(summary)}</p>\n"
        f"{drawing(flow, summary)}\n</body></html>\n"
    )


def drawing(flow: Flow, summary: str) -> str:
    """The boxes and lines, to be put into a page that has `STYLE`."""
    shown = lines(flow)
    spots = _spots(shown)
    wide = max(x for x, _ in spots.values()) + WIDTH + EDGE
    high = max(y for _, y in spots.values()) + HEIGHT + EDGE
    ends: dict[Node, list[str]] = {}
    for name, item in flow.outputs.items():
        ends.setdefault(item, []).append(name)
    edges = "".join(_edges(line, spots) for line in shown)
    boxes = "".join(_box(line, spots[line.node], ends.get(line.node, [])) for line in shown)
    return (
        f'<div class="graph"><svg width="{wide}" height="{high}" role="img" '
        f'aria-label="{escape(summary)}">\n{edges}{boxes}</svg></div>'
    )


def _spots(shown: list[Line]) -> dict[Node, tuple[int, int]]:
    """Where each box is: a layer below the lowest of its inputs, beside its equals."""
    depth: dict[Node, int] = {}
    filled: dict[int, int] = {}
    spots = {}
    for line in shown:
        layer = max((depth[item] + 1 for item in line.node.inputs), default=0)
        depth[line.node] = layer
        place = filled.get(layer, 0)
        filled[layer] = place + 1
        spots[line.node] = (EDGE + place * (WIDTH + ACROSS), EDGE + layer * (HEIGHT + DOWN))
    return spots


def _edges(line: Line, spots: Mapping[Node, tuple[int, int]]) -> str:
    x, y = spots[line.node]
    end = x + WIDTH // 2
    made = []
    for item in line.node.inputs:
        left, top = spots[item]
        start, bottom = left + WIDTH // 2, top + HEIGHT
        middle = (bottom + y) // 2
        made.append(f'<path d="M{start} {bottom} C{start} {middle} {end} {middle} {end} {y}"/>\n')
    return "".join(made)


def _box(line: Line, spot: tuple[int, int], ends: list[str]) -> str:
    x, y = spot
    title = line.name if line.operator == "in" else f"{line.name} {line.operator}"
    if ends:
        title += " = " + ", ".join(ends)
    rows = (
        ("name", title),
        ("soft", ", ".join(line.parameters)),
        ("", line.type),
        ("soft", line.place),
    )
    written = "".join(
        f'<text class="{kind}" x="{x + 8}" y="{y + 16 * number + 18}">{escape(_cut(row))}</text>'
        for number, (kind, row) in enumerate(rows)
    )
    full = "\n".join([line.call, line.type, *map(str, line.places)])
    kind = "end" if ends or line.operator == "in" else "node"
    return (
        f'<g class="{kind}"><title>{escape(full)}</title>'
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>{written}</g>\n'
    )


def _cut(row: str, most: int = 31) -> str:
    return row if len(row) <= most else row[: most - 1] + "…"


def show(flow: Flow, form: str = "text") -> str:
    """The program as "text", "mermaid" or "html"."""
    if form == "html":
        return page(flow)
    if form not in ("text", "mermaid"):
        hint = "text, mermaid or html"
        raise ParameterError(
            f"a program is not shown as {form!r}", where=str(here()), found=repr(form), hint=hint
        )
    return text(flow) if form == "text" else mermaid(flow)
