"""Parity and blocks over HTTP while models are switched, replaced, split, and upgraded by turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import flour
import oven
from flour import Flow
from runtime import Runtime
from runtime.cluster.parity import Coded, Endpoint, ParityCode, Replicas
from runtime.cluster.serving import ClusterClient
from runtime.cluster.serving.bodies import MemberState, Roster
from runtime.errors import ClusterError, RefusedRows
from runtime.http import Server, ServerSettings
from tests.runtime.cluster.clusters import only

PROGRAMS = {
    1: (np.array([[2.0, -1.0], [1.0, 3.0]]), np.array([3.0, -2.0])),
    2: (np.array([[10.0, 4.0], [-7.0, 0.5]]), np.array([40.0, 8.0])),
}
ROWS = np.random.default_rng(0).normal(size=(6, 1, 2))
# A busy machine is no reason to refuse what tests ask.
SETTINGS = ServerSettings(port=0, max_unread=0.0)


def scores(version: int) -> Flow:
    weights, offset = PROGRAMS[version]
    return flour.vector("x", 2).linear(weights, offset).named("output")


def told(version: int, rows: NDArray[Any]) -> NDArray[Any]:
    weights, offset = PROGRAMS[version]
    return np.asarray(rows @ weights.T + offset)


@contextmanager
def servers(*runtimes: Runtime) -> Iterator[ClusterClient]:
    """A client of a server for each of these runtimes."""
    with ExitStack() as stack:
        all_of_them = [stack.enter_context(Server(each, SETTINGS)) for each in runtimes]
        states = [MemberState(n, each.url, "ready") for n, each in enumerate(all_of_them)]
        yield stack.enter_context(ClusterClient(look=lambda: Roster(1, states)))


async def lost(_rows: Any) -> Any:
    raise ConnectionError("the replica has gone")


def pair(front: Coded, first: int = 0) -> list[Any]:
    async def both() -> list[Any]:
        return await asyncio.gather(
            *(front(rows) for rows in ROWS[first : first + 2]), return_exceptions=True
        )

    return asyncio.run(both())


def front_of(one: Endpoint, parity: Endpoint, **more: Any) -> Coded:
    return Coded(
        [one, lost], [[parity]], ParityCode(2), constant=PROGRAMS[1][1], timeout=20.0, **more
    )


def check(answers: list[Any], version: int, first: int = 0) -> None:
    assert [each.reconstructed for each in answers] == [False, True]
    for number, answer in enumerate(answers, first):
        np.testing.assert_allclose(answer.values, told(version, ROWS[number]), rtol=1e-12)
        assert answer.version == oven.bake(scores(version)).digest


def test_a_switch_changes_the_constant_too() -> None:
    with Runtime(executors=1) as runtime, servers(runtime, runtime) as client:
        runtime.register("scores", scores(1), background=False)
        runtime.register("scores", scores(2), background=False, activate=False)
        with Replicas(client, "scores", "output") as replicas:
            front = front_of(*replicas.endpoints())
            check(pair(front), 1)
            runtime.switch("scores", 2)
            check(pair(front, 2), 2, 2)
            runtime.switch("scores", 1)
            check(pair(front, 4), 1, 4)


def test_a_version_that_is_replaced_under_its_number_is_another_one() -> None:
    with Runtime(executors=1) as one, Runtime(executors=1) as two, servers(one, two) as client:
        for each in (one, two):
            each.register("scores", scores(1), background=False)
        with Replicas(client, "scores", "output") as replicas:
            front = front_of(*replicas.endpoints())
            check(pair(front), 1)
            one.register("scores", scores(2), version="1", background=False, replace=True)
            first, second = pair(front)
            np.testing.assert_allclose(first.values, told(2, ROWS[0]))
            assert isinstance(second, ConnectionError)
            assert front.counts["mixed"] == 1
            two.register("scores", scores(2), version="1", background=False, replace=True)
            check(pair(front), 2)


def test_the_same_plan_under_two_numbers_is_one_version() -> None:
    with Runtime(executors=1) as one, Runtime(executors=1) as two, servers(one, two) as client:
        one.register("scores", scores(1), version="7", background=False)
        two.register("scores", scores(1), version="8", background=False)
        with Replicas(client, "scores", "output") as replicas:
            check(pair(front_of(*replicas.endpoints())), 1)


@pytest.mark.parametrize("tenants", ["aa", "ab", "ba", "bb"])
def test_a_route_that_answers_by_turns(tenants: str) -> None:
    """The replica and the parity replica answer by the version of the tenant that asks them."""
    with ExitStack() as stack:
        runtime = stack.enter_context(Runtime(executors=1))
        client = stack.enter_context(servers(runtime))
        (url,) = client.replicas()
        for version in (1, 2):
            runtime.register("scores", scores(version), background=False, activate=version == 1)
        runtime.route("scores", "scores@1", tenants={"b": "scores@2"})
        ends = []
        for tenant in tenants:
            one = MemberState(0, url, "ready")
            headers = {ServerSettings().tenant_header: tenant}
            asks = stack.enter_context(ClusterClient(look=partial(only, one), headers=headers))
            replicas = stack.enter_context(Replicas(asks, "scores", "output"))
            ends += replicas.endpoints()
        first, second = pair(front_of(*ends))
        version = 1 if tenants[0] == "a" else 2
        if len({*tenants}) == 1:
            check([first, second], version)
        else:
            np.testing.assert_allclose(first.values, told(version, ROWS[0]), rtol=1e-12)
            assert isinstance(second, ConnectionError)
        runtime.promote("scores", "scores@2")
        # Tenants keep their own: the champion's now have the version of the others.
        check(pair(front_of(*ends)), 2)


def test_a_shadow_is_no_version_of_an_answer() -> None:
    with Runtime(executors=1) as runtime, servers(runtime, runtime) as client:
        for version in (1, 2):
            runtime.register("scores", scores(version), background=False, activate=version == 1)
        runtime.route("scores", "scores@1", shadow="scores@2")
        with Replicas(client, "scores", "output") as replicas:
            check(pair(front_of(*replicas.endpoints())), 1)


def test_a_route_by_row_is_answered_and_never_decoded() -> None:
    with Runtime(executors=1) as runtime, servers(runtime, runtime) as client:
        row = flour.record(a=float, b=float)
        for version, factor in ((1, 2.0), (2, 5.0)):
            flow = flour.outputs(output=row["a"] * factor + row["b"])
            runtime.register("m", flow, background=False, activate=version == 1)
        runtime.route("m", "m@1", rules={"a > 0": "m@2"})
        columns = {"a": np.array([-1.0, 1.0]), "b": np.array([0.0, 0.0])}
        with pytest.raises(ClusterError, match="several versions") as refused:
            client.predict_block("m", columns)
        assert "NAME@VERSION" in str(refused.value.hint)
        assert client.predict_block("m@2", columns)["output"].tolist() == [-5.0, 5.0]
        one_version = {"a": np.array([3.0, 1.0]), "b": np.array([0.0, 0.0])}
        assert client.predict_block("m", one_version)["output"].tolist() == [15.0, 5.0]


def test_what_a_replica_refuses_is_told_at_once() -> None:
    with Runtime(executors=1) as runtime, servers(runtime, runtime) as client:
        runtime.register("scores", scores(1), background=False)
        with Replicas(client, "scores", "output") as replicas:
            one, parity = replicas.endpoints()
            front = Coded([one], [[parity]], ParityCode(2), constant=0.0, timeout=20.0)

            async def three() -> list[Any]:
                queries = [ROWS[0], np.ones((1, 5)), ROWS[1]]
                return await asyncio.gather(*map(front, queries), return_exceptions=True)

            first, wrong, second = asyncio.run(three())
        assert isinstance(wrong, RefusedRows)
        assert "400" in str(wrong)
        np.testing.assert_allclose([first.values, second.values], told(1, ROWS[:2]))


def test_a_parity_model_says_what_it_was_trained_for(tmp_path: Path) -> None:
    deployed = {version: oven.bake(scores(version)) for version in (1, 2)}
    both = flour.vector("x", 4)
    parity = {}
    for version, (weights, offset) in PROGRAMS.items():
        sums = both.linear(np.concatenate([weights, weights], axis=1), 2 * offset).named("output")
        parity[version] = tmp_path / f"{version}.pretzel"
        oven.bake(sums).save(parity[version], training={"parity_of": deployed[version].digest})
    with Runtime(executors=1) as runtime, servers(runtime) as client:
        runtime.register("scores", deployed[1], background=False)
        runtime.register("parity", parity[1], background=False)
        with (
            Replicas(client, "scores", "output") as replicas,
            Replicas(client, "parity", "output") as parities,
        ):
            code = ParityCode(2, encoder="concatenation")
            front = Coded([*replicas.endpoints(), lost], [parities.endpoints()], code, timeout=20)
            check(pair(front), 1)
            runtime.register("scores", deployed[2], background=False)
            runtime.switch("scores", 2)
            first, second = pair(front)
            np.testing.assert_allclose(first.values, told(2, ROWS[0]))
            assert isinstance(second, ConnectionError)
            runtime.register("parity", parity[2], background=False)
            runtime.switch("parity", 2)
            check(pair(front), 2)


def test_a_parity_model_may_say_so_in_its_notes() -> None:
    weights, offset = PROGRAMS[1]
    sums = flour.vector("x", 2).linear(weights, 2 * offset).named("output")
    with Runtime(executors=1) as runtime, servers(runtime) as client:
        deployed = oven.bake(scores(1))
        runtime.register("scores", deployed, background=False)
        for name, notes in (("parity", {"parity_of": deployed.digest}), ("odd", {"parity_of": 5})):
            runtime.register(name, sums, background=False, notes={"training": notes})
        found = []
        for name in ("parity", "odd"):
            with (
                Replicas(client, "scores", "output") as replicas,
                Replicas(client, name, "output") as parities,
            ):
                front = Coded([*replicas.endpoints(), lost], [parities.endpoints()], ParityCode(2))
                found.append(pair(front))
        check(found[0], 1)
        assert isinstance(found[1][1], ConnectionError)


# --- blocks while replicas have different versions -----------------------------------------------


class Upgraded(ClusterClient):
    """A client in the middle of whose block a replica is upgraded."""

    def __init__(self, *args: Any, upgrade: Any, after: int, **more: Any) -> None:
        super().__init__(*args, **more)
        self.left, self.upgrade, self.asked = after, upgrade, 0

    def request(self, *args: Any, **more: Any) -> Any:
        found = super().request(*args, **more)
        self.asked += 1
        if self.asked == self.left:
            self.upgrade()
        return found


@pytest.mark.parametrize("how", ["replaced", "switched"])
@pytest.mark.parametrize("after", [1, 2, 3, 99])
def test_a_block_is_of_one_version_while_replicas_are_upgraded(after: int, how: str) -> None:
    rows = np.random.default_rng(0).normal(size=(3000, 2))
    with Runtime(executors=1) as one, Runtime(executors=1) as two:

        def upgrade() -> None:
            for each in (one, two):
                if how == "replaced":
                    each.register("m", scores(2), version="1", background=False, replace=True)
                else:
                    each.switch("m", 2)

        for each in (one, two):
            each.register("m", scores(1), background=False)
            if how == "switched":
                each.register("m", scores(2), background=False, activate=False)
        with Server(one, SETTINGS) as a, Server(two, SETTINGS) as b:
            states = [MemberState(n, each.url, "ready") for n, each in enumerate((a, b))]
            members = Roster(1, states)
            with Upgraded(look=lambda: members, upgrade=upgrade, after=after) as client:
                found = client.predict_block("m", rows)["output"]
        version = 2 if np.allclose(found[0], told(2, rows[0])) else 1
        np.testing.assert_allclose(found, told(version, rows), rtol=1e-12)


@pytest.mark.parametrize("how", ["replaced", "switched"])
def test_a_block_says_where_replicas_stay_of_two_versions(how: str) -> None:
    rows = np.random.default_rng(0).normal(size=(4000, 2))
    with Runtime(executors=1) as one, Runtime(executors=1) as two, servers(one, two) as client:
        one.register("m", scores(1), version="1", background=False)
        two.register("m", scores(2), version="1" if how == "replaced" else "2", background=False)
        problem = None
        try:
            found = client.predict_block("m", rows)["output"]
        except ClusterError as refused:
            problem = refused
    if problem is not None:
        assert "several versions" in str(problem)
    else:  # by chance one replica had all shards in the end
        version = 2 if np.allclose(found[0], told(2, rows[0])) else 1
        np.testing.assert_allclose(found, told(version, rows), rtol=1e-12)
