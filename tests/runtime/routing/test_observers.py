"""Any number of observers, comparisons and rollouts look at one endpoint, each by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from tests.house import until
from tests.runtime.http.client import Client
from tests.runtime.plans import WIDTH, shift
from tests.runtime.routing.seen import Seen

ROW = np.arange(WIDTH, dtype=float)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        for number in (1, 2):
            made.register("m", shift(float(number)), version=number, activate=number == 1)
        made.route("m", "m@1", shadow="m@2", inline=False)
        yield made


def _predicts(runtime: Runtime) -> None:
    runtime.predict("m", ROW)


def _submits(runtime: Runtime) -> None:
    runtime.submit("m", ROW).result()


def _blocks(runtime: Runtime) -> None:
    list(runtime.predict_batch("m", [ROW[None]]))


@pytest.mark.parametrize("ask", [_predicts, _submits, _blocks])
@pytest.mark.parametrize("first", ["observe", "compare"])
def test_observers_and_comparisons_see_the_same_pairs(
    runtime: Runtime, first: str, ask: Callable[[Runtime], None]
) -> None:
    seen, other = Seen(), Seen(RuntimeError)
    if first == "observe":
        runtime.experiments.observe("m", other)
        runtime.experiments.observe("m", seen)
    compared = [runtime.experiments.compare("m"), runtime.experiments.compare("m", segment="x")]
    agreed = runtime.experiments.agreement("m")
    if first == "compare":
        runtime.experiments.observe("m", other)
        runtime.experiments.observe("m", seen)
    for _ in range(5):
        ask(runtime)
    until(lambda: len(seen.pairs) == 5)
    until(lambda: all(each.counts().pairs == 5 for each in compared))
    assert len(other.pairs) == 5
    assert agreed == (0, 0)
    assert (
        runtime.experiments.agreement("m")[1] == runtime.experiments.compare("m").agreement()[1] > 0
    )
    assert "no shadow" not in str(compared[0])


def test_ending_one_leaves_the_others(runtime: Runtime) -> None:
    one, two = Seen(), Seen()
    ended, _ = runtime.experiments.observe("m", one), runtime.experiments.observe("m", two)
    runtime.experiments.observe("m", two)  # a pair is shown once
    compared, loose = (
        runtime.experiments.compare("m"),
        runtime.experiments.compare("m", tolerance=100.0),
    )
    runtime.predict("m", ROW)
    until(lambda: len(two.pairs) == loose.counts().pairs == compared.counts().pairs == 1)
    ended.close()
    with loose:
        pass
    runtime.predict("m", ROW)
    until(lambda: len(two.pairs) == compared.counts().pairs == 2)
    assert (len(one.pairs), loose.counts().pairs) == (1, 1)
    assert runtime.experiments.compare("m") is compared
    assert runtime.experiments.compare("m", tolerance=100.0) is not loose
    runtime.unregister("m")
    compared.close()


def test_a_rollout_has_a_comparison_of_its_own(runtime: Runtime) -> None:
    loose = runtime.experiments.compare("m", tolerance=1e9)
    runtime.predict("m", ROW)
    until(lambda: loose.counts().pairs == 1)
    assert loose.agreement()[0] > 0
    rollout = runtime.rollout(
        "m", "m@2", steps=(50,), header="x-user", require=("agreement > 98 %",)
    )
    default = runtime.experiments.compare("m")
    for number in range(20):
        runtime.predict("m", ROW + number, headers={"x-user": str(number)})
    until(lambda: loose.counts().pairs >= 2 and runtime.experiments.agreement("m")[1] > 0)
    until(lambda: runtime.experiments.agreement("m") == default.agreement())
    assert default.agreement()[0] < loose.agreement()[0]
    rollout.abort("enough")
    assert runtime.experiments.compare("m") is default


def test_http_compares_beside_an_observer(runtime: Runtime) -> None:
    seen = Seen()
    runtime.experiments.observe("m", seen)
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        client = Client(server.port)
        assert client.get("/v2/models/m/compare").json["pairs"] == 0
        for _ in range(3):
            runtime.predict("m", ROW)
        until(lambda: client.get("/v2/models/m/compare").json["pairs"] == 3)
    assert len(seen.pairs) == 3


def test_observers_come_and_go_under_traffic(runtime: Runtime) -> None:
    stays, over = Seen(), threading.Event()
    runtime.experiments.observe("m", stays)

    def changes() -> None:
        while not over.is_set():
            runtime.experiments.observe("m", Seen(ValueError)).close()
            runtime.experiments.compare("m", tolerance=time.monotonic()).close()

    thread = threading.Thread(target=changes)
    thread.start()
    for _ in range(300):
        runtime.predict("m", ROW)
    until(lambda: len(stays.pairs) == 300)
    over.set()
    thread.join()


def test_a_comparison_forgets_what_becomes_private() -> None:
    row = flour.record(ssn=float, amount=float)
    flow = flour.outputs(score=row["amount"] + 0.0 * row["ssn"])
    other = flour.outputs(score=row["amount"] * 2.0 + 0.0 * row["ssn"])
    with Runtime() as runtime:
        runtime.register("m", flow, 1, background=False)
        runtime.register("m", other, 2, activate=False, background=False)
        runtime.route("m", "m@1", shadow="m@2")
        every = [runtime.experiments.compare("m"), runtime.experiments.compare("m", segment="ssn")]
        runtime.predict("m", {"ssn": 4455667788.5, "amount": 3.0})
        until(lambda: all(each.counts().disagreements == 1 for each in every))
        assert "4455667788.5" in repr([each.disagreements for each in every])
        notes = {"private": ("ssn",)}
        runtime.register("m", flow, 3, activate=False, notes=notes, background=False)

        def reached(many: int) -> bool:
            return all(each.counts().disagreements == many for each in every)

        for asked in (1, 2):
            texts = repr([(each.disagreements, each.to_dict(), str(each)) for each in every])
            assert "445566778" not in texts
            assert "4455667788" not in repr([vars(each) for each in every])
            runtime.predict("m", {"ssn": 4455667788.5, "amount": 3.0})
            until(partial(reached, asked + 1))
