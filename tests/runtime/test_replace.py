"""A version gives way to another of the same name, under traffic."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from objectstore import FileStore
from runtime import Runtime
from runtime.errors import AlreadyTaken
from tests.runtime.plans import WIDTH, offset_of, shift

ROW = np.zeros(WIDTH)
ROWS = np.zeros((3, WIDTH))


def offset(runtime: Runtime, address: str = "a") -> float:
    return offset_of(runtime.predict(address, ROWS), ROWS)


def test_without_being_asked_nothing_is_replaced(runtime: Runtime) -> None:
    runtime.register("a", shift(1.0), "x")
    with pytest.raises(AlreadyTaken):
        runtime.register("a", shift(2.0), "x")
    assert offset(runtime) == 1.0


def test_a_version_takes_the_address_and_the_service_of_another(runtime: Runtime) -> None:
    runtime.register("a", shift(1.0), "x")
    runtime.register("a", shift(5.0), "y", activate=False)
    runtime.register("a", shift(2.0), "x", activate=False, replace=True)
    assert (offset(runtime), offset(runtime, "a@x"), offset(runtime, "a@y")) == (2.0, 2.0, 5.0)
    runtime.register("a", shift(6.0), "y", activate=False, replace=True)
    assert (offset(runtime), offset(runtime, "a@y")) == (2.0, 6.0)
    assert next(iter(runtime.endpoints)).versions == ("x", "y")


def test_what_is_not_there_is_registered_all_the_same(runtime: Runtime) -> None:
    runtime.register("a", shift(1.0), "x", replace=True)
    assert offset(runtime, "a@x") == 1.0


def test_a_replacement_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "bad.pretzel").write_bytes(b"nothing of ours")
    with Runtime() as runtime:
        runtime.register("a", shift(1.0), "x")
        with pytest.raises(Exception, match="container"):
            runtime.register("a", tmp_path / "bad.pretzel", "x", replace=True)
        assert offset(runtime, "a@x") == 1.0
        runtime.register("a", shift(2.0), "x", replace=True)  # the address was given back
        assert offset(runtime, "a@x") == 2.0


def test_parameters_of_the_former_are_let_go_of(tmp_path: Path) -> None:
    store = FileStore(tmp_path, grace_seconds=0.0)
    with Runtime(store) as runtime:
        runtime.register("a", shift(1.0), "x", reserve=1)
        for n in range(2, 5):
            runtime.register("a", shift(float(n)), "x", replace=True)
            assert offset(runtime) == n
        runtime.stats()
        plan_bytes = sum(item.nbytes for item in shift(4.0).program.parameters())
        assert store.own_bytes("a@x") == plan_bytes
        assert len(store.holdings()) == 1


@pytest.mark.parametrize("budget", [None, 1 << 14])
def test_no_request_falls_between_two_versions(budget: int | None) -> None:
    seen: set[float] = set()
    failures: list[BaseException] = []
    stop = threading.Event()
    with Runtime(memory_budget=budget) as runtime:
        runtime.register("a", shift(0.0), "x")

        def ask() -> None:
            try:
                while not stop.is_set():
                    for address in ("a", "a@x"):
                        seen.add(
                            offset_of(
                                {"moved": [runtime.predict(address, ROW)["moved"]]}, ROW[None]
                            )
                        )
            except BaseException as problem:  # noqa: BLE001 (whatever it is, the test fails)
                failures.append(problem)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for n in range(1, 30):
            runtime.register("a", shift(float(n)), "x", replace=True)
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []
        assert offset(runtime) == 29.0
        assert seen <= {float(n) for n in range(30)}
        assert runtime.stats().catalog.versions == 1
