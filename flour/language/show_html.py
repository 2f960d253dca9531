"""A program as one HTML page that needs nothing else: boxes in layers, each with its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from flour.core.errors import ParameterError
from flour.core.node import Node
from flour.language.flow import Flow
from flour.language.show import ShownValue, lines, mermaid, text

WIDTH, HEIGHT, ACROSS, DOWN, EDGE = 236, 74, 24, 46, 16

#: The look of all pages: of programs, of plans, and of a server.
STYLE = """\
:root { color-scheme: light dark; --line: #8884; --soft: #8882; --dim: #888;
  --mark: #d9822b33; --bar: #3b7dd8;
  --good: #2a7d46; --bad: #c0392b; --wait: #b7791f; --link: #2563a8; }
@media (prefers-color-scheme: dark) {
  :root { --good: #6cc48a; --bad: #f08a7d; --wait: #e3b35c; --link: #7db4f0; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 88rem;
  padding: 0 1.2rem; }
header { display: flex; gap: 1rem; align-items: baseline; flex-wrap: wrap; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
nav { margin-left: auto; display: flex; flex-wrap: wrap; gap: 0 1rem; } a { color: var(--link); }
dl { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0 0; }
dl div { background: var(--soft); border-radius: 8px; padding: .5rem .9rem; }
dt { color: var(--dim); font-size: .8rem; } dd { margin: 0; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th { color: var(--dim); font-size: .8rem; font-weight: 600; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left;
  vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
td.short { white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 8rem; max-width: 26rem; }
.good { color: var(--good); } .bad { color: var(--bad); } .wait { color: var(--wait); }
.dim, footer { color: var(--dim); } footer { margin: 2rem 0; font-size: .85rem; }
details { margin: .3rem 0 .3rem 1rem; } summary { cursor: pointer; }
form { display: flex; gap: .5rem; margin: .4rem 0 .8rem; }
input, button { font: inherit; padding: .2rem .6rem; }
h2 code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { border: 1px solid var(--line); border-radius: 6px; overflow-x: auto; padding: .8rem; }
tr.black { background: var(--mark); }
.bar { background: var(--bar); border-radius: 3px; height: .45rem; margin-top: .3rem; }
.graph { overflow: auto; }
svg text { fill: currentColor; font: 12px ui-monospace, monospace; }
svg .name { font-weight: 600; } svg .soft { fill: var(--dim); font-size: 11px; }
svg rect { fill: var(--soft); stroke: var(--line); }
svg .end rect { stroke: var(--bar); stroke-width: 2; }
svg path { fill: none; stroke: var(--line); stroke-width: 1.5; }"""


def document(title: str, body: str, *, nav: str = "", refresh: int = 0, name: str = "") -> str:
    """A whole page in the one look of all, which reloads after `refresh` seconds."""
    again = f'<meta http-equiv="refresh" content="{refresh}">\n' if refresh else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{again}<title>{escape(name or title)}</title>\n"
        f"<style>\n{STYLE}\n</style>\n</head>\n<body>\n"
        f"<header><h1>{escape(title)}</h1>{nav}</header>\n{body}</body>\n</html>\n"
    )


def page(flow: Flow) -> str:
    """The page of a program."""
    summary = f"{len(flow.nodes())} values, outputs {', '.join(flow.outputs)}"
    drawn = f"<p>{escape(summary)}</p>\n{drawing(flow, summary)}\n"
    return document(f"Program {flow.digest[:12]}", drawn, name="Program")


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


def _spots(shown: list[ShownValue]) -> dict[Node, tuple[int, int]]:
    """The position of each box: a layer below the lowest of its inputs, beside its equals."""
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


def _edges(line: ShownValue, spots: Mapping[Node, tuple[int, int]]) -> str:
    x, y = spots[line.node]
    end = x + WIDTH // 2
    made = []
    for item in line.node.inputs:
        left, top = spots[item]
        start, bottom = left + WIDTH // 2, top + HEIGHT
        middle = (bottom + y) // 2
        made.append(f'<path d="M{start} {bottom} C{start} {middle} {end} {middle} {end} {y}"/>\n')
    return "".join(made)


def _box(line: ShownValue, spot: tuple[int, int], ends: list[str]) -> str:
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
    cut = [(kind, row if len(row) <= 31 else f"{row[:30]}…") for kind, row in rows]
    written = "".join(
        f'<text class="{kind}" x="{x + 8}" y="{y + 16 * number + 18}">{escape(row)}</text>'
        for number, (kind, row) in enumerate(cut)
    )
    full = "\n".join([line.call, line.type, *map(str, line.places)])
    kind = "end" if ends or line.operator == "in" else "node"
    return (
        f'<g class="{kind}"><title>{escape(full)}</title>'
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>{written}</g>\n'
    )


def show(flow: Flow, form: str = "text") -> str:
    """The program as "text", "mermaid" or "html"."""
    if form == "html":
        return page(flow)
    if form not in ("text", "mermaid"):
        hint = "text, mermaid or html"
        raise ParameterError.here(
            f"a program is not shown as {form!r}", found=repr(form), hint=hint
        )
    return text(flow) if form == "text" else mermaid(flow)
