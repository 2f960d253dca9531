"""Routes on the status page: which version answers, and the last changes with their authors."""

from __future__ import annotations

import time
from itertools import islice

from runtime.http.loop_fairness import gently
from runtime.http.page_html import Cell, box, paragraph, section, table
from runtime.routing import Change, Route
from runtime.routing.written import as_data
from runtime.service.runtime import Runtime

#: Most routes and changes of each that are shown.
SHOWN, CHANGES = 50, 20
_COLUMNS = (Cell("change", "number"), *(Cell(name, "short") for name in ("when", "who", "what")))


def routes(runtime: Runtime, wanted: str) -> str:
    """A section with every route; empty where there is none."""
    names = [each.name for each in runtime.endpoints() if wanted in each.name]
    found = (name for name in names if runtime.has_route(name))
    drawn = [_route(name, runtime.history(name)) for name in gently(islice(found, SHOWN))]
    return section("Routes", "".join(drawn)) if drawn else ""


def _route(name: str, history: tuple[Change, ...]) -> str:
    newest = history[: -CHANGES - 1 : -1]
    changes = table((*_COLUMNS, Cell("route", "name")), map(_change, newest))
    return box(
        f"{name}: {history[-1].route.champion}", paragraph(_text(history[-1].route)) + changes
    )


def _change(change: Change) -> tuple[Cell, ...]:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(change.when))
    return (
        *(Cell(str(change.number)), Cell(when), Cell(change.who), Cell(change.action)),
        Cell(_text(change.route)),
    )


def _text(route: Route) -> str:
    return ", ".join(f"{name} {value}" for name, value in as_data(route).items() if name != "salt")
