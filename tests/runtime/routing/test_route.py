"""Routes: sticky keys, shares, and what is refused."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from runtime.errors import BadCall, BadRegistration
from runtime.routing import Route
from runtime.routing.route import PLACES, place

KEYS = 1_000_000


@pytest.fixture(scope="module")
def places() -> list[int]:
    """The places of a million users."""
    found = [place(key, "fraud") for key in range(KEYS)]
    return [each for each in found if each is not None]


@pytest.mark.parametrize("share", [5, 20, 50])
def test_a_million_keys_fall_within_015_points(share: float, places: list[int]) -> None:
    route = Route("m@1", {"m@2": share}, by="id")
    taken = sum(route.at(each) == "m@2" for each in places)
    assert len(places) == KEYS
    assert abs(100 * taken / KEYS - share) < 0.15


def test_growing_moves_keys_one_way_only(places: list[int]) -> None:
    steps = [Route("m@1", {"m@2": share}, by="id") for share in (5, 20, 50, 100)]
    for each in places[:20_000]:
        answers = [route.at(each) for route in steps]
        assert answers == sorted(answers)
        assert answers[-1] == "m@2"


def test_growing_one_of_two_leaves_the_keys_of_the_other(places: list[int]) -> None:
    for grown in ({"m@2": 30, "m@3": 10}, {"m@2": 10, "m@3": 30}):
        small, large = (Route("m@1", split, by="id") for split in ({"m@2": 10, "m@3": 10}, grown))
        for each in places[:20_000]:
            assert small.at(each) in ("m@1", large.at(each))


# Computed apart, as blake2b(b"5:fraud17", digest_size=8), little endian.
@pytest.mark.parametrize(
    ("key", "expected"),
    [("17", 18151329138477191449), ("grüße", 11796472936039840810), ("", 17989832908831519740)],
)
def test_places_are_fixed(key: str, expected: int) -> None:
    assert place(key, "fraud") == expected


@pytest.mark.parametrize("key", [17, 17.0, np.int64(17), np.float32(17), np.array(17)])
def test_a_number_has_the_place_of_its_text(key: object) -> None:
    assert place(key, "s") == place("17", "s")


def test_salts_do_not_run_into_keys() -> None:
    assert place("bc", "a") != place("c", "ab")
    assert place("c", "a") != place("c", "b")


@pytest.mark.parametrize("key", [None, math.nan, np.float64("nan")])
def test_a_missing_key_is_the_champions(key: object) -> None:
    route = Route("m@1", {"m@2": 100}, by="id")
    assert route.choose({"id": key}) == route.choose({}) == "m@1"


def test_a_lone_surrogate_is_a_key() -> None:
    found = place("\ud800", "s")
    assert found is not None
    assert 0 <= found < PLACES


def test_a_header_and_a_tenant_choose() -> None:
    route = Route("m@1", {"m@2": 100}, header="X-User", tenants={"acme": "m@3"})
    assert route.choose({}, {"x-user": "7"}) == "m@2"
    assert route.choose({}, {}) == "m@1"
    assert route.choose({}, {"x-user": "7"}, "acme") == "m@3"
    assert route.addresses == ("m@1", "m@2", "m@3")


def test_a_block_has_no_single_key() -> None:
    with pytest.raises(BadCall, match="one text or number"):
        Route("m@1", {"m@2": 5}, by="id").choose({"id": [1, 2]})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"split": {"m@2": 101}, "by": "id"}, "percentage"),
        ({"split": {"m@2": math.nan}, "by": "id"}, "percentage"),
        ({"split": {"m@2": 60, "m@3": 60}, "by": "id"}, "more than 100"),
        ({"split": {"m@1": 5}, "by": "id"}, "own split"),
        ({"split": {"m@2": 5}}, "needs the key"),
        ({"split": {"m@2": 5}, "by": "id", "header": "x"}, "needs the key"),
    ],
)
def test_refused(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRegistration, match=message):
        Route("m@1", **parts)


def test_a_route_is_a_value() -> None:
    split = {"m@2": 5.0}
    route, same = (Route("m@1", split, by="id") for _ in range(2))
    split["m@2"] = 50.0
    assert route == same
    assert hash(route) == hash(same)
    assert route.split == {"m@2": 5.0}
    with pytest.raises(FrozenInstanceError):
        route.champion = "m@2"  # type: ignore[misc]  # that is the point
