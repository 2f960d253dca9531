"""Models by what they share: everyone has a node, no node has too much, and little moves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.cluster.hashing import Assignment, assign, groups
from runtime.errors import ClusterError
from tests.house import run_python

NODES = [f"node{number}" for number in range(5)]


def models(count: int, dictionaries: int = 7) -> dict[str, dict[str, int]]:
    return {
        f"m{n}": {f"dictionary{n % dictionaries}": 10_000, f"weights{n}": 100 + n}
        for n in range(count)
    }


@settings(max_examples=60, deadline=None)
@given(
    loads=st.lists(st.floats(0, 1e6), min_size=1, max_size=40),
    nodes=st.integers(1, 5),
    bound=st.floats(1.01, 3),
    digests=st.integers(1, 9),
    by_digest=st.booleans(),
)
def test_every_request_has_a_node_and_no_node_too_many(
    *, loads: list[float], nodes: int, bound: float, digests: int, by_digest: bool
) -> None:
    resident = models(len(loads), digests)
    asked = dict(zip(resident, loads, strict=True))
    made = assign(resident, NODES[:nodes], loads=asked, bound=bound, by_digest=by_digest)
    assert set(made.shares) == set(resident)
    for name, shares in made.shares.items():
        assert shares
        assert sum(shares.values()) == pytest.approx(1.0 if asked[name] else len(shares))
        assert set(made.nodes_of(name)) <= set(NODES[:nodes])
    most = bound * sum(loads) / nodes
    assert max(made.loads.values()) <= most * (1 + 1e-6)
    assert sum(made.loads.values()) == pytest.approx(sum(loads))


def test_models_that_share_meet() -> None:
    resident = models(70)
    assert {len(names) for names in groups(resident).values()} == {10}
    made = assign(resident, NODES)
    apart = assign(resident, NODES, by_digest=False)
    ours, theirs = (sum(each.bytes_of(resident).values()) for each in (made, apart))
    assert ours < theirs / 2
    least = 7 * 10_000 + sum(100 + n for n in range(70))
    assert least <= ours <= least + 5 * 10_000  # a node's bound cuts a group in two


def test_what_comes_and_goes_moves_little() -> None:
    resident = models(300, 40)
    made = assign(resident, NODES)
    assert assign(resident, NODES, before=made).moved(made) == 0
    gone = assign(resident, NODES[1:], before=made)
    assert 0 < gone.moved(made) <= 1.5 * len(made.models()["node0"])
    came = assign(resident, [*NODES, "another"], before=made)
    assert 0 < came.moved(made) <= 2 * len(resident) / 6
    assert max(came.loads.values()) <= 1.25 * 300 / 6 * (1 + 1e-6)


def test_every_process_computes_the_same() -> None:
    script = (
        "from tests.runtime.cluster.test_hashing import models, NODES\n"
        "from runtime.cluster.hashing import assign\n"
        "print(sorted((n, sorted(s.items())) for n, s in assign(models(50), NODES).shares.items()))"
    )
    told = {run_python(script, environment={"PYTHONHASHSEED": seed}) for seed in "12"}
    assert len(told) == 1
    (said,) = told
    made = assign(dict(reversed(models(50).items())), reversed(NODES))
    assert said.strip() == str(sorted((n, sorted(s.items())) for n, s in made.shares.items()))


def test_hot_models_have_several_nodes() -> None:
    resident = models(20)
    loads = dict.fromkeys(resident, 1.0) | {"m3": 60.0}
    made = assign(resident, NODES, loads=loads)
    assert len(made.nodes_of("m3")) >= 3
    assert max(made.loads.values()) <= 1.25 * 79 / 5 * (1 + 1e-6)


def test_a_budget_is_kept_while_there_is_room() -> None:
    resident = models(20, 4)
    made = assign(resident, NODES, budget=25_000.0)
    assert max(made.bytes_of(resident).values()) <= 25_000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nodes": []}, "need a node"),
        ({"bound": 1.0}, "bound"),
        ({"hot": 0.0}, "hot"),
        ({"loads": {"m1": -1.0}}, "number of requests"),
        ({"loads": {"m1": float("nan")}}, "number of requests"),
        ({"loads": {"m1": "many"}}, "number of requests"),
        ({"loads": [1.0]}, "number of requests"),
        ({"nodes": None}, "need a node"),
        ({"nodes": "node"}, "need a node"),
        ({"nodes": [1, 2]}, "need a node"),
        ({"bound": "x"}, "bound"),
        ({"hot": None}, "hot"),
        ({"budget": "x"}, "bytes of a node"),
        ({"before": {}}, "what assign has answered"),
        ({"resident": {"m1": 5}}, "plan.program.resident"),
        ({"resident": {"m1": {"d": "x"}}}, "plan.program.resident"),
        ({"resident": ["m1"]}, "plan.program.resident"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, object], said: str) -> None:
    wrong = {"resident": models(5), "nodes": NODES, **given}
    with pytest.raises(ClusterError, match=said) as refused:
        assign(**wrong)  # type: ignore[arg-type] # what is refused
    assert (refused.value.where, f"{min(given)}=" in str(refused.value.found)) == ("assign", True)
    assert isinstance(assign({}, NODES), Assignment)
