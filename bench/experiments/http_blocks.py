"""Blocks over HTTP: what a number costs on its way from the text of a body to an answer.

A linear model of 30 columns answers blocks in every form of body. The time is that of the client
from sending to having read the answer, over a connection that stays, divided by the numbers that
went in; so reading, computing and writing the answer are all in it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from bench.goal import Goal

COLUMNS = 30
#: Rows of the breast cancer data, and of bodies of some 12 and 60 MB.
ROWS = (569, 20_000, 100_000)
#: Nanoseconds a number that text may cost, and how often each body is sent.
TEXT, BINARY, ROUNDS, SECONDS = 40.0, 10.0, 5, 1.0


def http_blocks() -> Iterator[Goal]:
    """The goals, by form and size of body."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import flour
    from runtime import Runtime
    from runtime.http import Server, ServerSettings

    rng = np.random.default_rng(0)
    sample = rng.normal(size=(1000, COLUMNS))
    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(sample, sample[:, 0] > 0)
    with Runtime() as served, Server(served, ServerSettings(port=0)) as server:
        served.register("m", flour.from_sklearn(model, sample=sample), background=False)
        connection = HTTPConnection(urlsplit(server.url).netloc)
        for rows in ROWS:
            data = rng.normal(size=(rows, COLUMNS))
            for form, (path, body, headers) in _bodies(data).items():
                found: list[float] = []
                began = time.perf_counter()
                while len(found) < ROUNDS or time.perf_counter() - began < SECONDS:
                    before = time.perf_counter()
                    connection.request("POST", path, body, headers)
                    answer = connection.getresponse()
                    said = answer.read()
                    found.append(time.perf_counter() - before)
                    if answer.status != 200:
                        raise RuntimeError(f"{path}: {answer.status} {said[:200]!r}")
                seconds = min(found)
                cost = seconds * 1e9 / data.size
                few = rows == min(ROWS)  # a call of pyarrow's takes as long as ten thousand numbers
                limit = TEXT if few or form.startswith("JSON") else BINARY
                label = f"{form}, {rows:,} rows of {COLUMNS}: ns a number, both ways"
                yield Goal(label, cost, limit, at_most=True)
        connection.close()


def _bodies(data: NDArray[np.float64]) -> dict[str, tuple[str, bytes, dict[str, str]]]:
    import pyarrow as pa

    tensor: dict[str, Any] = {"name": "X", "shape": list(data.shape), "datatype": "FP64"}
    plain = json.dumps(data.tolist()).encode()
    text = json.dumps({"inputs": [{**tensor, "data": data.ravel().tolist()}]}).encode()
    sized = {**tensor, "parameters": {"binary_data_size": data.nbytes}}
    wanted = {"binary_data_output": True}
    head = json.dumps({"inputs": [sized], "parameters": wanted}).encode()
    stream = BytesIO()
    table = pa.table({str(name): column for name, column in enumerate(data.T)})
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    infer = "/v2/models/m/infer"
    arrow = {"Content-Type": (kind := "application/vnd.apache.arrow.stream"), "Accept": kind}
    return {
        "JSON, plain": ("/predict/m", plain, {}),
        "JSON, tensors": (infer, text, {}),
        "binary tensors": (
            infer,
            head + data.tobytes(),
            {"Inference-Header-Content-Length": str(len(head))},
        ),
        "Arrow": ("/predict/m", stream.getvalue(), arrow),
    }
