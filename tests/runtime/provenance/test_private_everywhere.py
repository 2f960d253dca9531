"""Values of private columns, those of the training included, are told nowhere."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import joblib
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import flour
from runtime import Runtime
from runtime.cli import main
from runtime.http import Server, ServerSettings
from runtime.repository.repository import Repository
from runtime.routing import Pair
from runtime.service.direct import Direct
from tests.runtime.http.client import Client
from tests.runtime.provenance import planted

#: Files that hold what was learnt, or what somebody else has written: they have to be protected.
_HOLDERS = (".joblib", ".csv", ".jsonl", ".parquet", ".pretzel")

Texts = list[tuple[str, bytes]]


class Search:
    """What was told of a folder of models, and by whom."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str], *, private: bool) -> None:
        self.root, self.private, self.texts = root, private, Texts()
        self._capsys = capsys

    def add(self, where: str, text: object) -> None:
        self.texts.append((where, text if isinstance(text, bytes) else str(text).encode()))

    def pretzel(self, *words: object) -> int:
        """Run a command, every other one with JSON, and keep what it says."""
        code, more = 0, ["--json"] * (len(self.texts) % 2)
        try:
            code = int(main([*map(str, words), *more]))
        except Exception as problem:  # noqa: BLE001 (a traceback is a text as well)
            self.add(f"{words}", "".join(traceback.format_exception(problem)))
        said = self._capsys.readouterr()
        self.add(f"{words}", said.out + said.err)
        return code

    def told(self) -> dict[str, list[str]]:
        every = [each for some in planted.TRAINED.values() for each in some]
        return planted.found(self.texts, (*every, *planted.ASKED))

    def around(self, told: dict[str, list[str]]) -> str:
        """The text around the first place that tells something."""
        places = {place for some in told.values() for place in some}
        for where, text in self.texts:
            if where in places and planted.found([(where, text)], told):
                at = min(found for value in told if (found := text.find(value.encode())) >= 0)
                return f"{where}: {text[max(0, at - 3000) : at + 500].decode(errors='replace')}"
        return ""


class Pairs:
    """An observer that keeps what versions and their shadows have answered."""

    def __init__(self) -> None:
        self.seen = list[Pair]()

    def add(self, pair: Pair) -> None:
        self.seen.append(pair)


def write(root: Path) -> None:
    """Models, rows of their training, and rows that are wrong in one way each."""
    for name, model in (("m", planted.pipeline()), ("t", planted.tree())):
        joblib.dump(model, root / f"{name}.joblib")
    joblib.dump(planted.neighbours(), root / "k.joblib")
    planted.frame().to_json(root / "rows.jsonl", orient="records", lines=True)
    planted.frame().to_csv(root / "rows.csv", index=False)
    for number in range(13):
        line = json.dumps(planted.asked(number))
        (root / f"bad-{number}.jsonl").write_text(f"{line}\n")
        broken = line[: len(line) // 2] if number % 2 else line.replace(":", "", 1)
        (root / f"broken-{number}.jsonl").write_text(f"{broken}\n")
    wrong = planted.frame().assign(phone="rq9val-csv")
    wrong.to_csv(root / "bad.csv", index=False)
    wrong.assign(ssn="rq9val").to_parquet(root / "bad.parquet")
    (root / "ragged.csv").write_text("ssn,note\nrq9val\n")
    (root / "no-header.csv").write_text("rq9val,1\n")


def commands(search: Search) -> None:
    """Every command that reads a model or rows, in ways that work and in ways that do not."""
    root, models = search.root, search.root / "models"
    hide = ("--private", ",".join(planted.PRIVATE)) if search.private else ()
    into = ("--into", models, "--trust-pickle")
    rows = root / "rows.jsonl"
    bad = root / "bad-1.jsonl"
    assert search.pretzel("import", root / "m.joblib", "--verify", bad, *into, *hide)
    for name, columns in (("m", planted.PRIVATE), ("t", ("split",)), ("k", ("phone",))):
        own = ("--private", ",".join(columns)) if search.private else ()
        verify = ("--verify", rows) if name != "k" else ()
        assert (
            search.pretzel(
                *("import", root / f"{name}.joblib", "--force", "--version", 1),
                *(*verify, "--covers", *into, *own),
            )
            == 0
        )
        for stage in ("logical", "optimised", "stages", "source"):
            search.pretzel("explain", models / name, "--stage", stage)
            search.pretzel("explain", models / name, "--stage", stage, "--html")
    plan = models / "m" / "1" / "m.pretzel"
    search.pretzel("explain", plan, "--stage", "logical")
    for each in (rows, bad, *sorted(root.glob("b*-*.jsonl")), *sorted(root.glob("*.parquet"))):
        search.pretzel("predict", plan, each)
    for each in (models / "m", plan):
        search.pretzel("explain", each, "--rows", rows)
        search.pretzel("explain", each, "--rows", rows, "--html", "--background", rows)
        search.pretzel("explain", each, "--rows", bad)
        for table in ("bad.csv", "ragged.csv", "no-header.csv"):
            search.pretzel("predict", each, root / table)
        original = root / "m.joblib"
        for file in (rows, root / "bad-2.jsonl", root / "bad.csv"):
            search.pretzel("verify", each, "--trust-pickle", "--against", original, "--rows", file)
        search.pretzel("inspect", each)
        search.pretzel("predict", each, rows, "--keep", "nothing")
    search.pretzel("predict", plan, root / "bad.parquet", "--where", "phone > 'rq9val'")
    search.pretzel("ls", models)
    search.pretzel("dashboard", "--into", root)
    lines = (models / "m" / "1" / "verify.jsonl", models / "t" / "1" / "verify.jsonl")
    assert [path.is_file() for path in lines] == [not search.private] * 2


def bodies(number: int) -> Iterator[tuple[bytes, dict[str, str]]]:
    """A request's row in several ways, and bodies that are no requests."""
    row = json.dumps(planted.asked(number)).encode()
    yield row, {}
    yield b"[" + row + b"," + row + b"]", {}
    yield row[: len(row) - 9 - number], {}
    yield b'{"rq9val": ' * 600 + b"1" + b"}" * 600, {}
    yield row, {"Content-Type": "application/x-rq9val"}
    yield row, {"Content-Encoding": "gzip"}
    yield row, {"X-Request-Timeout-Ms": "0.0001", "X-Timeout-Ms": "rq9val"}
    yield row.replace(b"mk7cat", b"mk7cat\xff"), {}
    yield b"[" + row + b"," + row.replace(b'"phone"', b'"rq9val"') + b"]", {}


def tensors(number: int, **parameters: object) -> bytes:
    row = planted.asked(number)
    told = [
        {
            "name": name,
            "datatype": "FP64" if isinstance(value, float) else "BYTES",
            "shape": [1, 1],
            "data": [value],
        }
        for name, value in row.items()
    ]
    return json.dumps({"inputs": told, "parameters": parameters}).encode()


def asked(search: Search, client: Client, runtime: Runtime) -> None:
    """Requests over HTTP and calls in process, good and bad."""
    for number in range(13):
        for path in ("/predict/m", "/predict/m?x=rq9val", "/v1/models/m:predict"):
            for body, headers in bodies(number):
                reply = client.post(path, body, {"X-Request-Id": str(number), **headers})
                search.add(f"POST {path} {number}", reply.body + str(reply.headers).encode())
        for path in ("/v2/models/m/infer", "/v2/models/m/versions/2/infer"):
            for explain in (False, True):
                reply = client.post(path, tensors(number, explain=explain))
                search.add(f"POST {path} {number}", reply.body + str(reply.headers).encode())
        row = planted.asked(number)
        bytes_of_it = {**row, "ssn": f"rq9val-{number}".encode() + b"\xff"}
        for call in (runtime.predict, lambda *each: runtime.submit(*each).result()):
            for data in (row, [row, row], [*row.values()], {"X": [row]}, bytes_of_it):
                try:
                    call("m" if number % 2 else "m@1", data)
                except Exception as problem:  # noqa: BLE001 (whatever it is, it must not tell)
                    search.add(f"call {number}", "".join(traceback.format_exception(problem)))
                    search.add(f"call {number}", repr(problem) + repr(vars(problem)))


def pages(search: Search, client: Client, server: Server) -> None:
    """Every GET route, of every model, with every option."""
    for route in server.service.routes:
        if route.method != "GET":
            continue
        for model, version in (("m", "1"), ("m", "2"), ("t", "1"), ("k", "1"), ("no", "1")):
            path = route.path.replace("{model}", model).replace("{version}", version)
            options = ["", "?q=m&refresh=5", *(f"?step={step}" for step in _STEPS)]
            for option in options if route.content_type.startswith("text/html") else [""]:
                search.add(f"GET {path}{option}", client.get(path + option).body)
    search.add("index", client.post("/v2/repository/index", {}).body)


_STEPS = ("stages", "logical", "optimised", "source", "llvm", "rq9val")


def served(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve the folder with all that looks at requests, and ask it."""
    root = search.root
    notes = {"private": planted.PRIVATE} if search.private else {}
    settings = ServerSettings(
        port=0, access_log=root / "access.log", tracing=True, trace_stages=0.5, explain_rate=1000.0
    )
    spans, provider, pairs = InMemorySpanExporter(), TracerProvider(), Pairs()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    with (
        Runtime() as runtime,
        Repository(root / "models", runtime, quiet_seconds=0.0) as repository,
    ):
        repository.load_all()
        assert {each.state for each in repository.index()} == {"READY"}
        program = flour.from_sklearn(planted.pipeline(0.5), planted.frame())
        runtime.register("m", program, "2", activate=False, notes=notes)
        runtime.route("m", "m@1", shadow="m@2")
        comparison = runtime.experiments.compare("m", segment="city" if search.private else "ssn")
        runtime.experiments.observe("m", pairs)
        keeper: Any = runtime.keep("m", root / "answers", subject="city", private="hash")
        reference = planted.frame().to_dict("list")
        watch = runtime.watch("m", reference=reference, segments=("city",), outliers=("range",))
        with Server(runtime, settings, repository=repository) as server:
            client = Client(server.port)
            asked(search, client, runtime)
            broken(search, client, monkeypatch)
            watch.fold()
            pages(search, client, server)
            asked_once = runtime.predict("m", planted.asked(0))
            rolled(search, client, runtime)
            pages(search, client, server)
        search.add("compare", repr(comparison.disagreements) + comparison.to_html())
        assert pairs.seen
        search.add("pairs", repr(pairs.seen))
        search.add("watch", [watch.drift(), watch.cells(), watch.alarms, runtime.stats()])
        search.add("strangest", [repr(each.strangest) for each in watch.outliers])
        search.add("stats", str(runtime.stats()))
        keeper.flush()
        why: Any = runtime.why(getattr(asked_once, "id"))  # noqa: B009 (a dict with one)
        for form in ("text", "html", "dot"):
            search.add("why", why.lineage(form))
        search.add("why", [why.inputs, why.plan_facts, why.answers])
        for _ in ("as text", "as JSON"):
            search.pretzel("why", why.id, "--answers", root / "answers")
            search.add("between", "")
            search.pretzel("why", why.id, "--answers", root / "answers")
        keeper.erase("Oslo")
        untrue = root / "models" / "m" / "1" / "verify.jsonl"
        untrue.write_text(_UNTRUE)
        later = repository.scan()
        search.add("refused", repr(later))
        search.add("index", repr(repository.index()))
        untrue.unlink()
    assert len(spans.get_finished_spans()) > 200
    for span in spans.get_finished_spans():
        search.add("span", span.to_json())
    provider.shutdown()


#: Rows beside a model that it does not answer, and a line that is no JSON.
_UNTRUE = json.dumps({"input": planted.asked(1), "outputs": {"label": 0}}) + '\n{"rq9val": \n'


def broken(search: Search, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of ours, whose error quotes the row and comes from another one."""

    def fails(*given: object, **_: object) -> None:
        try:
            raise ValueError(f"rq9val {given!r}")
        except ValueError as problem:
            raise RuntimeError("rq9val", planted.asked(0)) from problem

    with monkeypatch.context() as patch:
        for name in ("quick", "submit", "predict"):
            patch.setattr(Direct, name, fails)
        for number in range(3):
            reply = client.post("/predict/m", planted.asked(number))
            search.add("broken", reply.body)


def rolled(search: Search, client: Client, runtime: Runtime) -> None:
    """A rollout to its end, with a challenger that is given up."""
    terms = {"to": "m@2", "steps": [50, 100], "dwell": 0.02, "least": 1, "header": "user"}
    search.add("rollout", client.post("/v2/models/m/rollout", terms).body)
    for number in range(40):
        with suppress(Exception):
            runtime.predict("m", planted.asked(number), headers={"user": str(number)})
    for action in ("pause", "resume", "abort", "rq9val"):
        body = {"action": action, "why": "because"}
        search.add("rollout", client.post("/v2/models/m/rollout/state", body).body)
        search.add("rollout", client.get("/v2/models/m/rollout").body)
    search.add("rollback", client.post("/v2/models/m/rollback", {}).body)
    search.add("history", repr(runtime.routes.history("m")))


Everything = Callable[[bool], Search]


@pytest.fixture
def everything(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> Everything:
    """Do all of it, and collect what was told."""

    def run(private: bool) -> Search:  # noqa: FBT001 (the one thing that differs)
        caplog.set_level(logging.DEBUG)
        search = Search(tmp_path, capsys, private=private)
        write(tmp_path)
        commands(search)
        served(search, monkeypatch)
        # Every file but those that hold models, and rows that a user has written.
        for path in search.root.rglob("*"):
            holds = path.suffix in _HOLDERS and not path.name.startswith("verify")
            if path.is_file() and not holds and "plans" not in path.parts:
                search.add(str(path), path.read_bytes())
        search.add("log", caplog.text)
        said = capsys.readouterr()
        search.add("streams", said.out + said.err)
        return search

    return run


def test_no_private_value_is_told_anywhere(everything: Everything) -> None:
    search = everything(True)
    told = search.told()
    assert told == {}, search.around(told)
    assert len(search.texts) > 1000


def test_all_of_them_are_told_where_nothing_is_private(everything: Everything) -> None:
    """The search finds values where it looks, so that it can fail."""
    told = everything(False).told()
    for kind, values in planted.TRAINED.items():
        assert any(value in told for value in values), kind
    assert {*planted.ASKED} <= {*told}
    places = " ".join(place.split("(")[-1] for some in told.values() for place in some)
    commands = ("predict", "explain", "verify")
    for place in (*commands, "GET /explain", "call", "pairs", "answers-", "log"):
        assert place in places, place


def test_it_is_found_however_it_is_spelt() -> None:
    """Base64 at any place, percent-encoding, JSON, hexadecimal, UTF-16."""
    import base64

    for value in ("rq9val", "mk7word"):
        for before in range(3):
            packed = base64.b64encode(b"x" * before + value.encode() + b"yz")
            assert planted.found([("", packed)], [value])
        assert planted.found([("", value.encode().hex().encode())], [value])
        assert planted.found([("", json.dumps({"a": f"\u00fc{value}"}).encode())], [value])
