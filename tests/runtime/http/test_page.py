"""The pages: what they say, that nothing breaks out of them, and how a browser sees them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from socket import socket
from typing import Any
from urllib.parse import quote
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import numpy as np
import pytest

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.pages.page import STEPS
from runtime.http.pages.page_html import duration, number, size
from runtime.http.wire.interfaces import ModelState
from tests.house import until
from tests.runtime.http.client import Client
from tests.runtime.http.conftest import filled
from tests.runtime.http.test_metrics import ROW
from tests.runtime.plans import shift

EVIL = "<script>alert(1)</script>\"'&</td>"
VOID = {"meta", "input", "line", "path", "rect", "br", "hr", "circle"}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


class Folder:
    """A repository with one of each."""

    def index(self) -> list[ModelState]:
        return [
            ModelState("iris", "1"),
            ModelState("spare", "1", "UNAVAILABLE", "unloaded", wanted=False),
            ModelState("broken", "2", "UNAVAILABLE", f"no such file: {EVIL}"),
        ]

    def load(self, name: str) -> None: ...

    def unload(self, name: str) -> None: ...


class Outline(HTMLParser):
    """Checks that elements are closed as they were opened; collects text and links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]
        assert not any(name.startswith("on") for name, _ in attrs), attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Runtime(executors=1) as runtime:
        filled(runtime)
        runtime.register(EVIL, shift(3.0))
        settings = ServerSettings(port=0, max_unread=0.0)
        with Server(runtime, settings, repository=Folder()) as made:
            for _ in range(5):
                assert Client(made.port).post("/v2/models/iris/infer", ROW).status == 200
            runtime.predict("shift", [[1.0, 2.0, 3.0, 4.0]], engine="batch")
            yield made


def page(server: Server, path: str) -> Outline:
    answer = Client(server.port).get(path)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    found = Outline(answer.body.decode())
    assert "script" not in found.seen
    assert all(link.startswith(("/", "?")) for link in found.links), found.links
    return found


def test_everything_is_on_it(server: Server) -> None:
    found = page(server, "/")
    for said in ("iris", "in service", "by version", "not ready", "no such file", "on purpose"):
        assert said in found.text, said
    assert EVIL in found.text, "it is shown as it is called"
    assert "Executors" in found.text
    assert re.search(r"\d+ (µs|ms)", found.text), "latency percentiles"


def test_every_link_leads_to_a_page(server: Server) -> None:
    links = [link for link in page(server, "/").links if link.startswith("/explain/")]
    assert len(links) == len(server.service.runtime.stats().versions)
    for link in links:
        assert page(server, link).text


def test_a_model_has_a_form(server: Server) -> None:
    """Its own script is all that runs there, and a column's name breaks out of nothing."""
    runtime = server.service.runtime
    row = flour.record(**{EVIL: float, "city": str, "member": bool})
    runtime.register("mixed", flour.outputs(up=row[EVIL] + 1.0), background=False)
    try:
        answer = Client(server.port).get("/try/mixed")
        script = re.findall(r"<script>(.*?)</script>", answer.body.decode(), re.DOTALL)
        digest = b64encode(sha256(script[0].encode()).digest()).decode()
        assert len(script) == 1
        assert f"script-src 'sha256-{digest}'" in answer.headers["content-security-policy"]
        found = Outline(answer.body.decode())
        assert EVIL in found.text
        assert f"127.0.0.1:{server.port}/predict/mixed" in found.text
        assert found.seen.count("input") == 1, "other columns are not read"
    finally:
        runtime.unregister("mixed")
    for link in [each for each in page(server, "/").links if each.startswith("/try/")]:
        assert Client(server.port).get(link).status == 200
    assert Client(server.port).get("/try/nothing").status == 404


def test_commands_of_the_routes_work(server: Server) -> None:
    answer = Client(server.port).get("/docs")
    text = unescape(answer.body.decode())
    commands = re.findall(r"curl (?:-X (\w+) )?127.0.0.1:\d+(/\S*)(?: -d '(.*)')?</pre>", text)
    asked = {path: body for _, path, body in commands if path.endswith(("/infer", ":predict"))}
    asked |= {path: body for _, path, body in commands if path.startswith("/predict/")}
    assert len(asked) == 3
    for path, body in asked.items():
        assert Client(server.port).post(path, json.loads(body)).status == 200
    routes = [each for each in server.service.routes if not each.hidden]
    shown = {each.path for each in routes if "{version}" not in each.path}
    assert len({path for _, path, _ in commands}) == len(shown)


@pytest.mark.apart
@pytest.mark.skipif(shutil.which("chromedriver") is None, reason="no ChromeDriver here")
def test_a_click_shows_answer_and_shares(server: Server) -> None:
    runtime = server.service.runtime
    row = flour.record(age=float, income=float)
    score = row["age"] * 2.0 + row["income"]
    runtime.register("scored", flour.outputs(scores=score), background=False)
    with browser(server.url + "/try/scored") as ask:
        ask("document.querySelector('[name=age]').value = '3'")
        ask("document.querySelector('form.try button').click()")
        until(lambda: "scores" in ask("return document.getElementById('answer').innerText"))
        shown = ask("return document.getElementById('answer').innerText").split()
    runtime.unregister("scored")
    assert shown[:2] == ["scores", "6"]


@contextmanager
def browser(url: str) -> Iterator[Callable[[str], Any]]:
    """A page in Chromium; the function runs JavaScript there."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(["chromedriver", f"--port={port}", "--silent"])

    def call(method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = HttpRequest(f"http://127.0.0.1:{port}{path}", data, method=method)
        with urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": flags}}}}
    session = ""
    try:
        until(lambda: not suppressed(lambda: call("GET", "/status")))
        session = f"/session/{call('POST', '/session', wanted)['sessionId']}"
        call("POST", f"{session}/url", {"url": url})
        script = f"{session}/execute/sync"
        yield lambda text: call("POST", script, {"script": text, "args": []})
    finally:
        if session:
            call("DELETE", session)
        driver.terminate()
        driver.wait(timeout=30)


def suppressed(call: Callable[[], object]) -> bool:
    """True if a call raises an OSError."""
    try:
        call()
    except OSError:
        return True
    return False


def test_a_graph_has_boxes_that_open(server: Server) -> None:
    """Its models with what they share, and each step with what it has done and what that took."""
    runtime = server.service.runtime

    async def known(x: float) -> float:
        return x

    row = flour.record(x=float)
    top = flour.model("shift")(*[flour.fetch(known, row["x"], gives=float, name=EVIL)] * 4)["top"]
    same = flour.model("shift@1")(*[row["x"]] * 4)["top"]
    runtime.register("graph", flour.outputs(top=top, same=same), background=False)
    try:
        for _ in range(3):
            runtime.predict("graph", {"x": [1.0, 2.0]})
        for path in ("/?q=graph", "/explain/graph"):
            found = page(server, path)
            assert found.seen.count("details") == 3
            assert "graph@1: 2 models, 3 steps" in found.text
            assert re.search(r"shift \(shift@\d\): \d+ operators", found.text)
            assert f"fetch {EVIL}" in found.text
            table = found.text[found.text.index("a row of a block") :]
            assert re.search(r"Max036–\d+(\.\d)? (µs|ms)", table), table
        assert "Graphs of models" not in page(server, "/?q=iris").text
    finally:
        runtime.unregister("graph")


def test_a_plan_at_every_step(server: Server) -> None:
    for step, said in (
        ("stages", "kernel_linear"),
        ("logical", "Softmax"),
        ("optimised", "Linear"),
        ("source", "def "),
    ):
        found = page(server, f"/explain/iris?step={step}")
        assert "iris@1" in found.text
        assert said.lower() in found.text.lower()
    assert "shift@1" in page(server, "/explain/shift/versions/1").text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/explain/iris?step=asm", 400),
        ("/explain/iris?step=" + "x" * 500, 400),
        ("/explain/nobody", 404),
        ("/explain/iris/versions/9", 404),
    ],
)
def test_what_is_not_shown(server: Server, path: str, status: int) -> None:
    answer = Client(server.port).get(path)
    assert answer.status == status
    assert len(answer.error) < 400


def test_a_dropped_plan_is_said_to_be() -> None:
    with Runtime(executors=1, memory_budget=1) as runtime:
        for name in ("one", "two"):
            runtime.register(name, shift(1.0))
        with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as made:
            assert "dropped for memory" in page(made, "/").text
            dropped = [each.name for each in runtime.stats().versions if not each.resident]
            answer = Client(made.port).get(f"/explain/{dropped[0]}")
    assert answer.status == 409
    assert "a call brings it back" in answer.error


def test_searching_and_refreshing(server: Server) -> None:
    assert "people" not in page(server, "/?q=iris").text
    assert "none of" in page(server, f"/?q={quote(EVIL + 'x')}").text
    assert 'http-equiv="refresh" content="5"' in _body(server, "/?refresh=5")
    for odd in ("0", "x", "-1", "%3Cscript%3E", "9" * 50):
        assert "http-equiv" not in _body(server, f"/?refresh={odd}")


def _body(server: Server, path: str) -> str:
    return Client(server.port).get(path).body.decode()


def test_many_models_are_cut(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setattr("runtime.http.pages.page.SHOWN", 2)
    found = page(server, "/")
    assert "the first 2 of 9; search for the others" in found.text


def test_without_figures_there_is_a_page_too() -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("plain", flour.vector("x", 2).sigmoid().named("y"))
        with Server(runtime, ServerSettings(port=0, metrics=False)) as made:
            assert "plain" in page(made, "/").text


def test_figures_as_people_read_them() -> None:
    assert [size(each) for each in (None, 0, 1023, 1024, 5 << 20, 3 << 40)] == [
        *("–", "0 B", "1023 B", "1.0 KiB", "5.0 MiB", "3.0 TiB")
    ]
    moments = (None, 2e-6, 0.0123, 3.21, 600.0, 86400.0, 864000.0)
    assert [duration(each) for each in moments] == [
        *("–", "2 µs", "12.3 ms", "3.2 s", "10 min", "24 h", "10 days")
    ]
    assert [number(each) for each in (None, 0, 12345)] == ["–", "0", "12,345"]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_shows_it(server: Server, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    run = [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *(f"--user-data-dir={tmp_path}", "--window-size=1400,1000", "--virtual-time-budget=2000"),
    ]
    shot = tmp_path / "page.png"
    done = subprocess.run(
        [*run, "--dump-dom", f"--screenshot={shot}", server.url + "/"],
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    dom = done.stdout
    assert dom.count("<tbody>") == 3, "models, repository, executors"
    assert "<script" not in dom
    assert "&lt;script&gt;alert(1)" in dom
    # Content that the policy forbids, or that is not there, is complained about.
    assert "Refused to" not in done.stderr
    image = shot.read_bytes()
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(image) > 20_000, "there is something on it"


def test_drift_alarms_and_tiers_are_told() -> None:
    row = flour.record(age=float, income=float)
    reference = {"age": np.arange(2000.0), "income": np.arange(2000.0)}
    with Runtime() as runtime:
        runtime.register("m", flour.outputs(score=row["age"] + row["income"]), background=False)
        watch = runtime.watch("m", reference=reference)
        with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
            runtime.predict("m", {**reference, "age": np.full(2000, 9e9)}, engine="inline")
            watch.fold()
            found = page(server, "/").text
    assert "Tier 1 is answered by native code" in found
    watched = found[found.index("Watched") :]
    assert watched.index("age") < watched.index("alarm", watched.index("age"))
    assert watched.index("age") < watched.index("as the reference")
    assert "alarms" in found[: found.index("Watched")]


def test_all_pages_have_one_look_and_wide_tables_scroll(server: Server) -> None:
    texts = [Client(server.port).get(path).body.decode() for path in ("/", "/explain/iris")]
    texts += [Client(server.port).get(f"/explain/iris?step={s}").body.decode() for s in STEPS]
    looks = {text[text.index("<style>") : text.index("</style>")] for text in texts}
    assert len(looks) == 1
    for text in texts:
        assert '<meta name="viewport"' in text
        assert text.count("<table>") == text.count('<div class="wide"><table>')
        assert text.index("<nav>") < text.index("</header>")
