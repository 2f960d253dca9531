"""Routes and their histories as plain data and as TOML: what `endpoint.toml` holds.

    champion = "fraud@3"                      the route in force, to be read and edited
    split = {"fraud@4" = 5.0}
    by = "user_id"

    [[history]]                               what was changed, by whom; written by the server
    number = 0
    ...

A route that was edited by hand differs from the last one of the history: it becomes one change
more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from operator import index
from typing import Any

from flour.core.toml import tomllib
from runtime.errors import BadRegistration
from runtime.routing.history import Change, History, extended
from runtime.routing.route import Route, fits

_FIELDS = {each.name: each for each in fields(Route) if each.init}
#: Who is named in the history where a file was edited.
EDITED = "endpoint.toml"


def as_data(route: Route) -> dict[str, Any]:
    """A route without what is as usual."""
    found: dict[str, Any] = {}
    for name, part in _FIELDS.items():
        value = getattr(route, name)
        if isinstance(value, Mapping):
            value = dict(value)
        usual = part.default if part.default is not MISSING else None
        if value not in (usual, {}):
            found[name] = value
    return found


def from_data(data: Mapping[str, Any], where: str) -> Route:
    """The route of plain data; what is no part of one is refused."""
    for name, value in data.items():
        if name not in _FIELDS:
            raise BadRegistration(
                f"a route has no part {name!r}"[:200], where=where, hint=", ".join(_FIELDS)
            )
        if not fits(name, value):
            raise BadRegistration(
                f"{name} of a route is not of its type", where=where, found=repr(value)[:100]
            )
    if "champion" not in data:
        raise BadRegistration("a route names its champion", where=where)
    return Route(**data)


def as_toml(name: str, history: History) -> str:
    """The text of a history; its last route stands first, to be read and edited."""
    lines = [f"# The route of {json.dumps(name)}: what is edited here is followed.", ""]
    lines += _lines(as_data(history[-1].route))
    for change in history:
        lines += ["", "[[history]]", *_lines(_facts(change))]
        lines.append(f"route = {_value(as_data(change.route))}")
    return "\n".join(lines) + "\n"


def from_toml(text: str, where: str, now: float, before: History = ()) -> History:
    """The history of a text, or the one `before`; an edited route is a change more, made now."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise BadRegistration("this is no TOML", where=where, found=str(problem)[:200]) from None
    listed = data.pop("history", [])
    try:
        history = tuple(_change(each, where) for each in listed) or before
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        if isinstance(problem, BadRegistration):
            raise
        raise BadRegistration(
            "the history of a route is damaged",
            where=where,
            found=f"{type(problem).__name__} {problem}"[:200],
            hint="remove the [[history]] parts; the route above them is kept",
        ) from None
    numbers = [change.number for change in history]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers)) if numbers else []):
        raise BadRegistration("the history of a route has a gap", where=where)
    route = from_data(data, where)
    if not history or history[-1].route != route:
        history = extended(history, "edit", route, EDITED, now)
    return history


def _facts(change: Change) -> dict[str, Any]:
    facts = {"number": change.number, "action": change.action, "who": change.who}
    facts |= {"when": change.when, "undone_to": change.undone_to}
    return {name: value for name, value in facts.items() if value is not None}


def _change(data: Mapping[str, Any], where: str) -> Change:
    undone_to = data.get("undone_to")
    return Change(
        index(data["number"]),
        str(data["action"]),
        from_data(data["route"], where),
        str(data["who"]),
        float(data["when"]),
        None if undone_to is None else index(undone_to),
    )


def _lines(data: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in data.items()]


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_text(k)} = {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(text: str) -> str:
    """A string of TOML, whose escapes are those of JSON; U+007F has to be one."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
