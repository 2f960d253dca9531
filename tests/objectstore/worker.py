"""What the tests run in other processes: `python worker.py <role> <directory> <number>`.

A test that kills processes needs many of them quickly, so one "nursery" loads everything once
and forks a writer for every line it reads.
"""

from __future__ import annotations

import os
import random
import sys
import time
from itertools import count
from pathlib import Path

import numpy as np

from objectstore import Blob, FileStore, MissingBlob, Parameter, Strings

NUMBERS = 24
"""How many distinct parameters the writers draw from."""
ENOUGH_BYTES, MOST_SECONDS = 100_000, 60.0
"""What a collector wants to have freed before it ends, and when it ends in any case."""


def parameter(number: int) -> Parameter:
    """The parameter of a number: some tables, some small arrays, some of a megabyte or two."""
    if number % 4 == 0:
        return Strings.of(f"text {number} {row}" for row in range(100 * number))
    size = 200_000 if number % 4 == 1 else 10 * number
    return Blob.of(np.arange(size, dtype=np.float64) + number)


def content(parameter: Parameter) -> bytes:
    """All bytes of a parameter."""
    blobs = parameter.blobs() if isinstance(parameter, Strings) else (parameter,)
    return b"|".join(blob.array.tobytes() for blob in blobs)


def write_forever(directory: str, seed: int) -> None:
    """Put, hold, release and collect at random until killed."""
    chance = random.Random(seed)
    store = FileStore(directory, grace_seconds=0.02)
    for _ in count():
        owner = f"owner {chance.randrange(6)}"
        try:
            store.hold(owner, [parameter(chance.randrange(NUMBERS)) for _ in range(2)])
        except MissingBlob:
            continue  # put, then stalled for longer than this short grace period
        if chance.random() < 0.3:
            store.release(owner)
        if chance.random() < 0.2:
            store.gc()


def nursery(directory: str, _: int) -> None:
    """Fork a writer for each seed read; tell its process number, and when it is gone."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                write_forever(directory, int(line))
            finally:
                os._exit(1)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()


def put_all(directory: str, seed: int) -> None:
    """Put every parameter, in an order of one's own, and hold them all."""
    numbers = list(range(NUMBERS))
    random.Random(seed).shuffle(numbers)
    with FileStore(directory) as store:
        store.hold(f"writer {seed}", [parameter(number) for number in numbers])


def _enough(directory: str) -> Path:
    """There when the collector has seen enough; processes need not start at the same time."""
    return Path(f"{directory}.enough")


def hold_and_forget(directory: str, seed: int) -> None:
    """Put, hold, read, release: the collector must never come in between.

    Files are made to look old after their release, so that the collector may take them at once.
    Each holder has parameters of its own: it must not age what another has just put.
    """
    chance = random.Random(seed)
    store = FileStore(directory, grace_seconds=60, durable=False)
    deadline = time.monotonic() + MOST_SECONDS
    while not _enough(directory).exists() and time.monotonic() < deadline:
        digest = store.put(parameter(4 * seed + chance.randrange(4)))
        store.hold(f"holder {seed}", [digest])
        FileStore(directory).get(digest)
        store.release(f"holder {seed}")
        try:
            os.utime(store._path(digest), (0, 0))
        except FileNotFoundError:
            continue


def collect(directory: str, _: int) -> None:
    """Collect all the time, until something was freed; tell how many bytes."""
    store = FileStore(directory, grace_seconds=60, durable=False)
    begun, freed, spent = time.monotonic(), 0, 0.0
    while spent < 1.5 or (freed <= ENOUGH_BYTES and spent < MOST_SECONDS):
        freed += store.gc()
        spent = time.monotonic() - begun
    _enough(directory).touch()
    sys.stdout.write(f"{freed}\n")


if __name__ == "__main__":
    role, place, number = sys.argv[1:]
    roles = (nursery, put_all, hold_and_forget, collect)
    next(one for one in roles if one.__name__ == role)(place, int(number))
