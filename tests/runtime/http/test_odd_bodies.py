"""Bodies of megabytes in odd shapes: nobody else waits while they are read or refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import pytest

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.codec.array_pieces import LARGE
from runtime.http.service import READERS
from runtime.http.wire.loop_fairness import lock_shared
from runtime.http.wire.messages import Request
from tests.runtime.http.client import Client, Reply
from tests.runtime.http.conftest import filled, tensor
from tests.runtime.http.test_array_pieces import PEOPLE

SIZE = 4 << 20


def large(body: object) -> bytes:
    text = json.dumps(body).encode()
    assert len(text) > LARGE
    return text


class Probe:
    """A guard that watches the event loop: the most work of the process between two turns of it.

    This is the time of the processor, so that other processes of the machine do not count.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._task: asyncio.Task[None] | None = None

    def __call__(self, request: Request) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            before = process_time()
            await asyncio.sleep(0.0005)
            self.longest = max(self.longest, process_time() - before)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Client, Client, Probe]]:
    """Clients of a server whose `/invocations` is people, and of one where it is iris."""
    for reader in READERS:
        reader.make()
    probe = Probe()
    settings = [
        ServerSettings(port=0, max_unread=0.0, default_model=name) for name in ("people", "iris")
    ]
    with (
        lock_shared(),
        Runtime(executors=1) as runtime,
        Server(runtime, settings[0], guards=[probe]) as people,
        Server(runtime, settings[1]) as iris,
    ):
        filled(runtime)
        yield Client(people.port), Client(iris.port), probe


def many(unit: Callable[[int], str], size: int = SIZE) -> str:
    return ",".join(map(unit, range(size // (len(unit(10_000)) + 1))))


KEYS = "{" + many(lambda at: f'"k{at:07}":1') + "}"
LISTS = "[" + many(lambda _: "[1]") + "]"
EMPTY = "[" + many(lambda _: "[]") + "]"
NESTED = "{" + many(lambda at: f'"k{at:07}":{{"a":[1,{{}}]}}') + "}"
CUBE = "[" + many(lambda at: f"[[{at}.5],[1],[2],[3]]") + "]"
DEEP = "[" + many(lambda _: "[" * 900 + "1" + "]" * 900) + "]"
TEXTS = "[" + many(lambda at: rf'"\u00e9\n{at}"') + "]"
ROWS = "[" + many(lambda at: f'{{"age":{at % 90}.5,"income":{at},"city":"city {at % 40}"}}') + "]"
INFER = '{{"inputs":[{{"name":"x","datatype":"{}","shape":{},"data":{}}}],"parameters":{}}}'
ROUTE = "/v2/models/iris/route"

#: Path, body, status. Before bodies were cut, the loop stood still for 0.1 to 2 s in each of these.
ODD: dict[str, tuple[str, str, int]] = {
    "keys": ("/predict/people", KEYS, 400),
    "nested objects": ("/predict/iris", NESTED, 400),
    "keys as columns": ("/invocations", f'{{"inputs":{KEYS}}}', 400),
    "empty rows": ("/invocations", f'{{"instances":{EMPTY}}}', 400),
    "rows": ("/invocations", f'{{"dataframe_records":{ROWS}}}', 200),
    "a deep table": ("/invocations", f'{{"inputs":{DEEP}}}', 400),
    "nested data": ("/v2/models/whole/infer", INFER.format("INT64", "[1, 2]", EMPTY, "{}"), 400),
    "rows as data": ("/v2/models/iris/infer", INFER.format("FP64", "[1, 4]", LISTS, "{}"), 400),
    "deep data": ("/v2/models/iris/infer", INFER.format("FP64", "[1, 4]", DEEP, "{}"), 400),
    "a cube": ("/v2/models/text/infer", INFER.format("BYTES", "[1]", CUBE, "{}"), 400),
    "a long shape": ("/v2/models/iris/infer", INFER.format("FP64", LISTS, "[1]", "{}"), 400),
    "parameters": ("/v2/models/iris/infer", INFER.format("FP64", "[1, 1]", "[1]", KEYS), 400),
    "texts": ("/v1/models/iris:predict", f'{{"instances":{TEXTS}}}', 400),
    "a report": ("/v2/models/iris/report", f'{{"request":"a","values":{KEYS}}}', 413),
}


@pytest.mark.parametrize("name", ODD)
def test_nobody_waits_for_odd_bodies(
    served: tuple[Client, Client, Probe], name: str, record_property: Callable[[str, object], None]
) -> None:
    client, _, probe = served
    path, body, status = ODD[name]
    lags = []
    for _ in range(6):  # a busy machine delays one turn, but not each time
        probe.longest = 0.0
        reply = client.post(path, body.encode())
        assert reply.status == status, reply.body[:300]
        lags.append(probe.longest)
        if lags[-1] < 0.03:
            break
    record_property("milliseconds", min(lags) * 1e3)
    assert min(lags) < 0.06, lags


VECTORS = [[at * 0.5, 1, 2, at] for at in range(40_000)]
NAMED = [dict(zip("abcd", row, strict=True)) for row in VECTORS]
#: Columns in another order, behind the first piece.
MIXED = NAMED[:20_000] + [dict(reversed(row.items())) for row in NAMED[20_000:]]
TABLE = [list(row.values()) for row in PEOPLE]
COLUMNS = {name: [row[name] for row in PEOPLE] for name in PEOPLE[0]}


def predictions(reply: Reply) -> Any:
    assert reply.status == 200, reply.body[:300]
    return reply.json["predictions"]


def test_every_form_of_invocations_is_answered_as_in_small_bodies(
    served: tuple[Client, Client, Probe],
) -> None:
    client, other, _ = served
    path, split = "/invocations", {"columns": [*PEOPLE[0]], "index": [*range(len(TABLE))]}
    want: list[Any] = [
        row
        for at in range(0, len(PEOPLE), 1000)
        for row in predictions(client.post(path, {"dataframe_records": PEOPLE[at : at + 1000]}))
    ]
    forms: list[dict[str, Any]] = [
        {"dataframe_records": PEOPLE},
        {"dataframe_split": {"data": TABLE, **split}},
        *({form: rows} for form in ("instances", "inputs") for rows in (PEOPLE, COLUMNS)),
    ]
    for form in forms:
        assert predictions(client.post(path, large(form))) == want
    lines = [
        ",".join(split["columns"]),
        *(f'{a},{b},"{str(c).replace(chr(34), chr(34) * 2)}"' for a, b, c in TABLE),
    ]
    body = "\r\n".join(lines).replace("city 1 ", "city 1\u2028").encode()
    want = [{**row, "city": str(row["city"]).replace("city 1 ", "city 1\u2028")} for row in want]
    header = {"content-type": "text/csv; header=present"}
    assert predictions(client.ask("POST", path, body, header)) == want
    want = [
        row
        for at in range(0, 40_000, 5000)
        for row in predictions(other.post(path, {"instances": VECTORS[at : at + 5000]}))
    ]
    for rows in (VECTORS, NAMED, MIXED):
        assert predictions(other.post(path, large({"inputs": rows}))) == want


def test_mistakes_in_large_bodies_are_told(served: tuple[Client, Client, Probe]) -> None:
    client, _, _ = served
    rows = [*PEOPLE[:-1], {"age": 1.0}]
    reply = client.post("/invocations", large({"dataframe_records": rows}))
    assert reply.status == 400
    assert "[7999]" in reply.error
    reply = client.post("/invocations", large({"instances": PEOPLE, "inputs": []}))
    assert "a body has one of these" in reply.error
    data = [[2**62 + at, at] for at in range(60_000)]
    x = tensor("count", "INT64", [60_000, 2], data)
    outputs = {
        each["name"]: each
        for each in client.post("/v2/models/whole/infer", large({"inputs": [x]})).json["outputs"]
    }
    assert outputs["same"]["data"] == [each for row in data for each in row]
    data[50_000] = [1, "a"]  # type: ignore[list-item]
    reply = client.post("/v2/models/whole/infer", large({"inputs": [x]}))
    assert "got `str`" in reply.error
    assert "values" in reply.error
    x = tensor("x", "FP64", [40_000, 4], VECTORS) | {"parameters": 3}
    reply = client.post("/v2/models/iris/infer", large({"inputs": [x]}))
    assert "expected `object | null`, got `int` at $.inputs[0].parameters" in reply.error


def test_missing_numbers_of_large_bodies(served: tuple[Client, Client, Probe]) -> None:
    client, _, _ = served
    rows: list[list[float]] = [[float("nan"), at, 1.0, 2.0] for at in range(40_000)]
    x = tensor("x", "FP64", [40_000, 4], rows)
    reply = client.post("/v2/models/shift/infer", large({"inputs": [x]}))
    moved = reply.json["outputs"][0]["data"]
    assert moved[:4] == [None, 2.0, 3.0, 4.0]
    assert len(moved) == 160_000


def test_a_deep_object_beside_long_arrays(served: tuple[Client, Client, Probe]) -> None:
    client, _, _ = served
    deep = '{"a":' * 900 + "1" + "}" * 900
    body = f'{{"age":{json.dumps([1.0] * 200_000)},"income":[1],"deep":{deep}}}'
    for path, text in (("/predict/people", body), ("/invocations", f'{{"inputs":{body}}}')):
        assert client.post(path, text.encode()).status == 400


@pytest.mark.parametrize("deep", [1100, 200_000])
def test_data_that_is_nested_too_deeply(served: tuple[Client, Client, Probe], deep: int) -> None:
    client, _, _ = served
    data = "[" * deep + "]" * deep
    for kind, model in (("FP64", "iris"), ("INT64", "whole"), ("BYTES", "text")):
        reply = client.post(
            f"/v2/models/{model}/infer", INFER.format(kind, "[1]", data, "{}").encode()
        )
        assert reply.status == 400
        assert "nested too deeply" in reply.error


def test_a_text_of_json_in_a_tensor_has_a_limit(served: tuple[Client, Client, Probe]) -> None:
    client, _, _ = served
    x = tensor("document", "BYTES", [1], [LISTS[: LARGE + 1]], content_type="pd_json")
    reply = client.post("/v2/models/text/infer", {"inputs": [x]})
    assert "does not read as JSON of up to" in reply.error
