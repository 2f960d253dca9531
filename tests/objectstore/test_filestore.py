"""The store on disk: shared pages, damage, repair, time."""

from __future__ import annotations

import gc
import os
import shutil
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from objectstore import Blob, DamagedBlob, FileStore, MissingBlob, Strings
from objectstore.mapping import SMALL
from tests.house import at_most

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store", grace_seconds=0, durable=False)


def _big() -> Blob:
    return Blob.of(np.arange(2.0 * SMALL))


def test_reads_what_another_process_has_put(store: FileStore) -> None:
    texts = [f"text {row}" for row in range(1000)]
    digests = [store.put(_big()), store.put(Strings.of(texts))]
    gc.collect()
    other = FileStore(store.directory)
    blob, strings = (other.get(digest) for digest in digests)
    assert isinstance(blob, Blob)
    assert isinstance(strings, Strings)
    assert blob.array.tobytes() == np.arange(2.0 * SMALL).tobytes()
    assert strings.to_list() == texts
    assert other.stats.maps == 2
    assert other.get(digests[0]) is blob
    assert other.stats.maps == 2


def test_share_moves_to_the_mapped_pages(store: FileStore) -> None:
    mine = _big()
    mapped = store.share(mine)
    assert isinstance(mapped, Blob)
    assert mapped == mine
    assert not np.shares_memory(mapped.array, mine.array)
    assert _big() is mapped
    with pytest.raises(ValueError, match="WRITEABLE"):
        mapped.array.flags.writeable = True


def test_parameters_outlive_their_file(store: FileStore) -> None:
    mapped = store.share(_big())
    assert isinstance(mapped, Blob)
    assert store.gc() == mapped.nbytes
    store.close()
    assert float(mapped.array.sum()) == sum(range(2 * SMALL))


def test_grace_period(store: FileStore) -> None:
    careful = FileStore(store.directory, grace_seconds=60)
    digest = careful.put(_big())
    assert careful.gc() == 0
    careful.hold("me", [digest])
    assert careful.release("me") == 0  # put a moment ago: somebody may be about to hold it
    _age(careful, digest)
    careful.put(_big())  # begins the period again
    assert careful.gc() == 0
    _age(careful, digest)
    assert careful.gc() == _big().nbytes
    with pytest.raises(MissingBlob):
        careful.hold("me", [digest])


def _held_by_many(store: FileStore, owners: int = 200) -> list[Blob]:
    """A parameter of its own for each of so many owners, all known to the store."""
    own = [Blob.of([float(number)]) for number in range(owners)]
    for number, blob in enumerate(own):
        store.hold(f"owner {number}", [blob])
    assert len(store.holdings()) == owners
    return own


def test_among_many_owners_release_frees_for_several_calls_at_once(store: FileStore) -> None:
    own = _held_by_many(store)
    freed = [store.release(f"owner {number}") for number in range(20)]
    assert freed[0] == 0  # what an owner held is counted once, whenever it is freed
    assert max(freed) > own[0].nbytes
    assert sum(freed) + sum(each.nbytes for each in own[:20] if each.digest in store) == 160
    store.hold("another", [own[20]])
    store.release("owner 20")
    store.close()
    other = FileStore(store.directory)
    assert set(other.digests()) == {each.digest for each in own[20:]}
    assert other.fsck().clean


def test_what_a_killed_process_released_is_freed_by_gc(store: FileStore) -> None:
    own = _held_by_many(store)
    store.release("owner 0")
    assert own[0].digest in store  # and the process is killed: nothing is closed
    other = FileStore(store.directory, grace_seconds=0)
    assert other.gc() == own[0].nbytes
    assert set(other.digests()) == {each.digest for each in own[1:]}


def test_nothing_is_released_where_the_folder_has_gone(store: FileStore) -> None:
    _held_by_many(store)
    shutil.rmtree(store.directory)
    assert store.release("owner 0") == 0
    store.close()
    assert not store.directory.exists()


def test_what_was_too_young_to_be_freed_is_freed_by_a_later_release(store: FileStore) -> None:
    careful = FileStore(store.directory, grace_seconds=60)
    careful.hold("me", [_big()])
    assert careful.release("me") == 0
    _age(careful, _big().digest)
    assert careful.release("nobody") == _big().nbytes


def _age(store: FileStore, digest: str) -> None:
    old = time.time() - 3600
    os.utime(store._path(digest), (old, old))


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)


@pytest.mark.parametrize("damage", [_flip, _cut, _empty, _garbage])
def test_damage_is_found_moved_away_and_healed(
    store: FileStore, damage: Callable[[Path], None]
) -> None:
    digest = store.put(_big())
    healthy = store.put(Strings.of(["a", "b"]))
    store.hold("me", [digest, healthy])
    damage(store._path(digest))
    gc.collect()
    with pytest.raises(DamagedBlob, match="fsck"):
        store.get(digest)
    assert store.get(healthy) == Strings.of(["a", "b"])
    assert [digest in problem for problem in store.fsck().problems] == [True]
    assert store.fsck(repair=True).repaired == 1
    report = store.fsck()
    assert report.problems == (f"owners/{store._owners.path('me').name}: {_lacks(digest)}",)
    with pytest.raises(MissingBlob):
        store.get(digest)
    store.put(_big())
    assert store.fsck().clean
    assert store.get(digest) == _big()


def _lacks(digest: str) -> str:
    return f"holds {digest}, which is not stored"


@pytest.mark.parametrize("damage", [_cut, _empty, _garbage])
def test_put_replaces_a_file_of_the_wrong_length(
    store: FileStore, damage: Callable[[Path], None]
) -> None:
    digest = store.put(_big())
    damage(store._path(digest))
    store.put(_big())
    assert store.stats.hits == 0
    assert store.fsck().clean
    assert store.get(digest) == _big()


def test_a_file_under_another_name(store: FileStore) -> None:
    one, two = store.put(_big()), store.put(Blob.of([2]))
    store._path(one).replace(store._path(two))
    gc.collect()
    with pytest.raises(DamagedBlob, match="another parameter"):
        store.get(two)
    assert "holds another parameter" in store.fsck().problems[0]


def test_without_verification_structure_is_still_checked(store: FileStore) -> None:
    digest = store.put(_big())
    _flip(store._path(digest))
    gc.collect()
    trusting = FileStore(store.directory, verify=False)
    trusting.get(digest)
    _cut(store._path(digest))
    with pytest.raises(DamagedBlob, match="length"):
        FileStore(store.directory, verify=False).get(digest)


def test_nothing_is_freed_while_an_owner_cannot_be_read(store: FileStore) -> None:
    digest = store.put(_big())
    store.hold("me", [digest])
    store._owners.path("me").write_text("{")
    for call in (store.gc, store.report, lambda: store.release("you")):
        with pytest.raises(DamagedBlob, match="owner file"):
            call()
    assert digest in store
    assert "owner file" in store.fsck().problems[0]
    store.fsck(repair=True)
    assert store.fsck().clean
    assert store.gc() == _big().nbytes


def test_stray_files_are_reported_and_left_alone_by_gc(store: FileStore) -> None:
    digest = store.put(_big())
    stray = store._path(digest).with_name("notes.txt")
    stray.write_text("mine")
    store.gc()
    assert stray.exists()
    assert store.fsck().problems == (f"blobs/{digest[:2]}/notes.txt: a stray file",)
    store.fsck(repair=True)
    assert (store.directory / "quarantine" / "notes.txt").read_text() == "mine"


def test_leftovers_are_ignored_and_swept(store: FileStore) -> None:
    digest = store.put(_big())
    store.hold("me", [digest])
    leftover = store._path(digest).with_name(".pretzel-0123.tmp")
    leftover.write_bytes(b"half a fi")
    report = store.fsck()
    assert report.clean
    assert report.leftovers == 1
    assert store.digests() == [digest]
    store.gc()
    assert not leftover.exists()
    assert digest in store


def test_another_process_sees_owners_at_once(store: FileStore) -> None:
    other = FileStore(store.directory, grace_seconds=0)
    one, two = Blob.of([1]), Blob.of([2])
    store.hold("me", [one])
    assert other.holdings() == {"me": {one.digest}}
    store.hold("me", [two])
    assert other.holdings() == {"me": {one.digest, two.digest}}
    assert other.gc() == 0
    other.release("me")
    assert store.holdings() == {}


def test_a_full_disk_loses_no_parameter(tmp_path: Path) -> None:
    """What there is no room for is not there at all, and can be put when there is room."""
    small, large = (Blob.of(np.arange(float(each))) for each in (10, 100_000))
    with FileStore(tmp_path, durable=False) as store:
        store.hold("m", [store.put(small)])
        with at_most(10_000), pytest.raises(OSError, match=r"(?i)large|space"):
            store.put(large)
        assert store.fsck().leftovers == 0
        assert small.digest in store
        assert large.digest not in store
        assert store.get(store.put(large)) == large
