"""Shadows: what they do changes nothing for callers, and what cannot be asked is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flour
from flour.core.errors import InputError
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.routing import Route
from runtime.routing.mirror import WAITING
from runtime.routing.shadows import Shadows, kept
from tests.house import until
from tests.runtime.http.client import Client
from tests.runtime.plans import WIDTH, offset_of, shift
from tests.runtime.routing.seen import Seen

ROW = np.arange(WIDTH, dtype=float)
ROUTE = Route("m@1", shadow="m@2")


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        for number in (1, 2):
            made.register("m", shift(float(number)), version=number, activate=number == 1)
        yield made


def test_pairs_have_both_answers(runtime: Runtime) -> None:
    seen = Seen()
    runtime.experiments.observe("m", seen)
    runtime.route("m", "m@1", shadow="m@2")
    data = ROW.copy()
    answers = runtime.predict("m", data)
    asked = runtime.submit("m", ROW, outputs="top").result()
    blocks = list(runtime.predict_batch("m", [ROW[None]]))
    answers["moved"] += 100  # what callers do with theirs is not compared
    data += 100
    assert asked == {"top": ROW.max() + 1}
    assert len(blocks) == 1
    pairs = seen.wait(3)
    for pair in pairs:
        assert (pair.champion, pair.challenger) == ("m@1", "m@2")
        assert isinstance(pair.expected, dict)
        assert isinstance(pair.found, dict)
        assert pair.expected.keys() == pair.found.keys()
        assert np.all(np.asarray(pair.found["top"]) == np.asarray(pair.expected["top"]) + 1)
        assert (pair.champion_seconds or 1) > 0
        assert (pair.challenger_seconds or 1) > 0
    single = [each for each in pairs if np.shape(np.asarray(each.rows)) == ROW.shape]
    for each in single:
        assert np.array_equal(np.asarray(each.rows), ROW)
        assert isinstance(each.expected, dict)
        assert "moved" not in each.expected or offset_of(each.expected, ROW) == 1.0
    assert len(single) == 2
    (stats,) = runtime.routes.shadow_stats()
    assert (stats.challenger, stats.asked, stats.failed, stats.shed) == ("m@2", 3, 0, 0)


def test_a_sample(runtime: Runtime) -> None:
    seen = Seen()
    runtime.experiments.observe("m", seen)
    runtime.route("m", "m@1", shadow="m@2", sample=0.25)
    for _ in range(400):
        runtime.predict("m", ROW)
    until(lambda: sum(each.asked + each.shed for each in runtime.routes.shadow_stats()) >= 40)
    time.sleep(0.1)
    assert 40 <= sum(each.asked + each.shed for each in runtime.routes.shadow_stats()) <= 180


def test_errors_of_both_sides_are_pairs(runtime: Runtime) -> None:
    seen = Seen()
    runtime.experiments.observe("m", seen)
    runtime.register("m", shift(3.0, WIDTH + 3), version=3, activate=False)
    runtime.route("m", "m@1", shadow="m@3")
    assert offset_of(runtime.predict("m", ROW), ROW) == 1.0
    with pytest.raises(ValueError, match="4"):
        runtime.predict("m", [1.0])
    # In which order the two are asked is not said.
    second, first = sorted(seen.wait(2), key=lambda pair: isinstance(pair.expected, dict))
    assert isinstance(first.expected, dict)
    assert isinstance(first.found, Exception)
    assert isinstance(second.expected, Exception)
    assert runtime.routes.shadow_stats()[0].failed >= 1


class Executors:
    """Executors that are full, or that run a task on a thread."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full

    def __call__(self, task: Callable[[], object]) -> Executors:
        if self.full:
            raise RuntimeError("the queue is full")
        task()
        return self

    def result(self) -> None:
        return None


def test_a_shadow_that_hangs_holds_up_nobody() -> None:
    hangs = threading.Event()

    def ask(_address: str, _rows: object, **_options: Any) -> dict[str, Any]:
        hangs.wait(20)
        return {}

    shadows = Shadows(ask, Executors(), lambda _name: ())
    shadows.start()
    try:
        start = time.monotonic()
        for _ in range(3 * WAITING):
            shadows.offer(ROUTE, ROW, {}, {}, 0.0)
        assert time.monotonic() - start < 5
        assert shadows.waiting <= WAITING
        assert sum(each.shed for each in shadows.stats()) > WAITING
    finally:
        shadows.close()
        hangs.set()


def test_full_executors_shed_shadows_first() -> None:
    shadows = Shadows(lambda *_: {}, Executors(full=True), lambda _name: ())
    shadows.start()
    try:
        for _ in range(100):
            shadows.offer(ROUTE, ROW, {}, {}, 0.0)
        until(lambda: sum(each.shed for each in shadows.stats()) == 100)
        assert shadows.waiting == 0
        assert shadows.stats()[0].asked == 0
    finally:
        shadows.close()


@pytest.mark.parametrize("levels", [100, 600, 20_000])
def test_rows_that_are_nested_too_deeply_are_the_clients_mistake(
    levels: int, tmp_path: Path
) -> None:
    """Whatever has to copy them: by every door for JSON."""
    row = flour.record(a=float, city=str)
    lists, objects = "[" * levels + "]" * levels, '{"a": ' * levels + "1" + "}" * levels
    cell = '{"inputs": [{"name": "a", "shape": [1], "datatype": "FP64", "data": %s}]}'
    with Runtime(executors=1) as runtime:
        for factor in (2.0, 3.0):
            program = flour.outputs(x=row["a"] * factor)
            runtime.register("m", program, activate=factor == 2.0, background=False)
        runtime.route("m", "m@1", shadow="m@2")
        runtime.keep("m", tmp_path)
        with (
            runtime.watch("m", reference=[{"a": 1.0, "city": "x"}] * 20),
            Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server,
        ):
            client = Client(server.port)
            for deep in (lists, objects):
                bodies = [deep, f'{{"a": {deep}}}', f'{{"a": 1, "city": {deep}}}', f"[{deep}]"]
                bodies += [f'[{{"a": 1, "city": {deep}}}]']
                asked = [("/predict/m", body) for body in bodies]
                asked += [("/v2/models/m/infer", body) for body in (deep, cell % deep)]
                for path, body in asked:
                    reply = client.post(path, body.encode())
                    if reply.status == 200:  # the model does not read that column of a row
                        assert body.startswith('{"a": 1, "city"'), body[:40]
                        continue
                    assert reply.status == 400, (path, body[:40], reply.body)
                    assert "internal" not in reply.error
    nested: Any = 1.0
    for _ in range(levels):
        nested = [nested]
    with pytest.raises(InputError, match="nested too deeply"):
        kept({"a": nested})
