"""Does one port answer for 20,000 models as it does for one, and what does MLServer do?

    python -m bench zipf

A table of goals, which were set before anything was measured. The models are those of `scale`:
ours registers their plans from files, MLServer unpickles as many of the same folder as it can in a
minute and 4 GiB. Sixteen connections that stay ask for models by Zipf's law, for another row each
time, and every answer is compared with scikit-learn's. Servers take turns, while the others are
stopped. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

import numpy as np

from bench import machine
from bench.client import last_output, race
from bench.crew import Absent, Member
from bench.experiments.end_to_end import Entry, first_answer, resume, started, stop
from bench.goal import Goal
from bench.histogram import Histogram
from bench.servers import SERVERS
from bench.workload import CHECKED, Saved, Spec, saved

QUESTION = "20,000 models behind one port, asked by Zipf's law, beside MLServer"
OURS, PEER = "pretzel", "mlserver"
COUNT = 20_000
#: Numbers of models that MLServer loads, until it has taken its time or its memory.
PEER_COUNTS, PEER_SECONDS = (200, 1000, 2000), 60.0
EXPONENT, CONNECTIONS = 1.0, 16
ROUNDS, SECONDS = 3, 3.0
#: Requests that are built beforehand; they come again when all were sent.
REQUESTS = 1 << 16
#: Models are popular until half of the traffic is theirs, and rare where the last tenth of it is.
SHARES = {"all": (0.0, 1.0), "head": (0.0, 0.5), "tail": (0.9, 1.0)}
#: The goals: seconds, GiB, a share, milliseconds, times.
LOAD, MEMORY, OF_ONE, WAIT, OF_PEER = 60.0, 4.0, 0.8, 5.0, 10.0
_PATIENCE, _GIB = 300.0, 1 << 30


class Traffic(NamedTuple):
    """Requests in their order, the answer of each, and where in the traffic its model stands."""

    requests: list[bytes]
    expected: list[float]
    places: list[float]
    """The share of the traffic of all models that are more popular."""


@dataclass
class Served:
    """A server with models, and what it did."""

    title: str
    count: int
    entry: Entry
    seconds: float
    """From the start of its process to an answer of the last model."""
    traffic: Traffic
    rates: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    """The client's processor time, of the time."""
    waits: dict[str, Histogram] = field(
        default_factory=lambda: {share: Histogram() for share in SHARES}
    )
    wrong: int = 0

    @property
    def memory(self) -> float:
        """GiB resident now."""
        assert self.entry.process is not None
        return machine.memory(self.entry.process)["rss"] / _GIB

    def turn(self, seconds: float, *, counts: bool = True) -> None:
        """Let it answer for a while."""
        resume(self.entry)
        with suppress(ConnectionError):  # what may have come while it was stopped is late
            first_answer(self.entry, self.traffic.requests[0], patience=0.5)
        known: dict[int, bytes] = {}
        took: dict[str, list[int]] = {each: [] for each in SHARES}
        answered = self._answered(known, took)
        used = time.process_time()
        found = race(self.entry.port, self.traffic.requests, CONNECTIONS, seconds, answered)
        used = time.process_time() - used
        stop(self.entry)
        if counts:
            self.rates.append(len(found) / seconds)
            self.busy.append(used / seconds)
            for share, times in took.items():
                self.waits[share].add(times)

    def _answered(
        self, known: dict[int, bytes], took: dict[str, list[int]]
    ) -> Callable[[int, int, bytes], None]:
        """Check an answer, and keep its time by its model's share of the traffic."""
        _, expected, places = self.traffic

        def answered(number: int, nanoseconds: int, body: bytes) -> None:
            if known.get(number) != body:
                known[number] = body
                self.wrong += abs(last_output(body)[-1] - expected[number]) > 1e-9
            for share, (least, most) in SHARES.items():
                if least <= places[number] < most:
                    took[share].append(nanoseconds)

        return answered

    def __str__(self) -> str:
        waits = "; ".join(f"{share} {_percentiles(times)}" for share, times in self.waits.items())
        return (
            f"{self.title}, models: {self.count:,}, {median(self.rates):,.0f} requests/s (client "
            f"at {100 * median(self.busy):.0f} % of a core), p50/p99/p99.9 in ms: {waits}"
        )


def _percentiles(times: Histogram) -> str:
    return "/".join(f"{times.percentile(share) / 1e6:.2f}" for share in (0.5, 0.99, 0.999))


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    workload = saved(Spec("lin", COUNT))
    with Member(OURS) as member:
        member.ask("prepare", folder=str(workload.folder), count=COUNT)
    with ExitStack() as stack:
        many = _ready(OURS, workload, COUNT, stack)
        label = f"{COUNT:,} models"
        yield Goal(f"{label}, from start to ready, s", many.seconds, LOAD, at_most=True)
        servers = [many, one := _ready(OURS, workload, 1, stack)]
        peer = _peer(workload, stack)
        servers += [peer] if peer else []
        for number in range(1 + ROUNDS):  # the first warms up
            for each in servers:
                each.turn(SECONDS if number else SECONDS / 2, counts=number > 0)
        print(*servers, sep="\n", flush=True)
        yield Goal(f"{label}, resident after the traffic, GiB", many.memory, MEMORY, at_most=True)
    yield Goal("wrong answers", sum(each.wrong for each in servers), 0, at_most=True)
    share = _by(many.rates, one.rates)
    yield Goal(f"{label}, requests/s, of a server with one model", share, OF_ONE)
    for name, times in many.waits.items():
        wait = times.percentile(0.999) / 1e6
        yield Goal(f"{label}, p99.9 of {name}, ms", wait, WAIT, at_most=True)
    if peer:
        label = f"{label}, requests/s, of MLServer's with {peer.count:,}, x"
        yield Goal(label, _by(many.rates, peer.rates), OF_PEER)


def _by(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median ratio of rounds, in which servers follow each other."""
    return median(mine / other for mine, other in zip(ours, theirs, strict=True))


def _ready(
    name: str, workload: Saved, count: int, stack: ExitStack, patience: float = _PATIENCE
) -> Served:
    """A server that answers for so many models, stopped until its turn."""
    kind, began = SERVERS[name], time.monotonic()
    arguments = [str(workload.folder), str(count)]
    entry = started(name, kind, arguments, stack, patience)
    last = kind.request(count - 1, workload.inputs.data[0].tolist())
    first_answer(entry, last, patience)
    seconds = time.monotonic() - began
    served = Served(kind.title, count, entry, seconds, _traffic(name, workload, count))
    print(
        f"{kind.title}, models: {count:,}, ready after {seconds:.1f} s, {served.memory:.3f} GiB",
        flush=True,
    )
    stop(entry)
    return served


def _peer(workload: Saved, stack: ExitStack) -> Served | None:
    """MLServer with as many models as it can load; None, with the reason printed, if it cannot."""
    found: list[Served] = []
    sizes: list[float] = []
    kept = stack.enter_context(ExitStack())
    for count in (each for each in PEER_COUNTS if each <= COUNT):
        with ExitStack() as own:
            try:
                found.append(_ready(PEER, workload, count, own, PEER_SECONDS))
            except (Absent, ConnectionError, OSError) as problem:
                print(f"{SERVERS[PEER].title}, models: {count:,}, left out, {problem}", flush=True)
                break
            kept.close()  # the one with fewer models
            kept.push(own.pop_all())
        sizes.append(found[-1].memory)
        if sizes[-1] > MEMORY:
            break
    if len(found) > 1:
        more = found[-1].count - found[0].count
        took = max(0.0, found[-1].seconds - found[0].seconds) / more
        room = (sizes[-1] - sizes[0]) / more
        whole = sizes[0] + COUNT * room
        print(
            f"one more model takes {1e3 * took:.1f} ms and {room * _GIB / 1024:.0f} KiB there, so "
            f"{COUNT:,} would take some {COUNT * took:.0f} s and {whole:.1f} GiB: "
            "that is extrapolated, not measured"
        )
    return found[-1] if found else None


def _traffic(name: str, workload: Saved, count: int) -> Traffic:
    """Requests for the first models of a workload; the popular ones are anywhere among them."""
    rng = np.random.default_rng(0)
    weights = 1 / np.arange(1, count + 1) ** EXPONENT
    weights /= weights.sum()
    before = np.cumsum(weights) - weights
    ranks = rng.choice(count, REQUESTS, p=weights)
    models = rng.permutation(count)[ranks].tolist()
    pipelines, rows = workload.pipelines(), workload.inputs.data[:CHECKED].tolist()
    answers = {each: pipelines[each].expected() for each in set(models)}
    ask = SERVERS[name].request
    numbers = [each % CHECKED for each in range(REQUESTS)]
    return Traffic(
        [ask(model, rows[row]) for model, row in zip(models, numbers, strict=True)],
        [float(answers[model][row]) for model, row in zip(models, numbers, strict=True)],
        before[ranks].tolist(),
    )
