"""Segments by who asks, in process and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.watch import Watch
from tests.runtime.http.client import Client

ROW = flour.record(age=float)
PROGRAM = flour.outputs(score=ROW["age"] * 0.01)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        made.register("m", PROGRAM, background=False)
        made.register("other", PROGRAM)
        yield made


def counted(seen: Watch) -> dict[str, int]:
    seen.fold()
    return {",".join(cell.segment): cell.rows for cell in seen.cells()}


def test_calls_count_for_their_tenants(runtime: Runtime) -> None:
    rows = {"age": np.arange(50.0)}
    with runtime.watch("m", segments=("@tenant",)) as seen:
        runtime.predict("m", rows, tenant="a", engine="inline")
        runtime.submit("m", {"age": np.arange(7.0)}, tenant="b", engine="batch").result()
        runtime.predict("m", rows, engine="inline")
        runtime.predict("m@1", rows, tenant="c", engine="inline")
        for _ in range(640):
            runtime.predict("m", {"age": 1.0}, tenant="d")
        found = counted(seen)
        assert 512 <= found.pop("d") <= 768  # one in 64 calls is looked at, and stands for these
        assert found == {"a": 50, "b": 7, "": 50, "c": 50}
        assert "m" not in runtime.endpoints.routes
    assert "m" in runtime.endpoints.routes
    assert "m" not in runtime.routes.by_tenant or not runtime.routes.by_tenant["m"]


def test_with_a_route_and_a_column_beside_it(runtime: Runtime) -> None:
    runtime.register("m", PROGRAM, "2", activate=False)
    runtime.route("m", "m@1", tenants={"b": "m@2"})
    with runtime.watch("m", segments=("@tenant", "age // 10"), reference={"age": [1.0]}) as seen:
        for tenant in ("a", "b", "a"):
            runtime.predict("m", {"age": np.array([5.0, 15.0])}, tenant=tenant, engine="inline")
        assert counted(seen) == {"a,0": 2, "a,10": 2}  # b's are answered by another version


def test_requests_count_for_the_tenant_of_their_header(runtime: Runtime) -> None:
    body = {"inputs": [{"name": "age", "datatype": "FP64", "shape": [2, 1], "data": [1, 2]}]}
    with (
        Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server,
        runtime.watch("m", segments=("@tenant",)) as seen,
    ):
        client = Client(server.port)
        for tenant, times in (("a", 3), ("b", 2), ("", 1)):
            for _ in range(64 * times):
                headers = {"x-tenant": tenant} if tenant else {}
                assert client.post("/v2/models/m/infer", body, headers).status == 200
        found = counted(seen)
        told = client.get("/metrics").body.decode()
    assert sum(found.values()) == pytest.approx(2 * 64 * 6, abs=256)
    assert found["a"] > found["b"] > found[""] >= 0
    assert 'segment="@tenant=a"' in told


def test_documents_have_tenants_too() -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts = ["good dog", "bad cat"] * 10
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, [1, 0] * 10)
    with Runtime() as runtime:
        runtime.register("m", flour.from_sklearn(model))
        with runtime.watch("m", segments=("@tenant",)) as seen:
            runtime.predict("m", texts, tenant="a", engine="inline")
            assert counted(seen) == {"a": 20}


def test_watches_of_one_endpoint_and_its_end(runtime: Runtime) -> None:
    first = runtime.watch("m", segments=("@tenant",))
    second = runtime.watch("m", segments=("@tenant",))
    first.close()
    first.close()
    runtime.predict("m", {"age": np.arange(3.0)}, tenant="a", engine="inline")
    assert counted(second) == {"a": 3}
    runtime.unregister("m")
    second.close()
    runtime.register("m", PROGRAM)
    assert "m" in runtime.endpoints.routes
