"""Terms and keys of rollouts that cannot be are refused, with what would do."""

from __future__ import annotations

from typing import Any

import pytest

import flour
from flour.core.errors import FlourError
from runtime import Runtime
from runtime.errors import BadRegistration, UnknownEndpoint
from tests.runtime.conftest import Clock
from tests.runtime.rollout.test_rollout import ROW, ask, begun


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"steps": ()}, "steps"),
        ({"steps": (20, 10)}, "steps"),
        ({"steps": (20, 120)}, "steps"),
        ({"steps": (0, 10)}, "steps"),
        ({"steps": (20, "x")}, "steps"),
        ({"steps": 5}, "steps"),
        ({"steps": "5"}, "steps"),
        ({"dwell": "soon"}, "dwell='soon'"),
        ({"dwell": "x min"}, "dwell='x min'"),
        ({"dwell": "1.2.3 min"}, "'10 min'"),
        ({"dwell": None}, "'10 min'"),
        ({"dwell": [1]}, "'10 min'"),
        ({"dwell": True}, "'10 min'"),
        ({"dwell": -1}, "'10 min'"),
        ({"alpha": "x"}, "alpha='x'"),
        ({"least": 2.5}, "least=2.5"),
        ({"least": "x"}, "least='x'"),
        ({"webhook": 5}, "webhook=5"),
        ({"by": 5}, "by=5"),
        ({"to": 4}, "no version '4'"),
        ({"who": 5}, "who=5"),
        ({"require": None}, "'p99 < 5 ms'"),
        ({"require": 5}, "'p99 < 5 ms'"),
        ({"require": "errors <= 1 %"}, "'p99 < 5 ms'"),
        ({"require": "p99 < 5"}, "'p99 < 5 ms'"),
        ({"stepz": (20,)}, "did you mean 'steps'"),
        ({"alpha": 0.0}, "alpha"),
        ({"least": 0}, "least"),
        ({"header": "x"}, "by"),
        ({"by": None}, "key"),
        ({"webhook": "file:///etc/passwd"}, "webhook"),
        ({"webhook": "http://[x"}, "webhook"),
        ({"require": ("p99 < 5",)}, "percentile"),
        ({"require": ("p99 > 5 ms",)}, "percentile"),
        ({"require": ("errors > 1 %",)}, "errors"),
        ({"require": ("errors < 3 ms",)}, "no time"),
        ({"require": ("errors < 100 %",)}, "below 1"),
        ({"require": ("errors < 0 %",)}, "positive"),
        ({"require": ("agreement < 98 %",)}, "agreement"),
        ({"require": ("errors",)}, "no criterion"),
        ({"require": (3,)}, "no criterion"),
        ({"require": ("errors < 1 %", "errors < 2 %")}, "same"),
    ],
)
def test_terms_that_cannot_be(
    runtime: Runtime, clock: Clock, terms: dict[str, Any], said: str
) -> None:
    with pytest.raises(FlourError, match=said):
        begun(runtime, clock, **terms)
    assert runtime.predict("m", ROW)["label"] == 1.0
    assert not runtime.routes.has_route("m")  # new versions would wait for it


@pytest.mark.parametrize("key", ["usr", "User", "amout"])
def test_a_key_that_is_nearly_a_column_is_refused_with_what_there_is(
    runtime: Runtime, clock: Clock, key: str
) -> None:
    with pytest.raises(BadRegistration, match=f"no row has a column '{key}'") as refused:
        begun(runtime, clock, by=key)
    assert refused.value.found == "user, amount"
    assert "did you mean" in str(refused.value.hint)
    with pytest.raises(UnknownEndpoint, match="has no rollout"):
        runtime.rollout("m")
    assert not runtime.routes.has_route("m")


def test_rows_without_columns_have_no_key(runtime: Runtime, clock: Clock) -> None:
    for version in (1, 2):
        flow = flour.vector("x", 2).linear([[1.0, float(version)]], [0.0])
        runtime.register("v", flow, version, activate=version == 1, background=False)
    with pytest.raises(BadRegistration, match="rows without columns: x") as refused:
        runtime.rollout("v", "v@2", by="user", clock=clock, watch=False)
    assert "header=" in str(refused.value.hint)
    runtime.rollout("v", "v@2", header="x-user", clock=clock, watch=False).abort()


def test_a_key_that_no_request_has_is_told_while_it_holds(runtime: Runtime, clock: Clock) -> None:
    made = begun(runtime, clock, by="session")  # rows may have more columns than the model
    ask(runtime, 50)
    clock.now += 61
    made.look()
    assert made.reason == "0 of 10 answers of m@2 in this step; have requests 'session'?"
    for number in range(200):
        runtime.predict("m", {"user": 1.0, "amount": 1.0, "session": number})
    made.look()
    assert made.step == 1
