"""Pages to try things: a model by a form for one row, and every route with a command."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from flour.core.types import Record
from oven.explain.page import document
from runtime.http.codec.model_codec import ModelCodec
from runtime.http.codec.signature import TensorSpec
from runtime.http.codec.tensors import BYTES
from runtime.http.pages import page_html as html
from runtime.http.pages.page import HTML, check_on
from runtime.http.routes import HandlerContext, HttpRoute
from runtime.http.wire.messages import Request, Response

_STYLE = """\
<style>
form.try { display: grid; grid-template-columns: minmax(6rem, auto) minmax(10rem, 30rem);
  align-items: center; }
form.try button { grid-column: 2; justify-self: start; }
td.share { width: 60%; } .down { background: var(--bad); } td.result { overflow-wrap: anywhere; }
</style>
"""


@cache
def _script() -> str:
    return Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


@cache
def _headers() -> tuple[tuple[str, str], ...]:
    digest = b64encode(sha256(_script().encode()).digest()).decode()
    # Our script and no other; it asks this server and no other.
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; "
        f"script-src 'sha256-{digest}'"
    )
    nosniff, store = ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")
    return ("Content-Security-Policy", policy), nosniff, store


def trying(service: HandlerContext, request: Request) -> Response:
    """A form for a row of a model."""
    check_on(service)
    front = service.front(request.params["model"], request.params.get("version"))
    version, name = front.version, quote(front.version.name, safe="")
    to = f"/v2/models/{name}"
    if "version" in request.params:
        to += f"/versions/{quote(version.version, safe='')}"
    fields = "".join(map(_field, front.inputs))
    row = json.dumps(_row(front), ensure_ascii=False)
    command = f"curl {_host(request)}/predict/{name} -d '{row}'"
    nav = html.links([("all models", "/"), ("routes", "/docs"), ("plan", f"/explain/{name}")])
    form = f'<form class="try" data-to="{escape(to)}/infer">{fields}<button>Predict</button></form>'
    body = (
        f"{_STYLE}<p><b>{escape(version.owner)}</b></p>\n{form}\n"
        f'<div id="answer" aria-live="polite"></div>\n'
        f"{html.section('From the shell', f'<pre>{escape(command)}</pre>')}"
        f"<script>{_script()}</script>\n"
    )
    return _page(f"Try {version.name}", body, nav)


def _field(spec: TensorSpec) -> str:
    """A labelled input; an empty one is a missing number, or an empty text."""
    name, wide = escape(spec.name), len(spec.shape) > 1
    about = f'name="{name}" id="in-{name}" data-datatype="{spec.datatype}"'
    label = f'<label for="in-{name}">{name} <span class="dim">{_kind(spec)}</span></label>'
    if spec.datatype == "BOOL" and not wide:
        return f"{label}<select {about}><option>false</option><option>true</option></select>\n"
    example = _example(spec)
    value = ", ".join(map(str, example)) if isinstance(example, list) else str(example)
    width = f' data-width="{spec.shape[1]}"' if wide else ""
    return f'{label}<input {about}{width} value="{escape(value)}">\n'


def _kind(spec: TensorSpec) -> str:
    if len(spec.shape) > 1:
        count = "" if spec.shape[1] < 0 else f"{spec.shape[1]:,} "
        return f"{count}values, between commas"
    return {BYTES: "text", "BOOL": "true or false"}.get(spec.datatype, "number")


def _row(front: ModelCodec) -> object:
    """A row of the model as plain JSON."""
    row = {spec.name: _example(spec) for spec in front.inputs}
    kinds = list(front.version.inputs.values())
    alone = len(kinds) == 1 and not isinstance(kinds[0], Record)
    return next(iter(row.values())) if alone else row


def _example(spec: TensorSpec) -> object:
    one: object = {BYTES: "", "BOOL": False}.get(spec.datatype, 0)
    return [one] * max(spec.shape[1], 1) if len(spec.shape) > 1 else one


# --- every route ---------------------------------------------------------------------------------


def listed(service: HandlerContext, request: Request) -> Response:
    """Every route, with a command that asks it."""
    check_on(service)
    names = sorted(each.name for each in service.runtime.endpoints)
    model, bodies = (names[0], _bodies(service.front(names[0]))) if names else ("MODEL", {})
    shown = [each for each in service.routes if not each.hidden and "{version}" not in each.path]
    body = ""
    for tag, group in groupby(sorted(shown, key=lambda each: each.tag), key=lambda each: each.tag):
        boxes = "".join(html.box(*_route(each, model, bodies, _host(request))) for each in group)
        body += html.section(tag.capitalize(), boxes)
    return _page("Routes", body, html.links([("all models", "/"), ("OpenAPI", "/openapi.json")]))


def _bodies(front: ModelCodec) -> dict[str, object]:
    """Bodies for one row of a model, by the end of the route's path."""
    row, tensors = _row(front), []
    for spec in front.inputs:
        example = _example(spec)
        data = example if isinstance(example, list) else [example]
        shape = [1, len(data)] if len(spec.shape) > 1 else [1]
        tensors.append({"name": spec.name, "datatype": spec.datatype, "shape": shape, "data": data})
    return {"/infer": {"inputs": tensors}, "/{model}": row, ":predict": {"instances": [row]}}


def _route(
    route: HttpRoute, model: str, bodies: Mapping[str, object], host: str
) -> tuple[str, str]:
    body = next((each for end, each in bodies.items() if route.path.endswith(end)), {})
    data = "" if route.method == "GET" else f" -d '{json.dumps(body, ensure_ascii=False)}'"
    method = f"-X {route.method} " if route.method not in {"GET", "POST"} else ""
    path = route.path.replace("{model}", quote(model, safe=""))
    query = "".join(html.paragraph(f"?{each.name}= {each.summary}") for each in route.query)
    command = f"<pre>curl {method}{escape(host + path + data)}</pre>\n"
    return f"{route.method} {route.path}: {route.summary}", command + query


def _host(request: Request) -> str:
    return request.header("host") or "localhost:8000"


def _page(title: str, body: str, nav: str) -> Response:
    made = document(title, body, nav=nav).encode("utf-8", "replace")
    return Response(made, content_type=HTML, headers=_headers())
