"""The default call of every way in, beside the best call by the same way.

The default is what people write first: a model of LightGBM's as it is imported, and no output
named. The best is the least of what the same way takes where the one output that is read is named,
and where the model has that output alone. Processor time, of servers too, in turns.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, redirect_stdout
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.client import Connection
from bench.goal import Goal
from bench.servers import post

#: By how much the default call may differ from the best.
MOST = 1.1
TREES, WIDTH = 100, 30
#: Rows of a block, of a frame, and of a file.
BLOCK, FRAME, FILE = 1000, 20_000, 100_000
TURNS, TURN_SECONDS = 40, 2e-3
OUTPUT = "value"
Call = Callable[[], object]


class Way(NamedTuple):
    """Calls of one way in: as people write it, with the output named, with that output alone."""

    name: str
    default: Call
    named: Call
    alone: Call


def measured() -> Iterator[Goal]:
    """A goal for each way in."""
    with TemporaryDirectory(prefix="pretzel-bench-") as folder, ExitStack() as stack:
        for way in _ways(Path(folder), stack):
            default, *others = least(*way[1:])
            share = default / min(default, *others)
            said = ", ".join(f"{1e6 * each:.4g}" for each in (default, *others))
            print(f"{way.name}: default, named and alone take {said} us", flush=True)
            yield Goal(f"{way.name}: the default call, of the best", share, MOST, at_most=True)


def _ways(folder: Path, stack: ExitStack) -> Iterator[Way]:
    """Every way in."""
    import flour
    import oven
    from runtime import Runtime

    model, rows = _model()
    program = flour.from_lightgbm(model.booster_)
    plans = [oven.bake(each, background=False) for each in (program, program[OUTPUT])]
    served = stack.enter_context(Runtime(executors=1))
    for name, plan in zip(("m", "alone"), plans, strict=True):
        served.register(name, plan)
    yield from _from_python(served, plans, rows)
    yield from _sessions(model, rows)
    yield from _frames(plans, rows, model.booster_.feature_name())
    yield from _over_http(served, rows, stack)
    yield _command(plans, rows, folder)


def _model() -> tuple[Any, NDArray[np.float64]]:
    """A fitted classifier of LightGBM's, and rows for it that are float32 too."""
    from lightgbm import LGBMClassifier

    rows = np.random.default_rng(0).normal(size=(FILE, WIDTH)).astype(np.float32)
    labels = rows[:3000, 0] * rows[:3000, 1] + rows[:3000, 2] > 0
    model = LGBMClassifier(n_estimators=TREES, n_jobs=1, verbose=-1)
    return model.fit(rows[:3000], labels), rows.astype(np.float64)


def _from_python(served: Any, plans: list[Any], rows: NDArray[np.float64]) -> Iterator[Way]:
    def submitted(name: str, data: Any, **options: Any) -> Any:
        return served.submit(name, data, **options).result()

    def batches(name: str, data: Any, **options: Any) -> Any:
        return [*served.predict_batch(name, [data] * 4, **options)]

    for size, data in (("one row", rows[0]), (f"{BLOCK:,} rows", rows[:BLOCK])):
        for name, call in (("predict", served.predict), ("submit", submitted)):
            default, alone = (partial(call, asked, data) for asked in ("m", "alone"))
            yield Way(f"{name}, {size}", default, partial(default, outputs=OUTPUT), alone)
    for size, data in (("one row", rows[:1]), (f"{BLOCK:,} rows", rows[:BLOCK])):
        run, alone = (partial(each.run, data) for each in plans)
        yield Way(f"plan.run, {size}", run, run, alone)
    block = rows[:BLOCK]
    named = partial(batches, "m", block, outputs=OUTPUT)
    yield Way(
        "predict_batch", partial(batches, "m", block), named, partial(batches, "alone", block)
    )


def _sessions(model: Any, rows: NDArray[np.float64]) -> Iterator[Way]:
    """Sessions as onnxruntime's, of a classifier with two outputs."""
    import pretzel
    from bench.inputs import NUMBERS, Inputs
    from bench.onnx_export import export

    session = pretzel.InferenceSession(export(model, Inputs(NUMBERS, rows[:10])))
    name, wanted = session.get_inputs()[0].name, [session.get_outputs()[-1].name]
    for size, count in (("one row", 1), (f"{BLOCK:,} rows", BLOCK)):
        feed = {name: rows[:count].astype(np.float32)}
        named = partial(session.run, wanted, feed)
        yield Way(f"InferenceSession, {size}", partial(session.run, None, feed), named, named)


def _frames(plans: list[Any], rows: NDArray[np.float64], names: list[str]) -> Iterator[Way]:
    """Frames and a database."""
    import pandas as pd
    import polars as pl

    import pretzel

    frame = pd.DataFrame(rows[:FRAME], columns=names)
    default, alone = (partial(pretzel.pandas.predict, plan, frame) for plan in plans)
    yield Way("pandas", default, partial(default, outputs=OUTPUT), alone)
    table = pl.from_pandas(frame)

    def select(plan: Any, **options: Any) -> object:
        return table.select(pretzel.polars.predict(plan, *names, **options))

    selected, alone = (partial(select, plan) for plan in plans)
    yield Way("Polars", selected, partial(selected, outputs=OUTPUT), alone)
    connection = pretzel.duckdb.connect()
    arrow = table.to_arrow()
    queries: list[Call] = []
    for name, plan, outputs in (("m", 0, None), ("named", 0, OUTPUT), ("alone", 1, OUTPUT)):
        pretzel.duckdb.register(connection, name, plans[plan], outputs=outputs)
        query = f"select {name}({', '.join(names)}) as answer from arrow"
        queries.append(partial(_rows_of, connection, query, arrow))
    yield Way("DuckDB", *queries)


def _rows_of(connection: Any, query: str, arrow: Any) -> object:
    """The answers of a query over a table that it calls `arrow`."""
    return connection.sql(query).to_arrow_table() if arrow else None


def _over_http(served: Any, rows: NDArray[np.float64], stack: ExitStack) -> Iterator[Way]:
    """A row and a block, by the protocol."""
    from urllib.parse import urlsplit

    from runtime.http import Server, ServerSettings

    server = stack.enter_context(Server(served, ServerSettings(port=0)))
    connection = stack.enter_context(closing(Connection(int(urlsplit(server.url).port or 0))))

    def ask(request: bytes) -> None:
        connection.send(0, request)
        while connection.receive() is None:
            pass

    for size, count in (("one row", 1), (f"{BLOCK:,} rows", BLOCK)):
        data = rows[:count].ravel().tolist()
        tensor = {"name": "X", "shape": [count, WIDTH], "datatype": "FP64", "data": data}
        body: dict[str, object] = {"inputs": [tensor]}
        ways = [
            partial(ask, post(f"/v2/models/{name}/infer", {**body, **more}))
            for name, more in (("m", {}), ("m", {"outputs": [{"name": OUTPUT}]}), ("alone", {}))
        ]
        yield Way(f"HTTP, {size}", *ways)


def _command(plans: list[Any], rows: NDArray[np.float64], folder: Path) -> Way:
    """The command over a file of Arrow's."""
    import pyarrow as pa
    from pyarrow import feather

    from runtime.cli import main

    table = pa.table({str(name): column for name, column in enumerate(rows.T)})
    feather.write_feather(table, folder / "rows.arrow", compression="uncompressed")
    for name, plan in zip(("m", "alone"), plans, strict=True):
        plan.save(folder / f"{name}.pretzel")

    def predict(name: str, *options: str) -> None:
        out = folder / "answers.arrow"
        out.unlink(missing_ok=True)
        asked = [str(folder / f"{name}.pretzel"), str(folder / "rows.arrow"), "--output", str(out)]
        with redirect_stdout(io.StringIO()):
            if main(["predict", *asked, *options]):
                raise RuntimeError("the command failed")

    named = partial(predict, "m", "--outputs", OUTPUT)
    return Way("pretzel predict", partial(predict, "m"), named, partial(predict, "alone"))


def least(*calls: Call) -> list[float]:
    """Seconds of the process's processors for each call: the least of bursts, taken in turns."""
    for call in calls:
        call()
    counts = [max(1, min(2000, int(TURN_SECONDS / _burst(call, 1)))) for call in calls]
    took = [[_burst(*each) for each in zip(calls, counts, strict=True)] for _ in range(TURNS)]
    return np.min(took, axis=0).tolist()  # type: ignore[no-any-return]  # a list of floats


def _burst(call: Call, calls: int) -> float:
    start = time.process_time_ns()
    for _ in range(calls):
        call()
    return (time.process_time_ns() - start) / calls / 1e9
