"""Requests that ask why: `"parameters": {"explain": true}`."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.neighbors import KNeighborsRegressor

import flour
import oven
from oven.explain import attribute
from oven.plans.attribution import Attribution
from runtime.http.answer.attributions import Attributions
from runtime.http.wire.problems import HttpError
from tests.boosters import sample
from tests.runtime.http.conftest import House, tensor


@pytest.fixture(scope="module")
def trees(house: House) -> oven.Plan:
    """Register trees that know their covers, and a model without an exact attribution."""
    made = sample(1, 200)
    fit = LGBMClassifier(n_estimators=4, n_jobs=1, verbose=-1, min_child_samples=5)
    fit.fit(made.X, made.y > 0)
    program = flour.from_sklearn(fit, sample=made.X, covers=True)
    house.runtime.register("trees", program, background=False)
    near = KNeighborsRegressor(2).fit(made.X, made.y)
    house.runtime.register("near", flour.from_sklearn(near, sample=made.X), background=False)
    return oven.bake(program)


def asked(house: House, model: str, rows: np.ndarray[Any, Any], explain: object) -> Any:
    """Return the reply to these rows."""
    inputs = [tensor("X", "FP64", [*rows.shape], rows.ravel().tolist())]
    body = {"inputs": inputs, "parameters": {"explain": explain}}
    return house.client.post(f"/v2/models/{model}/infer", body)


@pytest.mark.parametrize("explain", [True, "probabilities"])
def test_an_answer_says_what_each_column_added(
    house: House, trees: oven.Plan, explain: object
) -> None:
    """Beside the outputs, which are those of a request that does not ask."""
    rows = sample(2, 3).X
    reply = asked(house, "trees", rows, explain)
    assert reply.status == 200, reply.body
    plain = asked(house, "trees", rows, explain=False).json
    assert reply.json["outputs"] == plain["outputs"]
    assert "parameters" not in plain
    output = "scores" if explain is True else explain
    want = attribute(trees, rows, output=str(output)).to_dict()
    assert reply.json["parameters"]["attribution"] == want
    for row in want["rows"]:
        assert row["base"] + sum(row["shares"].values()) == pytest.approx(row["score"], rel=1e-9)


@pytest.mark.parametrize(
    ("model", "rows", "explain", "status", "said"),
    [
        *(("trees", 1, each, 400, "explain is true") for each in (1, "")),
        *(("trees", 1, "score", 400, "no output 'score'"), ("trees", 1, "label", 400, "no number")),
        *(("near", 1, True, 400, "no exact attribution"), ("trees", 101, True, 400, "100 rows")),
    ],
)
def test_what_cannot_be_explained_is_an_error_of_the_client(
    house: House, trees: oven.Plan, model: str, rows: int, explain: object, status: int, said: str
) -> None:
    """It says why."""
    assert trees.ready
    reply = asked(house, model, sample(3, rows).X, explain)
    assert reply.status == status, reply.body
    assert said in reply.error


def test_the_words_of_an_answer_are_found_on_a_thread(
    house: House, trees: oven.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop's has others to answer, and the first words import scipy."""
    threads: list[str] = []
    told = Attribution.to_dict

    def to_dict(made: Attribution, row: int | None = None) -> dict[str, Any]:
        threads.append(threading.current_thread().name)
        return told(made, row)

    monkeypatch.setattr(Attribution, "to_dict", to_dict)
    assert trees.ready
    assert asked(house, "trees", sample(2, 3).X, explain=True).status == 200
    assert threads
    assert not {"pretzel-http"} & set(threads)


def test_requests_above_the_rate_are_refused() -> None:
    """The bucket holds one second's requests, and fills again."""
    now = [0.0]
    bucket = Attributions(2.0, 10, clock=lambda: now[0])
    take = bucket._take
    take()
    take()
    with pytest.raises(HttpError, match="too many") as refused:
        take()
    assert refused.value.status == 429
    assert refused.value.headers == (("Retry-After", "1"),)
    now[0] += 0.5
    take()
    with pytest.raises(HttpError, match="too many"):
        take()
    with pytest.raises(HttpError, match="not explained here"):
        Attributions(0.0, 10)._take()
