"""The OpenAPI document: it lists what there is, and what it says is true under fuzzing."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import CHECKS
from schemathesis.core.transport import Response

from runtime.http.table import ROUTES
from tests.runtime.http.conftest import House

#: Each of them holds for every answer to every request that can be made up.
TRUE = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
]
EXAMPLES = 15


@pytest.fixture(scope="module")
def document(house: House) -> dict[str, Any]:
    made: dict[str, Any] = house.client.get("/openapi.json").json
    return made


def test_every_route_is_listed(document: dict[str, Any]) -> None:
    listed = {
        (path, method.upper()) for path, known in document["paths"].items() for method in known
    }
    assert listed == {(route.path, route.method) for route in ROUTES if not route.hidden}
    ids = [known["operationId"] for path in document["paths"].values() for known in path.values()]
    assert len(set(ids)) == len(ids)


def test_another_name_of_the_document(house: House, document: dict[str, Any]) -> None:
    assert house.client.get("/v2/docs/dataplane.json").json == document


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    named = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert named == set(document["components"]["schemas"])


def test_what_requests_may_say_beside_their_body(house: House, document: dict[str, Any]) -> None:
    paths = document["paths"]
    said = {one["name"]: one for one in paths["/"]["get"]["parameters"]}
    assert {name: one["in"] for name, one in said.items()} == {"q": "query", "refresh": "query"}
    assert said["refresh"]["schema"]["maximum"] == 3600
    named = {one["name"]: one for one in paths["/explain/{model}"]["get"]["parameters"]}
    for step in named["step"]["schema"]["enum"]:
        assert house.client.get(f"/explain/iris?step={step}").status == 200
    for path, known in paths.items():
        if path.endswith(("/infer", ":predict")) or path.startswith("/predict"):
            names = {one["name"] for one in known["post"]["parameters"]}
            assert "x-request-timeout-ms" in names
    late = {"X-Request-Timeout-Ms": "never"}
    body = {"instances": [[1, 2, 3, 4]]}
    assert house.client.post("/v1/models/iris:predict", body, late).status == 400


@pytest.mark.parametrize(
    "route", [r for r in ROUTES if not r.hidden], ids=lambda r: f"{r.method} {r.path}"
)
def test_no_request_that_can_be_made_up_breaks_it(
    house: House, document: dict[str, Any], route: Any
) -> None:
    schema = schemathesis.openapi.from_dict(document)
    operation = schema[route.path][route.method]
    checks: list[Any] = [CHECKS.get_one(name) for name in TRUE]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def fuzz(case: schemathesis.Case[Any]) -> None:
        case.path_parameters = _real(case.path_parameters)
        answer: Response = case.call(base_url=house.server.url)
        # Who says how soon may be told that it was not soon enough.
        late = answer.status_code == 504 and "x-request-timeout-ms" in (case.headers or {})
        case.validate_response(answer, checks=checks[1:] if late else checks)

    fuzz()
    logging.getLogger("pretzel").setLevel(logging.NOTSET)  # one of the routes changes it


def _real(known: dict[str, Any]) -> dict[str, Any]:
    """Half of the names are names of models, so that bodies are looked at."""
    if "model" in known and len(known["model"]) % 2:
        return {
            **known,
            "model": ["iris", "people", "text"][len(known["model"]) % 3],
            "version": "1",
        }
    return known
