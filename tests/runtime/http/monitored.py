"""A server with calls, a shadow, a watch, and a rollout that was aborted, for its metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from tests.runtime.http.client import Client

ROWS = 400


def ask(client: Client, count: int = 20) -> None:
    """Requests of each kind, an error among them."""
    for number in range(count):
        client.post("/predict/m", {"amount": float(number), "city": "Oslo"})
        client.post("/predict/rolled", {"amount": float(number), "city": "Oslo"})
    client.post("/v2/models/m/infer", b"{")


@contextmanager
def monitored() -> Iterator[Client]:
    """Yield a client of the server."""
    rng = np.random.default_rng(0)
    amounts, cities = rng.normal(size=ROWS), rng.choice(["Oslo", "Graz"], ROWS)
    row = flour.record(amount=float, city=flour.Category())
    amount, classes = row["amount"].as_vector(), ["no", "yes"]
    scores = [amount.logistic_classifier([[each]], 0.0, classes=classes) for each in (1.0, 2.0)]
    with Runtime(executors=1) as runtime:
        for name in ("m", "rolled"):
            for version, score in enumerate(scores, 1):
                flow = flour.outputs(label=score["label"], score=score["scores"], city=row["city"])
                runtime.register(name, flow, version, activate=version == 1, background=False)
        runtime.wait(60)
        runtime.route("m", "m@1", shadow="m@2", inline=False)
        reference = {"amount": amounts, "city": cities}
        runtime.watch("m", reference=reference, segments=("city",), outliers=("range",))
        rollout = runtime.rollout("rolled", to="rolled@2", steps=(50,), dwell=60, header="x-user")
        rollout.abort("it is enough")
        with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
            client = Client(server.port)
            runtime.predict("m", reference)
            ask(client)
            runtime.submit("m", reference, engine="batch").result()
            end = time.monotonic() + 20
            while "pretzel_drift_psi{" not in client.get("/metrics").body.decode():
                assert time.monotonic() < end, "the watch has looked"
                runtime.predict("m", reference)
                time.sleep(0.1)
            yield client
