"""Both stores keep one contract: put, get, hold, release, account."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectstore import (
    Blob,
    FileStore,
    MemoryStore,
    MissingBlob,
    Store,
    StoreClosed,
    Strings,
    accounting,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store = (
        MemoryStore()
        if request.param == "memory"
        else FileStore(tmp_path / "store", grace_seconds=0, durable=False)
    )
    with made:
        yield made


def _dictionary(name: str) -> Strings:
    return Strings.of(f"{name} {row}" for row in range(500))


def test_put_and_get(store: Store) -> None:
    for parameter in (Blob.of(np.arange(5000.0)), Blob.of(1), Blob.of([]), _dictionary("a")):
        assert parameter.digest not in store
        digest = store.put(parameter)
        assert digest == parameter.digest
        assert digest in store
        assert store.get(digest) == parameter
        assert store.nbytes(digest) == parameter.nbytes
    assert len(store.digests()) == 4


def test_a_known_parameter_is_only_looked_up(store: Store) -> None:
    blob = Blob.of([1.0, 2.0])
    assert store.put(blob) == store.put(Blob.of([1.0, 2.0]))
    assert (store.stats.puts, store.stats.hits) == (2, 1)
    assert store.digests() == [blob.digest]


def test_what_is_not_there(store: Store) -> None:
    digest = Blob.of(1).digest
    with pytest.raises(MissingBlob):
        store.get(digest)
    with pytest.raises(MissingBlob):
        store.hold("a", [Blob.of(2), digest])
    assert store.holdings() == {}
    assert store.nbytes(digest) == 0
    assert store.release("nobody") == 0
    assert "../../etc/passwd" not in store
    assert 7 not in store


def test_release_frees_what_nobody_holds(store: Store) -> None:
    shared, mine, yours = _dictionary("shared"), Blob.of(np.arange(10.0)), Blob.of([7])
    store.hold("me", [shared, mine])
    store.hold("you", [shared.digest, yours])
    assert store.release("me") == mine.nbytes
    assert mine.digest not in store
    assert shared.digest in store
    assert store.release("you") == shared.nbytes + yours.nbytes
    assert store.digests() == []
    assert store.holdings() == {}


def test_hold_adds_and_repeats(store: Store) -> None:
    one, two = Blob.of([1]), Blob.of([2])
    store.hold("me", [one])
    store.hold("me", [one, two])
    assert store.holdings() == {"me": {one.digest, two.digest}}
    assert store.release("me") == one.nbytes + two.nbytes
    assert store.release("me") == 0


def test_gc_frees_what_was_never_held(store: Store) -> None:
    held, loose = Blob.of([1]), Blob.of([2, 3])
    store.hold("me", [held])
    store.put(loose)
    assert store.gc() == loose.nbytes
    assert store.digests() == [held.digest]
    assert store.gc() == 0


def test_owner_names_are_free(store: Store) -> None:
    names = ["a/b", "a\\b", "../..", "", ".", "é\0", "x" * 300, "A", "a", "a b", "a_b", "\ud800"]
    for name in names:
        store.hold(name, [Blob.of([len(name)])])
    assert set(store.holdings()) == set(names)
    for name in names:
        store.release(name)
    assert store.digests() == []


def test_accounting(store: Store) -> None:
    shared, mine = _dictionary("shared"), Blob.of(np.arange(10.0))
    store.hold("me", [shared, mine])
    store.hold("you", [shared])
    store.hold("else", [Blob.of([7])])
    assert store.own_bytes("me") == mine.nbytes
    assert store.shared_bytes("me") == shared.nbytes
    assert store.sharers("me") == {"you": shared.nbytes}
    assert store.sharers("else") == {}
    assert (store.own_bytes("nobody"), store.shared_bytes("nobody")) == (0, 0)


def test_250_owners_of_two_dictionaries(store: Store) -> None:
    words, chars = _dictionary("word"), _dictionary("char")
    unique = words.nbytes + chars.nbytes
    for number in range(250):
        weights = Blob.of(np.arange(20.0) + number)
        unique += weights.nbytes
        store.hold(f"plan {number:03}", [_dictionary("word"), _dictionary("char"), weights])
    report = store.report()
    assert report.unique_bytes == unique
    assert sum(store.nbytes(digest) for digest in store.digests()) == unique
    assert report.held_bytes == 250 * (words.nbytes + chars.nbytes + 160)
    assert report.blobs == 252
    assert report.free_bytes == 0
    for one in report.owners:
        assert (one.own_bytes, one.shared_bytes) == (160, words.nbytes + chars.nbytes)
        assert one.sharers == 249
    assert len(store.sharers("plan 007")) == 249


def test_report_reads_as_a_table() -> None:
    with MemoryStore() as store:
        shared = Blob.of(np.zeros(1000))
        for name in ("ann", "bob", "cyd", "dee", "eve"):
            store.hold(name, [shared])
        store.hold("ann", [Blob.of([1.5])])
        store.put(Blob.of([2.5, 3.5]))
        assert str(store.report()).splitlines() == [
            "3 parameters, 8,024 bytes (40,008 without sharing, 16 without an owner)",
            "  owner  own  shared  with",
            "  ann      8   8,000  bob, cyd, dee and 1 more",
            "  bob      0   8,000  ann, cyd, dee and 1 more",
            "  cyd      0   8,000  ann, bob, dee and 1 more",
            "  dee      0   8,000  ann, bob, cyd and 1 more",
            "  eve      0   8,000  ann, bob, cyd and 1 more",
        ]


_HOLDINGS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.frozensets(st.sampled_from("uvwxyz")), max_size=8
)


@given(_HOLDINGS, st.frozensets(st.sampled_from("uvwxyz")))
def test_report_agrees_with_counting(
    holdings: dict[str, frozenset[str]], stored: frozenset[str]
) -> None:
    sizes = {digest: 2**place for place, digest in enumerate("uvwxyz")}
    report = accounting.report(holdings, stored, sizes.__getitem__)
    held = [digest for digests in holdings.values() for digest in digests]
    assert report.unique_bytes == sum(sizes[digest] for digest in {*stored, *held})
    assert report.held_bytes == sum(sizes[digest] for digest in held)
    assert report.free_bytes == sum(sizes[digest] for digest in stored - {*held})
    for one in report.owners:
        mine = holdings[one.owner]
        common = accounting.shared_by(holdings, one.owner)
        assert one.own_bytes == sum(sizes[d] for d in mine if held.count(d) == 1)
        assert one.shared_bytes == sum(sizes[d] for d in mine if held.count(d) > 1)
        assert one.sharers == len(common)
        assert one.some_sharers == tuple(sorted(common)[: accounting.SHOWN_SHARERS])


_OWNERS = st.sampled_from("abc")
_NUMBERS = st.integers(0, 5)
_STEPS = st.lists(
    st.tuples(st.just("hold"), _OWNERS, _NUMBERS)
    | st.tuples(st.just("put"), _OWNERS, _NUMBERS)
    | st.tuples(st.sampled_from(["release", "gc"]), _OWNERS, st.just(0)),
    max_size=20,
)


@settings(max_examples=40)
@given(_STEPS)
def test_stores_agree_with_a_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]]
) -> None:
    directory = tmp_path_factory.mktemp("store")
    for store in (MemoryStore(), FileStore(directory, grace_seconds=0, durable=False)):
        stored: set[str] = set()
        model: dict[str, set[str]] = {}
        for step, owner, number in steps:
            blob = Blob.of([number])
            if step == "hold":
                store.hold(owner, [blob])
                stored.add(blob.digest)
                model.setdefault(owner, set()).add(blob.digest)
            elif step == "put":
                stored.add(store.put(blob))
            else:
                freed = stored if step == "gc" else model.pop(owner, set())
                stored -= freed - set().union(*model.values())
                store.release(owner) if step == "release" else store.gc()
            assert set(store.digests()) == stored
            assert store.holdings() == model
            assert store.report().unique_bytes == 8 * len(stored)
        assert store.fsck().clean


def test_closed(store: Store) -> None:
    blob = Blob.of([1])
    store.hold("me", [blob])
    store.close()
    for call in (
        lambda: store.put(blob),
        lambda: store.get(blob.digest),
        lambda: store.hold("me", [blob]),
        lambda: store.release("me"),
        store.report,
        store.gc,
        store.fsck,
    ):
        with pytest.raises(StoreClosed):
            call()
    store.close()


def test_threads(store: Store) -> None:
    def work(seed: int) -> None:
        for number in range(20):
            store.hold(f"owner {seed}", [Blob.of([number % 5]), Blob.of([seed, number])])
        store.release(f"owner {seed}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    store.gc()
    assert store.digests() == []
    assert store.stats.puts == 4 * 20 * 2
    assert store.fsck().clean


def test_memory_fsck_finds_overwritten_memory() -> None:
    with MemoryStore() as store:
        array = np.arange(7.0)
        view = array.view()
        view.flags.writeable = False
        digest = store.put(Blob(view, Blob.of(array).digest))
        assert store.fsck().clean
        array[0] = 9
        report = store.fsck()
        assert not report.clean
        assert digest in str(report)
