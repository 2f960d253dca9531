"""What a block of rows may be for a client of a cluster, and what is refused before it is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import flour
from runtime import Runtime
from runtime.cluster.serving import ClusterClient
from runtime.cluster.serving.bodies import MemberState, Roster
from runtime.errors import ClusterError
from runtime.http import Server, ServerSettings

FRAME = pd.DataFrame({"age": [41.0, 25.0, 33.0], "city": ["Oslo", "Rome", "Bern"]})
ENCODE = OneHotEncoder(handle_unknown="ignore")
COLUMNS = make_column_transformer((ENCODE, ["city"]), ("passthrough", ["age"]))
MODEL = make_pipeline(COLUMNS, LinearRegression()).fit(FRAME, [1.0, 5.0, 3.5])


@pytest.fixture(scope="module")
def client() -> Iterator[ClusterClient]:
    with (
        Runtime(executors=1) as runtime,
        Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server,
    ):
        runtime.register("m", flour.from_sklearn(MODEL, sample=FRAME), background=False)
        members = Roster(1, [MemberState(0, server.url, "ready")])
        with ClusterClient(look=lambda: members) as made:
            yield made


@pytest.mark.parametrize(
    "rows",
    [
        FRAME,
        {name: FRAME[name] for name in FRAME},
        {name: FRAME[name].tolist() for name in FRAME},
        {name: FRAME[name].to_numpy(object) for name in FRAME},
        {"age": FRAME["age"].to_numpy(), "city": FRAME["city"].to_numpy().astype(str)},
        {"age": np.array([41, 25, 33]), "city": FRAME["city"].to_numpy()},
    ],
    ids=["frame", "series", "lists", "objects", "strings", "whole numbers"],
)
@pytest.mark.parametrize(
    "shard", [None, ["a", "b", "a"], lambda _: [None, 1, "x"]], ids=["equal", "said", "mixed"]
)
def test_columns_may_be_held_by_anything(client: ClusterClient, rows: Any, shard: Any) -> None:
    found = client.predict_block("m", rows, shard=shard)["value"]
    np.testing.assert_allclose(found, MODEL.predict(FRAME))
    none = {name: column[:0] for name, column in dict(rows).items()}
    found = client.predict_block("m", none, shard=shard and (lambda _: []))["value"]
    assert (str(found.dtype), found.shape) == ("float64", (0,))


@pytest.mark.parametrize(
    "cities",
    [
        np.array([b"Oslo", b"Rome", b"Bern"]),
        np.array([b"Oslo", b"Rome", b"Bern"], object),
        np.array([5, "Rome", "Bern"], object),
        [5, "Rome", "Bern"],
        ["Oslo", None, "Bern"],
        pd.Series(["Oslo", np.nan, "Bern"], dtype=object),
    ],
)
def test_what_tensors_do_not_hold_is_refused(client: ClusterClient, cities: Any) -> None:
    with pytest.raises(ClusterError, match="numbers, or strings") as refused:
        client.predict_block("m", {"age": FRAME["age"], "city": cities})
    assert "'city'" in str(refused.value)


@pytest.mark.parametrize("shard", ["city", 5, [1, 2]])
def test_a_sharding_function_says_something_of_each_row(client: ClusterClient, shard: Any) -> None:
    with pytest.raises(ClusterError, match="something of each row"):
        client.predict_block("m", FRAME, shard=shard)


def test_addresses_names_and_the_end() -> None:
    for address in ("ftp://127.0.0.1:1", "nonsense"):
        with pytest.raises(ClusterError, match="http://host:port"):
            ClusterClient(address)
    with ClusterClient("http://127.0.0.1:9") as ended, pytest.raises(ClusterError, match="a name"):
        ended.predict(None, [1.0])  # type: ignore[arg-type]  # it is refused
    with pytest.raises(ClusterError, match="closed"):
        ended.predict("m", [1.0])
