"""Front ends of replicated endpoints that answer although a replica is late or lost.

At equal resources there are three ways to use spare replicas. `Hedged` asks a second one, at once
(duplicates) or after a while. `Coded` sends each group of k queries one parity query, and
reconstructs the answer that is missing when all others are there. A real answer that is there is
never replaced, and answers of different versions are never decoded together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import cycle
from typing import NamedTuple

import numpy as np

from flour.core.errors import InputError
from flour.core.time_limit import is_cancelled, time_limit
from objectstore import Closing
from runtime.cluster.parity.code import EXACT, ParityCode, Rows
from runtime.errors import ClusterError

log = logging.getLogger("pretzel.parity")


class _AnswerFields(NamedTuple):
    values: Rows
    reconstructed: bool


class Answer(_AnswerFields):
    """An answer, whether it was reconstructed from those of others, and beside them its version."""

    version: str | None = ""
    """The digest of the plan that gave it; of a parity model, of the plan it was trained for.

    "" is a replica that tells none, as it never changes; None is unknown, and never decoded.
    """

    def __new__(
        cls,
        values: Rows,
        reconstructed: bool = False,  # noqa: FBT001, FBT002 (copies are made by position)
        version: str | None = "",
    ) -> Answer:
        """Make one."""
        made = super().__new__(cls, values, reconstructed)
        made.version = version
        return made


#: A replica: rows of numbers in, one answer for each row out. It may be slow, and may raise.
Endpoint = Callable[[Rows], Awaitable[Rows | Answer]]
_Future = asyncio.Future[Answer]


class _ParityGroup:
    """Queries on their way, and what has come back."""

    def __init__(self) -> None:
        self.queries: list[Rows] = []
        self.waiting: list[_Future] = []
        self.answers: dict[int, Answer] = {}
        self.parities: dict[int, Answer] = {}
        self.lost: dict[int, BaseException] = {}
        #: Parity queries on their way; None while the group is open for queries.
        self.pending: int | None = None
        self.longest, self.mixed = 0, False

    def undone(self) -> list[int]:
        return [number for number, each in enumerate(self.waiting) if not each.done()]


class Coded(Closing):
    """Replicas in turn, and parity replicas for each group.

    `constant` is F(0) of an affine program; None for a parity model. A group of an affine program
    that is not full after `patience` seconds, or whose queries differ in length, is filled up with
    zeros. With a parity model such a group has no parity query. A parity query ends with a row of
    zeros, so that F(0) is that of the version that answers it; `constant` itself only says whether
    parity replicas that tell no version are what they were.

    A query ends within `timeout` seconds. `counts` are of groups that had a parity query, of
    answers that were reconstructed, and of groups with answers of several versions.
    """

    def __init__(
        self,
        replicas: Sequence[Endpoint],
        parities: Sequence[Sequence[Endpoint]],
        code: ParityCode,
        *,
        constant: Rows | float | None = None,
        patience: float = 0.01,
        timeout: float = 30.0,
    ) -> None:
        if len(parities) != code.parities:
            raise ClusterError(
                "each parity query of a group has replicas of its own",
                where="Coded",
                found=f"replicas of {len(parities)}, a code with {code.parities}",
                hint="Coded([one, two], [[parity], [parity]], Code(2, 2))",
            )
        self._replicas, self._code = _InTurn(replicas, timeout), code
        self._parities = [_InTurn(each, timeout) for each in parities]
        self._constant, self._affine = 0.0 if constant is None else constant, constant is not None
        self._patience, self._timeout = patience, timeout
        #: The group that takes queries, for each event loop and shape of a row.
        self._open: dict[tuple[asyncio.AbstractEventLoop, tuple[int, ...]], _ParityGroup] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: Queries that wait, with the tasks that ask replicas.
        self._waiting: dict[_Future, asyncio.Task[None]] = {}
        self._told = set[frozenset[str | None]]()
        self._closed = False
        self.counts: Counter[str] = Counter(coded=0, reconstructed=0, mixed=0)

    async def __call__(self, rows: Rows) -> Answer:
        """The answer of a replica, or its reconstruction where that is there first."""
        if self._closed:
            raise ClusterError("this front end is closed", where="Coded")
        rows = _query(rows, finite=self._affine)
        loop = asyncio.get_running_loop()
        # The group that a query joins; one that cannot be added up is in no group with others.
        key = loop, rows.shape[1:]
        group = self._open.get(key)
        if not self._affine and not np.isfinite(rows).all():
            group = _ParityGroup()
            group.pending = 0
        elif group is None or group.pending is not None:
            for ended in [each for each in list(self._open) if each[0].is_closed()]:
                self._open.pop(ended, None)
            group = self._open[key] = _ParityGroup()
        number, future = len(group.queries), _Future(loop=loop)
        group.queries.append(rows)
        group.waiting.append(future)
        self._waiting[future] = self._start(self._ask(group, number, rows))
        if len(group.queries) == self._code.group:
            self._encode(group)
        elif number == 0 and self._affine:
            loop.call_later(self._patience, self._encode, group)
        end = loop.call_later(self._timeout, lambda: _fail(future, _late(self._timeout)))
        try:
            return await future
        finally:
            end.cancel()
            del self._waiting[future]

    def close(self) -> None:
        """Answer nothing any more; queries that wait fail at once."""
        self._closed = True
        for future, task in list(self._waiting.items()):
            with suppress(RuntimeError):  # the event loop has ended before
                problem = ClusterError("this front end is closed", where="Coded")
                future.get_loop().call_soon_threadsafe(_fail, future, problem)
                future.get_loop().call_soon_threadsafe(task.cancel)

    def _start(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _ask(self, group: _ParityGroup, number: int, rows: Rows) -> None:
        future = group.waiting[number]
        try:
            answer = await self._replicas(rows)
        except Exception as problem:  # noqa: BLE001 (what a replica raises is what it lost)
            group.lost[number] = problem
            if isinstance(problem, InputError):  # no other replica would answer it
                _fail(future, problem)
            if group.pending is None and not self._affine:
                future.get_loop().call_later(self._patience, self._encode, group)
        else:
            # The caller may write to its answer while it is needed for others.
            group.answers[number] = Answer(np.array(answer.values), version=answer.version)
            if not future.done():
                future.set_result(answer)
        self._advance(group)

    def _encode(self, group: _ParityGroup) -> None:
        """Ask the parity query of a group, which takes no more queries, unless that is done."""
        if group.pending is not None:
            return
        group.longest = max(map(len, group.queries))
        full = sum(map(len, group.queries)) == self._code.group * group.longest
        group.pending = len(self._parities) if group.undone() and (self._affine or full) else 0
        if group.pending:
            self.counts["coded"] += 1
            shape = group.longest + self._affine, *group.queries[0].shape[1:]
            queries = np.zeros((self._code.group, *shape))
            for number, rows in enumerate(group.queries):
                queries[number, : len(rows)] = rows
            for row, parity in enumerate(self._code.encode(queries)):
                self._start(self._ask_parity(group, row, parity))
        self._advance(group)

    async def _ask_parity(self, group: _ParityGroup, row: int, parity: Rows) -> None:
        with suppress(Exception):  # a lost parity answer is one that is not there
            answer = await self._parities[row](parity)
            if answer.version == "" and self._affine:
                apart = np.abs(answer.values[-1] - self._constant)
                if not (apart <= EXACT * (1.0 + np.abs(self._constant))).all():
                    answer = Answer(answer.values, version=None)
            group.parities[row] = answer
        assert group.pending is not None, "the group is closed"
        group.pending -= 1
        self._advance(group)

    def _advance(self, group: _ParityGroup) -> None:
        """Reconstruct what can be, and raise what replicas raised where nothing can come."""
        if group.parities:
            with suppress(ValueError, TypeError), np.errstate(all="ignore"):  # no sum can be had
                for number, answer in self._decoded(group):
                    self.counts["reconstructed"] += 1
                    group.waiting[number].set_result(answer)
        if group.pending == 0 and len(group.answers) + len(group.lost) == len(group.queries):
            for number, problem in group.lost.items():
                _fail(group.waiting[number], problem)

    def _decoded(self, group: _ParityGroup) -> Iterator[tuple[int, Answer]]:
        """Missing answers, if enough answers of one version are there."""
        every = (*group.answers.values(), *group.parities.values())
        answers = [each.values for each in every]
        shapes = {each.shape[1:] if each.dtype.kind in "biuf" else None for each in answers}
        if len(shapes) > 1 or None in shapes:
            return
        versions = {each.version for each in every}
        if len(versions) > 1 or None in versions:
            self._mixed(group, versions)
        version, *others = {each.version for each in (group.answers or group.parities).values()}
        parities = {n: each.values for n, each in group.parities.items() if each.version == version}
        missing, waiting = set(range(len(group.queries))) - set(group.answers), group.undone()
        if others or version is None or not waiting or not len(missing) <= len(parities):
            return
        first = next(iter(parities.values()))
        constant = first[-1] if self._affine else 0.0
        parities = {row: each[: group.longest] for row, each in parities.items()}
        known = {}
        for number in set(range(self._code.group)) - missing:  # zeros follow what was asked
            known[number] = np.full((group.longest, *first.shape[1:]), constant, float)
            if number in group.answers:
                known[number][: len(group.queries[number])] = group.answers[number].values
        found = self._code.decode(known, parities, constant)
        for number in waiting:
            values = found[number][: len(group.queries[number])]
            lost = self._affine and self._code.loses(values, known, parities)
            if not lost and np.isfinite(values).all():
                yield number, Answer(values, reconstructed=True, version=version)

    def _mixed(self, group: _ParityGroup, versions: set[str | None]) -> None:
        """Count a group whose answers do not belong together; each combination is logged once."""
        self.counts["mixed"] += not group.mixed
        group.mixed = True
        if frozenset(versions) not in self._told:
            self._told.add(frozenset(versions))
            told = ", ".join(sorted(each or "not told" for each in versions))
            log.warning("parity is paused: answers and parity are of several versions: %s", told)


class Hedged:
    """Replicas in turn; the next one is asked too where the first has not answered after a while.

    With `after=0` every query goes to two replicas at once. Each has `timeout` seconds.
    """

    def __init__(
        self, replicas: Sequence[Endpoint], *, after: float | None = None, timeout: float = 30.0
    ) -> None:
        self._replicas, self._after = _InTurn(replicas, timeout), after

    async def __call__(self, rows: Rows) -> Answer:
        """The answer that comes first."""
        waiting = {asyncio.ensure_future(self._replicas(rows))}
        try:
            done, _ = await asyncio.wait(waiting, timeout=self._after)
            if self._after is not None and not any(each.exception() is None for each in done):
                waiting.add(asyncio.ensure_future(self._replicas(rows)))
            while True:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                good = [task for task in done if task.exception() is None]
                if good or not waiting:
                    return (good or list(done))[0].result()
        finally:
            for task in waiting:
                task.cancel()


class _InTurn:
    """Asks one replica after another."""

    def __init__(self, replicas: object, timeout: float) -> None:
        if not (isinstance(replicas, Sequence) and replicas and all(map(callable, replicas))):
            raise ClusterError(
                "replicas are a list of functions that answer rows",
                found=repr(replicas)[:100],
                hint="Hedged([one, two]), or Coded([one, two], [[parity]], Code(2))",
            )
        if not 0 < timeout < float("inf"):
            raise ClusterError("a query has some seconds of time", found=repr(timeout)[:80])
        self._replicas, self._timeout = cycle(replicas), timeout

    async def __call__(self, rows: Rows) -> Answer:
        """The answer of the next one, with one value, or one row of values, for each row."""
        try:
            async with time_limit(self._timeout):
                given = await next(self._replicas)(rows)
        except TimeoutError as problem:
            raise _late(self._timeout) from problem
        except asyncio.CancelledError:
            if is_cancelled(asyncio.current_task()):
                raise
            raise ClusterError("a replica is not asked any more: its client is closed") from None
        answer = given if isinstance(given, Answer) else Answer(given)
        found = np.asarray(answer.values)
        if not found.ndim or len(found) != len(rows):
            raise ClusterError(
                "a replica answers each row",
                where=f"a query of {len(rows)} rows",
                found=f"an answer of shape {found.shape}",
            )
        return Answer(found, reconstructed=answer.reconstructed, version=answer.version)


def _query(rows: object, *, finite: bool) -> Rows:
    """The numbers of a query, copied: the caller may write to its rows while others need them."""
    found, where = np.empty(()), "a query of Coded"
    with suppress(ValueError, TypeError):  # rows of unequal length
        found = np.array(rows)
    if found.ndim and len(found) and found.dtype.kind in "biuf":
        if not finite or np.isfinite(found).all():
            return found
        where += f", at {np.argwhere(~np.isfinite(found))[0].tolist()}"
    raise ClusterError(
        "a query is rows of numbers" + ", none of them NaN or infinite" * finite,
        where=where,
        found=repr(rows)[:100],
        hint="an array of shape (rows, columns); this one was not asked, and others go on",
    )


def _fail(future: _Future, problem: BaseException) -> None:
    if not future.done():
        future.set_exception(problem)


def _late(timeout: float) -> ClusterError:
    return ClusterError("no replica has answered in time", found=f"no answer in {timeout:g} s")
