"""Routes on the status page: which version answers, the last changes, rollouts, and buttons."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

from runtime.http.pages.page_html import Row, box, buttons, paragraph, section, table
from runtime.http.wire.loop_fairness import gently
from runtime.rollout import OVER
from runtime.routing import Change, Route
from runtime.routing.written import as_data
from runtime.runtime import Runtime

#: Most routes and changes of each that are shown.
SHOWN, CHANGES = 50, 20
_COLUMNS = {"change": "number", "when": "short", "who": "short", "what": "short", "route": "name"}

_Rollouts = Mapping[str, Mapping[str, Any]]


def routes(runtime: Runtime, rollouts: _Rollouts, wanted: str, *, changes: bool = False) -> str:
    """A section with every route; empty where there is none. With buttons for who may change."""
    names = [each.name for each in runtime.endpoints if wanted in each.name]
    found = (name for name in names if runtime.routes.has_route(name))
    drawn = [
        _route(runtime, rollouts, name, changes=changes) for name in gently(islice(found, SHOWN))
    ]
    return section("Routes", "".join(drawn)) if drawn else ""


def _route(runtime: Runtime, rollouts: _Rollouts, name: str, *, changes: bool) -> str:
    history, running = runtime.routes.history(name), rollouts.get(name)
    newest = history[: -CHANGES - 1 : -1]
    body = paragraph(_text(history[-1].route))
    if running is not None:
        where = f"{running['state']}, {running['weight']:g} % {running['reason']}"
        body += paragraph(f"rollout: {where}")
    if changes:
        body += buttons(_buttons(name, history, running))
    body += table(_COLUMNS, map(_change, newest))
    return box(f"{name}: {history[-1].route.champion}", body)


def _buttons(
    name: str, history: tuple[Change, ...], running: Mapping[str, Any] | None
) -> Iterator[tuple[str, str]]:
    """Actions that are possible now, with their addresses."""
    model = f"/v2/models/{quote(name, safe='')}"
    if running is not None and running["state"] not in OVER:
        other = "resume" if running["state"] == "paused" else "pause"
        for action in (other, "abort"):
            yield f"{action} the rollout", f"{model}/rollout/state?action={action}"
        return
    route = history[-1].route
    for version in route.addresses:
        if version != route.champion:
            yield f"promote {version}", f"{model}/promote?version={quote(version, safe='')}"
    if history[-1].undone_to is not None:
        yield "roll back", f"{model}/rollback"


def _change(change: Change) -> Row:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(change.when))
    return str(change.number), when, change.who, change.action, _text(change.route)


def _text(route: Route) -> str:
    return ", ".join(f"{name} {value}" for name, value in as_data(route).items() if name != "salt")
