"""Files of tokens under a running server: short ones, changes, and scopes of models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flour.core.errors import ParameterError
from runtime.http.routes import HttpRoute
from runtime.http.wire.messages import Response
from tests.runtime.http.test_settings import ALICE, BOB, BODY, House, bearer
from tests.runtime.http.test_settings import house as house_fixture
from tests.runtime.plans import shift

house = house_fixture
RIGHTS = "predict,read,change"


def test_a_token_has_sixteen_characters(house: House) -> None:
    with pytest.raises(ParameterError, match="a token has 16 characters or more") as refused:
        house.serve(tokens=house.tokens(f"alice {ALICE}\nbob {BOB[:15]}\n"))
    assert refused.value.where == f"{house.place}/tokens:2"
    assert refused.value.found == "15 characters"
    assert house.statuses(1, bearer(BOB[:16]), tokens=house.tokens(f"bob {BOB[:16]}")) == [200]


def test_a_token_file_that_changes_is_read_again(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that comes, one whose rights change, one that goes; a broken file, and none."""
    house.patch.setattr("runtime.http.guard.guards._CHECK_SECONDS", 0.0)
    client = house.serve(tokens=house.tokens())

    def told() -> list[int]:
        asked = [("GET", "/v2"), ("POST", "/predict/m")]
        answers = [client.ask(*e, BODY, bearer(t)).status for t in (ALICE, BOB) for e in asked]
        return [*answers, client.post("/predict/m", BODY, bearer("c" * 20)).status]

    assert told() == [200, 200, 403, 200, 401]
    house.tokens(f"alice {ALICE} read\ncarol {'c' * 20}\n")
    assert told() == [200, 403, 401, 401, 200]
    house.tokens("")  # as an editor leaves it for a moment
    assert told() == [200, 403, 401, 401, 200], "the former tokens stay valid"
    house.tokens(f"alice {ALICE}\nbob short\n")
    assert told() == [200, 403, 401, 401, 200], "the former tokens stay valid"
    (house.place / "tokens").write_bytes(b"\xff\xfe")
    assert told() == [200, 403, 401, 401, 200], "the former tokens stay valid"
    (house.place / "tokens").unlink()
    assert told() == [200, 403, 401, 401, 200]
    said = [each for each in caplog.messages if "former tokens stay valid" in each]
    assert len(said) == 4, "once for each problem"
    assert "16 characters or more" in said[1]
    house.tokens()
    assert told() == [200, 200, 403, 200, 401]


def test_a_client_with_a_scope_sees_and_asks_its_models_only(house: House) -> None:
    house.runtime.register("secret", shift(1.0))
    tokens = house.tokens(f"alice {ALICE}\nbob {BOB} {RIGHTS} m,b*\n")
    own = HttpRoute("GET", "/hello", lambda *_: Response(), "One of the caller's")
    client = house.serve(tokens=tokens, routes=[own])
    names: dict[str, Callable[[Any], list[str]]] = {
        "/v2/models": lambda told: told["models"],
        "/v1/models": lambda told: told["models"],
        "/v2/models/stats": lambda told: [each["name"] for each in told["model_stats"]],
    }
    for path, read in names.items():
        for token, seen in ((ALICE, {"m", "secret"}), (BOB, {"m"})):
            assert set(read(client.ask("GET", path, None, bearer(token)).json)) == seen
    told = client.ask("POST", "/v2/repository/index", b"{}", bearer(BOB)).json
    assert {each["name"] for each in told} == {"m", "bad"}
    statuses = {
        **{("POST", path): 200 for path in ("/predict/m", "/predict/m@1")},
        ("GET", "/v2"): 200,
        ("GET", "/nowhere"): 404,
        ("POST", "/v2/repository/models/bad/load"): 200,
        **{("POST", path): 403 for path in ("/predict/secret", "/predict/secret@1")},
        **{("POST", f"/v2/repository/models/{each}/load"): 403 for each in ("secret", "m%2Fx")},
        **{("GET", path): 403 for path in ("/", "/metrics", "/explain/secret", "/hello")},
    }
    for (method, path), status in statuses.items():
        body = BODY if "predict" in path else b"{}"
        assert client.ask(method, path, body, bearer(BOB)).status == status, path
