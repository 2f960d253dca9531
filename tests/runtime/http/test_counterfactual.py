"""The smallest change of an answer over HTTP: each one flips what the served endpoint answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.answer import attributions
from tests.runtime.http.client import Client, Reply

ROWS = 250
RNG = np.random.default_rng(5)
NUMBERS = RNG.normal(size=(ROWS, 5))
PEOPLE = pd.DataFrame({
    "age": RNG.uniform(18, 80, ROWS),
    "city": RNG.choice(["Oslo", "Rome", "Graz"], ROWS),
    "ssn": RNG.choice(["mk7cat-a", "mk7cat-b"], ROWS),
})  # fmt: skip
TEXTS = [" ".join(RNG.choice(["good", "bad", "day", "night", "so"], 5)) for _ in range(ROWS)]

PERSON = {"age": 30.0, "city": "Rome", "ssn": "x"}


def people() -> Any:
    """A table whose private column counts most."""
    hot = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer((StandardScaler(), ["age"]), (hot, ["city", "ssn"]))
    score = PEOPLE["age"] / 20 + (PEOPLE["city"] == "Oslo") + 2.0 * (PEOPLE["ssn"] == "mk7cat-a")
    fit = make_pipeline(columns, LogisticRegression())
    return fit.fit(PEOPLE, np.where(score > score.median(), "yes", "no"))


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Runtime, Client]]:
    y = np.digitize(NUMBERS[:, 0] + NUMBERS[:, 1] * NUMBERS[:, 2], [-0.5, 0.5])
    with Runtime(executors=1) as runtime:
        models: dict[str, tuple[Any, Any]] = {
            "light": (LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1), NUMBERS),
            "forest": (RandomForestClassifier(8, max_depth=5, random_state=0), NUMBERS),
            "words": (make_pipeline(CountVectorizer(), LogisticRegression()), TEXTS),
        }
        for name, (fit, X) in models.items():
            target = ["bad" in text for text in TEXTS] if name == "words" else y > 0
            runtime.register(name, flour.from_sklearn(fit.fit(X, target), sample=X))
        program, notes = flour.from_sklearn(people(), sample=PEOPLE), {"private": ("ssn",)}
        for version in "12":
            runtime.register("people", program, version, notes=notes, activate=version == "1")
        runtime.wait(600)
        settings = ServerSettings(port=0, explain_rate=1e6, max_unread=0.0)
        with Server(runtime, settings) as server:
            yield runtime, Client(server.port)


def ask(client: Client, name: str, row: object, want: object, **more: object) -> Reply:
    return client.post(f"/v2/models/{name}/counterfactual", {"row": row, "want": want, **more})


def label(client: Client, name: str, row: object) -> Any:
    return client.post(f"/predict/{name}", row).json["label"]


@pytest.mark.parametrize("name", ["light", "forest", "words", "people"])
def test_every_change_flips_the_answer(served: tuple[Runtime, Client], name: str) -> None:
    """A thousand rows of four models are predicted once more, by the served endpoint."""
    _, client = served
    rows: list[Any] = {"words": TEXTS, "people": PEOPLE.to_dict("records")}.get(
        name, NUMBERS.tolist()
    )
    flipped = 0
    for row in rows:
        before = label(client, name, row)
        want = {"yes": "no", "no": "yes"}[before] if name == "people" else not before
        made = ask(client, name, row, want).json
        assert made["before"]["label"] == before
        if made["found"]:
            changed = {**row, **made["row"]} if name == "people" else made["row"]
            assert label(client, name, changed) == want == made["after"]["label"]
            assert made["changes"]
            flipped += 1
    assert flipped > (len(rows) // 3 if name == "words" else 0.8 * len(rows))


def test_private_columns_stay_and_are_not_shown(served: tuple[Runtime, Client]) -> None:
    """Also where they are asked for by name."""
    _, client = served
    row = {"age": 30.0, "city": "Rome", "ssn": "mk7cat-b"}
    made = ask(client, "people", row, "yes")
    assert made.status == 200
    assert made.json["found"]
    assert made.json["row"].keys() == {"age", "city"}
    assert b"mk7cat" not in made.body
    for more in ({"free": ["ssn"]}, {"within": {"ssn": ["mk7cat-a"]}}):
        refused = ask(client, "people", row, "yes", **more)
        assert refused.status == 400
        assert "is private" in refused.error
        assert b"mk7cat" not in refused.body


@pytest.mark.parametrize(
    ("name", "row", "more", "said"),
    [
        ("people", PERSON, {"want": "perhaps"}, "no label"),
        ("light", [[1.0] * 5] * 2, {"want": True}, "from one row"),
        ("light", [1.0] * 5, {"want": True, "free": ["Z"]}, "no such column"),
        ("light", [1.0] * 5, {"want": True, "most": 11}, "most"),
        ("people", PERSON, {"want": "yes", "within": {"age": [10**400, 1]}}, "no bounds"),
        ("people", PERSON, {"want": "yes", "within": {"age": [1e300, 1e308]}}, "too large"),
        ("light", [1.0] * 5, {"wish": True}, "wish"),
    ],
)
def test_errors_say_what_is_wrong(
    served: tuple[Runtime, Client], name: str, row: object, more: dict[str, object], said: str
) -> None:
    reply = served[1].post(f"/v2/models/{name}/counterfactual", {"row": row, **more})
    assert reply.status == 400, reply.body
    assert said in reply.error


def test_a_version_is_asked_where_a_route_has_several(served: tuple[Runtime, Client]) -> None:
    """A change might be answered by the other one; a shadow answers nobody."""
    runtime, client = served
    row = {"age": 30.0, "city": "Rome", "ssn": "mk7cat-b"}
    runtime.route("people", "people@1", split={"people@2": 50.0}, by="city")
    try:
        refused = ask(client, "people", row, "yes")
        assert refused.status == 409
        assert "people@1, people@2" in refused.error
        assert ask(client, "people/versions/2", row, "yes").status == 200
        runtime.route("people", "people@1", shadow="people@2")
        assert ask(client, "people", row, "yes").status == 200
    finally:
        runtime.route("people", "people@1")


def test_the_search_has_an_end(
    served: tuple[Runtime, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change is not proved if the time ends before all are tried."""
    monkeypatch.setattr(attributions, "SECONDS", 0.0)
    _, client = served
    row = NUMBERS[0].tolist()
    made = ask(client, "light", row, not label(client, "light", row))
    assert made.status == 200
    assert not made.json["found"]
    assert not made.json["proved"]
