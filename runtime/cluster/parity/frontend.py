"""Front ends of replicated endpoints that answer although a replica is late or lost.

At equal resources there are three ways to use spare replicas. `Hedged` asks a second one, at once
(duplicates) or after a while. `Coded` sends each group of k queries one parity query, and
reconstructs the answer that is missing when all others are there. A real answer that is there is
never replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import cycle
from typing import NamedTuple

import numpy as np

from runtime.cluster.parity.code import Code, Rows
from runtime.errors import ClusterError

#: A replica: rows of numbers in, one answer for each row out. It may be slow, and may raise.
Endpoint = Callable[[Rows], Awaitable[Rows]]


class Answer(NamedTuple):
    """An answer, and whether it was reconstructed from those of others."""

    values: Rows
    reconstructed: bool = False


class _Group:
    """Queries on their way, and what has come back."""

    def __init__(self, size: int) -> None:
        self.queries: list[Rows] = []
        self.answers: dict[int, Rows] = {}
        self.parities: dict[int, Rows] = {}
        self.waiting: dict[int, asyncio.Future[Answer]] = {}
        self.lost: dict[int, BaseException] = {}
        self.size, self.pending = size, size


class Coded:
    """Replicas in turn, and parity replicas for each group.

    `constant` is F(0) of an affine program; None for a parity model. A group that is not full after
    `patience` seconds, or whose queries differ in length, is filled up with zeros, whose answer is
    known for an affine program. With a parity model such a group has no parity query.
    """

    def __init__(
        self,
        replicas: Sequence[Endpoint],
        parities: Sequence[Sequence[Endpoint]],
        code: Code,
        *,
        constant: Rows | float | None = None,
        patience: float = 0.01,
    ) -> None:
        if len(parities) != code.parities:
            raise ClusterError(
                "each parity query of a group has replicas of its own",
                where="Coded",
                found=f"replicas of {len(parities)}, a code with {code.parities}",
                hint="Coded([one, two], [[parity], [parity]], Code(2, 2))",
            )
        self._replicas, self._code = _in_turn(replicas), code
        self._parities = [_in_turn(each) for each in parities]
        self._known = constant is not None
        self._constant = 0.0 if constant is None else constant
        self._patience = patience
        self._group = _Group(code.group)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, rows: Rows) -> Answer:
        """The answer of a replica, or its reconstruction where that is there first."""
        rows = np.asarray(rows)
        group, number = self._group, len(self._group.queries)
        group.queries.append(rows)
        group.waiting[number] = asyncio.get_running_loop().create_future()
        self._start(self._ask(group, number, rows))
        if len(group.queries) == self._code.group:
            self._encode(group)
        elif number == 0 and self._known:
            self._start(self._fill(group))
        return await group.waiting[number]

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, group: _Group, number: int, rows: Rows) -> None:
        try:
            group.answers[number] = _checked(await next(self._replicas)(rows), len(rows))
        except Exception as problem:  # noqa: BLE001 (what a replica raises is what it lost)
            group.lost[number] = problem
        else:
            _resolve(group.waiting[number], Answer(group.answers[number]))
        self._decode(group)
        self._give_up(group)

    async def _fill(self, group: _Group) -> None:
        await asyncio.sleep(self._patience)
        if group is self._group:
            self._encode(group)

    def _encode(self, group: _Group) -> None:
        self._group = _Group(self._code.group)
        longest = max(len(each) for each in group.queries)
        if not self._known and longest > min(len(each) for each in group.queries):
            group.pending = 0
            self._give_up(group)
            return
        first = group.queries[0]
        queries = np.zeros((self._code.group, longest, *first.shape[1:]))
        for number, rows in enumerate(group.queries):
            queries[number, : len(rows)] = rows
        group.pending = len(self._parities)
        for row, parity in enumerate(self._code.encode(queries)):
            self._start(self._ask_parity(group, row, parity))

    async def _ask_parity(self, group: _Group, row: int, parity: Rows) -> None:
        with suppress(Exception):  # a lost parity answer is one that is not there
            group.parities[row] = _checked(await next(self._parities[row])(parity), len(parity))
        group.pending -= 1
        self._decode(group)
        self._give_up(group)

    def _decode(self, group: _Group) -> None:
        """Reconstruct what is missing, if enough is there."""
        missing = [n for n in range(len(group.queries)) if n not in group.answers]
        if not missing or not group.parities or len(missing) > len(group.parities):
            return
        longest = len(next(iter(group.parities.values())))
        known = {n: self._padded(rows, longest) for n, rows in group.answers.items()}
        for number in range(len(group.queries), self._code.group):
            known[number] = self._padded(next(iter(group.parities.values()))[:0], longest)
        found = self._code.decode(known, group.parities, self._constant)
        for number in missing:
            values = found[number][: len(group.queries[number])]
            if self._known and self._code.loses(values, known, group.parities):
                continue
            _resolve(group.waiting[number], Answer(values, reconstructed=True))

    def _padded(self, rows: Rows, longest: int) -> Rows:
        """Answers with those to rows of zeros behind them."""
        padded = np.empty((longest, *rows.shape[1:]))
        padded[:] = self._constant
        padded[: len(rows)] = rows
        return padded

    def _give_up(self, group: _Group) -> None:
        """Raise what replicas raised where nothing can come any more."""
        waits = len(group.answers) + len(group.lost) < len(group.queries)
        if group.pending == 0 and not waits:
            for number, problem in group.lost.items():
                future = group.waiting[number]
                if not future.done():
                    future.set_exception(problem)


class Hedged:
    """Replicas in turn; the next one is asked too where the first has not answered after a while.

    With `after=0` every query goes to two replicas at once.
    """

    def __init__(self, replicas: Sequence[Endpoint], *, after: float | None = None) -> None:
        self._replicas, self._after = _in_turn(replicas), after

    async def __call__(self, rows: Rows) -> Answer:
        """The answer that comes first."""
        first = asyncio.ensure_future(next(self._replicas)(rows))
        if self._after is None:
            return Answer(await first)
        await asyncio.wait([first], timeout=self._after)
        if first.done() and first.exception() is None:
            return Answer(first.result())
        waiting = {first, asyncio.ensure_future(next(self._replicas)(rows))}
        while True:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            good = [task for task in done if task.exception() is None]
            if good or not waiting:
                for task in waiting:
                    task.cancel()
                return Answer((good or list(done))[0].result())


def _in_turn(replicas: object) -> cycle[Endpoint]:
    if not (isinstance(replicas, Sequence) and replicas and all(map(callable, replicas))):
        raise ClusterError(
            "replicas are a list of functions that answer rows",
            found=repr(replicas)[:100],
            hint="Hedged([one, two]), or Coded([one, two], [[parity]], Code(2))",
        )
    return cycle(replicas)


def _checked(answer: object, rows: int) -> Rows:
    """An answer with one value, or one row of values, for each row."""
    found = np.asarray(answer)
    if not found.ndim or len(found) != rows:
        raise ClusterError(
            "a replica answers each row",
            where=f"a query of {rows} rows",
            found=f"an answer of shape {found.shape}",
        )
    return found


def _resolve(future: asyncio.Future[Answer], answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)
