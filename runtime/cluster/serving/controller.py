"""The controller: holds the folder, starts replicas, and tells all of them what to serve.

Clients ask replicas, which stay when it starts again: what it needs is on disk or told by them.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from flour.core.errors import FlourError
from runtime.cluster.serving.autoscaling import Autoscaler, ReplicaLoad
from runtime.cluster.serving.bodies import Homes, MemberState, Roster
from runtime.cluster.serving.front import Front
from runtime.cluster.serving.homes import Placing
from runtime.cluster.serving.link import BEATS, Address, admitted
from runtime.cluster.serving.membership import ClusterFleet, ClusterMember, Seat
from runtime.cluster.serving.settings import ClusterSettings, Launcher
from runtime.cluster.serving.state import ClusterState
from runtime.errors import ChannelClosed, ClusterError
from runtime.repository import FolderEvent, Repository
from runtime.repository.errors import UnknownModel
from runtime.repository.object_storage import RemotePlans
from runtime.rollout import STEP_SECONDS
from runtime.workers.channel import Channel
from runtime.workers.slot import HUNG_SECONDS
from runtime.workers.supervisor import gathered

log = logging.getLogger("pretzel.cluster")

#: A process that does not join, load or end in this time is started anew.
STUCK_SECONDS = 60.0
#: A replica of the controller before this one that does not come back in this time is replaced.
AWAY_SECONDS = 300.0
_LOOK, _SHORT, _PAUSE_SECONDS = 0.2, 0.02, 5.0


class Controller:
    """One for each cluster. Calls come from any thread."""

    def __init__(
        self,
        settings: ClusterSettings,
        launcher: Launcher,
        *,
        on_members: Callable[[Roster], object] | None = None,
        on_event: Callable[[FolderEvent], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check the folder; nothing is started yet. `on_members` is told each change."""
        self.settings, self._launcher, self._clock = settings, launcher, clock
        remote, staging = settings.plans, Path(settings.staging)
        plans = RemotePlans(remote, staging / "plans") if remote else None
        self.state = ClusterState(staging / f"{settings.identity}.json", plans)
        self.fleet = ClusterFleet(self.state, settings.lease, plans, clock)
        self.repository = Repository(
            settings.folder,
            self.fleet,
            staging=settings.staging,
            apart=True,
            **settings.trusted,
            on_event=on_event,
        )
        self.placing = Placing(self.fleet.table, self._placed, settings.options.memory_budget)
        told = self.members, lambda: self.placing.homes
        known = settings.host, settings.port, told, self._woken
        self.front = Front(*known, settings.options.settings)
        self._on_members = on_members or (lambda _: None)
        self._secret = secrets.token_bytes(32).hex()
        self._autoscaler = Autoscaler(settings.scale)
        self.wanted = max(settings.scale.least, min(1, settings.scale.most))
        self._seats: dict[int, Seat] = {}
        self._lock = threading.RLock()
        self._turn, self._stopped = threading.Event(), threading.Event()
        self._pool, self._door = ThreadPoolExecutor(8, "pretzel-cluster"), ThreadPoolExecutor(8)
        self._members = Roster(0, [])
        self._listener: socket.socket
        self._numbers, self._given_up = count(), set[int]()
        self._surge, self._yielded = 0, False
        self._looked = self._checked = clock()
        #: Replicas of the controller before this one, and until when all of them are waited for.
        self._known, self._grace = set[int](), 0.0

    # --- running -----------------------------------------------------------------------------

    def start(self) -> Controller:
        """Load the folder, take in replicas that are there, and start those that are missing."""
        self._listener = socket.create_server((self.settings.host, 0), backlog=256)
        left, existing = self.state.take_over(), self._launcher.existing()
        self._known, self._grace = set(existing), self._clock() + self.settings.lease
        for number in {*existing, *left.answering}:
            # It may have a lease of the controller before this one, which may not have ended yet.
            key = left.answering.get(number, f"//{number}")
            self.fleet.granted(number, key, leases=2)
        self._seats = {number: Seat(number, self._clock()) for number in existing}
        self._members = Roster(left.epoch << 32, [])
        if left.wanted is not None:
            self.wanted = self._bounded(left.wanted)
        elif existing:
            self.wanted = max(self.wanted, self._bounded(len(existing) - self.settings.standby))
        self.repository.load_all()
        for name in left.withdrawn:
            with suppress(UnknownModel):
                self.repository.unload(name)
        for task, name in ((self._accept, "accepts"), (self._keep, "keeps")):
            threading.Thread(target=task, name=f"pretzel-cluster-{name}", daemon=True).start()
        if self.settings.poll > 0:
            self.repository.watch(self.settings.poll)
        return self

    def stop(self) -> None:
        """End all replicas after their last answers."""
        with self._lock:
            self.wanted = 0
            self._stopped.set()
            for seat in list(self._seats.values()):
                self._leave(seat)
        drain = self.settings.options.settings
        end = time.monotonic() + drain.drain_delay + drain.drain_seconds + 5.0
        while self._seats and time.monotonic() < end:
            self._step()
            time.sleep(0.05)
        for number in list(self._seats):
            self._launcher.end(number)
        self.fleet.close()
        self.front.stop()
        self._listener.close()
        self.repository.close()
        for pool in (self._pool, self._door):
            pool.shutdown(wait=False, cancel_futures=True)

    def address(self) -> Address:
        """The address at which replicas join."""
        return Address(self.settings.host, self._listener.getsockname()[1], self._secret)

    # --- for operators -----------------------------------------------------------------------

    def members(self) -> Roster:
        """The replicas, as clients are told."""
        return self._members

    def wait_ready(self, count: int | None = None, seconds: float = 60.0) -> Roster:
        """Return when so many replicas are ready, by default as many as are wanted."""
        end = time.monotonic() + seconds
        while True:
            ready = len(self._members.ready())
            if ready >= (self.wanted if count is None else count):
                return self._members
            if time.monotonic() > end:
                trouble = [seat.trouble for seat in self._seats.values() if seat.trouble]
                raise ClusterError(
                    "replicas are not ready in time",
                    found=f"{ready} ready" + (f", {trouble[0]}" if trouble else ""),
                    hint="`pretzel cluster status`; does Ray have room for them?",
                )
            time.sleep(0.005)

    def sync(self, seconds: float = STEP_SECONDS) -> list[str]:
        """Follow the folder now; returns what changed when all replicas have followed."""
        events = self.repository.load_all()
        self.fleet.settle(seconds)
        return [f"{each.kind} {each.name}@{each.version}" for each in events]

    def unload(self, name: str) -> None:
        """Take a model out of service; no replica answers for it when this returns."""
        self._change("unload", name)

    def load(self, name: str) -> None:
        """Load a model again, in every replica."""
        self._change("load", name)

    def scale_to(self, count: int) -> None:
        """Have so many replicas: within the bounds, where load decides between them."""
        if count < 1 and self.settings.scale.least == self.settings.scale.most:
            raise ClusterError(
                "a cluster of a fixed number of replicas has one at least",
                found=str(count),
                hint="`--replicas 0..N` of `up` lets it have none; `down` ends it",
            )
        count = self._bounded(count)
        self.state.change(wanted=count)
        self.wanted = count
        self._turn.set()

    def _bounded(self, count: int) -> int:
        scale = self.settings.scale
        if scale.least == scale.most:
            return max(1, count)
        return min(max(count, scale.least), scale.most)

    def wake(self) -> None:
        """Have a replica where there is none, as somebody asks."""
        self._autoscaler.woken(self._clock())
        if self.wanted < 1:
            self.wanted = 1
            self._turn.set()

    def _woken(self) -> Roster:
        self.wake()
        return self.wait_ready(1, STEP_SECONDS)

    def roll(self, seconds: float = 120.0) -> int:
        """Replace all processes by new ones, one at a time; returns how many.

        The new one is ready before the old one leaves, so there are never fewer.
        """
        with self._lock:
            old = [seat for seat in self._seats.values() if seat.state == "ready"]
            for seat in [each for each in self._seats.values() if each.state != "ready"]:
                self._leave(seat)
        for seat in old:
            known = {each.number for each in self._ready()}
            self._surge = 1
            self._turn.set()
            end = time.monotonic() + seconds
            try:
                while not any(each.number not in known for each in self._ready()):
                    if time.monotonic() > end:
                        raise ClusterError(
                            "a new replica is not ready in time",
                            found=f"{seconds:g} s",
                            hint="the new one comes before the old one leaves: "
                            "does Ray have room for one more?",
                        )
                    time.sleep(_SHORT)
            finally:
                with self._lock:
                    self._surge = 0
                    if any(each.number not in known for each in self._ready()):
                        self._leave(seat)
            while seat.number in self._seats and time.monotonic() < end:
                time.sleep(_SHORT)
        return len(old)

    def _ready(self) -> list[Seat]:
        return [seat for seat in list(self._seats.values()) if seat.state == "ready"]

    def _change(self, kind: str, name: str) -> None:
        """Load or unload a model, in every replica, and remember it for the next controller."""
        (self.repository.load if kind == "load" else self.repository.unload)(name)
        self.state.note(name, away=kind == "unload")
        self._show()
        self.fleet.settle(STEP_SECONDS)

    def _show(self) -> None:
        """Send the index of the folder to the replicas, where it has changed."""
        self.fleet.show(self.repository.index())

    # --- replicas that join ------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._door.submit(self._admit, connection)  # strangers may take their time

    def _admit(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if admitted(connection, self._secret):
                joining = _Joining(self)
                joining.channel = Channel(connection, joining.asked, joining.gone)
                joining.channel.start("replica")
                return
        connection.close()

    def joined(self, channel: Channel, body: dict[str, Any]) -> Seat | None:
        """A process says who it is; None where it was given up and should end."""
        with self._lock:
            number = int(body["number"])
            if self._stopped.is_set():
                raise ClusterError("this controller has ended", hint="ask for the next one")
            if number in self._given_up:
                return None
            seat = self._seats.setdefault(number, Seat(number, self._clock()))
            if seat.member is not None:
                self.fleet.leave(seat.member)
            scheme = "https:" if self.settings.options.settings.tls_cert else "http:"
            url = str(body["url"]).replace("http:", scheme, 1)  # it has not learned of TLS yet
            seat.channel, seat.url, seat.quiet = channel, url, 0.0
            seat.process, seat.key = int(body["process"]), str(body["key"])
            seat.node = seat.key.partition("/")[0]
            seat.member, seat.load = ClusterMember(number, channel), ReplicaLoad()
            seat.generation = -1
            seat.become("spare", self._clock())
            channel.ask("homes", msgspec.to_builtins(self.placing.homes))
            if body["running"]:  # it may have a lease: changes wait until it has followed
                self.fleet.granted(number, seat.key, seat.member)
                seat.member.serving = True
                self._promote(seat)
            else:  # the process before it on its machine has ended
                self.fleet.replaced(number, seat.key)
                self._known.discard(number)
        self._turn.set()
        return seat

    def beat(self, seat: Seat, channel: Channel, body: dict[str, Any]) -> bool:
        """A replica reports; whether it may answer for the time of another lease."""
        with self._lock:
            member = seat.member
            if seat.channel is not channel or member is None or self._stopped.is_set():
                return False
            seat.load, seat.quiet = (
                ReplicaLoad(*(body[name] for name in ReplicaLoad.__slots__)),
                0.0,
            )
            seat.generation = int(body["generation"])
            self.placing.count(body.get("models", {}))
            if seat.state in {"ready", "spare"}:
                self._known.discard(seat.number)
            if member.followed:
                self.fleet.granted(seat.number, seat.key, member)
        if member.followed:
            with suppress(ClusterError):  # the next beat tries it again
                self.state.allow(seat.number, seat.key)
        return member.followed

    def ended(self, seat: Seat) -> None:
        """A replica has given its last answer."""
        if seat.member is not None:
            self.fleet.ended(seat.member)
            self.state.forbid({seat.key})

    def asked(self, seat: Seat, kind: str, body: object) -> object:
        """A question of a replica's clients."""
        told = _fields(body)
        if (task := self.fleet.question(kind, told)) is not None:
            return self._pool.submit(task)
        match kind:
            case "load" | "unload":
                return self._pool.submit(self._change, kind, str(body))
            case "snapshot":
                others = {
                    each.number: each.channel.ask(kind, told["kind"])
                    for each in self._ready()
                    if each is not seat and each.channel is not None
                }
                return gathered(others, told["seconds"])
            case "leaving":
                return None
        raise FlourError("a replica asks an unknown question", found=kind)

    def _promote(self, seat: Seat) -> None:
        """Have a process load all models, and answer."""
        member = seat.member
        assert member is not None
        seat.become("loading", self._clock())
        begin = {"options": self.settings.options.to_json(), "worker": seat.number}
        begin |= {"workers": self.settings.scale.most, "plans": self.settings.plans}
        begun = self.fleet.join(member, begin | {"state": str(self.state.path)})
        begun.add_done_callback(partial(self._begun, seat, member))

    def _begun(self, seat: Seat, member: ClusterMember, done: Future[Any]) -> None:
        problem = done.exception()
        if problem is None:
            member.followed = True
            self.fleet.open(member).add_done_callback(partial(self._opened, seat, member))
        elif seat.member is member and not isinstance(problem, ChannelClosed):
            seat.trouble = str(problem)
            log.error("replica %d cannot begin: %s", seat.number, problem)
            with self._lock:
                self._end(seat)

    def _opened(self, seat: Seat, member: ClusterMember, done: Future[Any]) -> None:
        with self._lock:
            if done.exception() is None and seat.member is member and seat.state == "loading":
                seat.become("ready", self._clock())
                self._known.discard(seat.number)
                self._publish()

    def lost(self, seat: Seat, channel: Channel) -> None:
        """A connection has ended."""
        with self._lock:
            if seat.channel is not channel or self._yielded:
                return
            if seat.member is not None:
                self.fleet.leave(seat.member)
            if seat.state == "leaving":
                self._end(seat)
            else:
                seat.become("lost", self._clock())
                self._publish()
        self._turn.set()

    # --- the number of replicas --------------------------------------------------------------

    def _keep(self) -> None:
        while not self._stopped.is_set():
            self._turn.wait(_LOOK)
            self._turn.clear()
            try:
                self._step()
            except Exception:
                log.exception("the cluster could not be kept in order")

    def _step(self) -> None:
        now = self._clock()
        with self._lock:
            passed, self._looked = self._passed(now), now
        if now - self._checked > self.settings.lease / BEATS:
            self._checked = now
            if not self.state.is_current:
                self._let_go()
                return
        with self._lock:
            for seat in list(self._seats.values()):
                # Give up one that is stuck, and close the connection to one that reports nothing.
                patience = AWAY_SECONDS if seat.number in self._known else STUCK_SECONDS
                if seat.state not in {"ready", "spare"} and now - seat.since > patience:
                    self._end(seat)
                seat.quiet += passed
                if seat.channel is not None and seat.quiet > max(HUNG_SECONDS, self.settings.lease):
                    seat.channel.close()
                self._resend(seat)
            if not self._stopped.is_set():
                scale, seats = self.settings.scale, self._seats.values()
                if scale.least != scale.most:
                    loads = [seat.load for seat in seats if seat.state == "ready"]
                    away = bool(self._known) or any(seat.state == "lost" for seat in seats)
                    self.wanted = self._autoscaler.wanted(now, self.wanted, loads, away=away)
                with suppress(ClusterError):  # the next look notes it
                    self.state.change(wanted=self.wanted)
                self._reconcile()
            self._publish()
            nodes: dict[str, list[int]] = {}
            for seat in self._ready():
                nodes.setdefault(seat.node, []).append(seat.number)
        self.placing.look(self.fleet.generation, nodes, self._pool)
        self._show()
        if nodes:  # others that cannot be reached are not missed
            self.fleet.forbid()

    def _passed(self, now: float) -> float:
        """Seconds since the last look; after a pause of this process all replicas may come back."""
        passed = now - self._looked
        if passed <= max(_PAUSE_SECONDS, self.settings.lease):
            return passed
        self._known, self._grace = set(self._seats), now + self.settings.lease
        return 0.0

    def _let_go(self) -> None:
        """Another controller has taken over: let all replicas go to that one."""
        log.error("another controller has taken over")
        self._stopped.set()
        self._listener.close()
        with self._lock:
            self._yielded = True  # nobody is told that replicas are lost
            for seat in self._seats.values():
                if seat.channel is not None:
                    seat.channel.close()
            self._seats.clear()
        self.front.stop()
        self.fleet.close()

    def _reconcile(self) -> None:
        """One step to as many replicas and spare processes as there should be."""
        seats = [seat for seat in self._seats.values() if seat.state != "leaving"]
        active = [seat for seat in seats if seat.state in {"loading", "ready"}]
        spare = [seat for seat in seats if seat.state == "spare"]
        wanted = self.wanted + self._surge
        for seat in spare[: max(0, wanted - len(active))]:
            self._promote(seat)
            active.append(seat)
        spare = [seat for seat in spare if seat.state == "spare"]
        newest = sorted(active, key=lambda each: -each.number)
        for seat in newest[: max(0, len(active) - wanted)]:
            self._leave(seat)
        seats = [seat for seat in seats if seat.state != "leaving"]
        missing = wanted + self.settings.standby - len(seats)
        for _ in range(missing):
            taken = self._seats.keys() | self._given_up | self.state.record.answering.keys()
            number = next(each for each in self._numbers if each not in taken)
            self._seats[number] = Seat(number, self._clock())
            self._pool.submit(self._launch, self._seats[number])
        for seat in spare[: max(0, -missing)]:
            self._leave(seat)

    def _launch(self, seat: Seat) -> None:
        try:
            self._launcher.launch(seat.number)
        except Exception as problem:  # it is tried again when the seat is found to be stuck
            seat.trouble = str(problem)[:300]
            log.exception("replica %d cannot be started", seat.number)

    def _leave(self, seat: Seat) -> None:
        """Have a replica finish its requests and end; clients are sent elsewhere from now on."""
        if seat.state == "leaving":
            return
        reachable = seat.channel is not None and not seat.channel.closed
        seat.become("leaving", self._clock())
        self._known.discard(seat.number)
        self._publish()
        if reachable and seat.channel is not None:
            seat.channel.ask("stop")
        else:
            self._end(seat)

    def _end(self, seat: Seat) -> None:
        if seat.member is not None:
            self.fleet.leave(seat.member)
        if seat.channel is not None:
            seat.channel.close()
        self._seats.pop(seat.number, None)
        self._given_up.add(seat.number)
        self._pool.submit(self._launcher.end, seat.number)
        self._publish()

    def _resend(self, seat: Seat) -> None:
        """Send all models again to a replica that failed to follow a change."""
        member = seat.member
        last = None if member is None or seat.state != "ready" else member.last
        if member is None or last is None or not last.done():
            return
        problem = last.exception()
        if problem is not None and not isinstance(problem, ChannelClosed):
            self.fleet.again(member)

    def _awaits(self) -> bool:
        """True if replicas may yet come back, so that clients should go on with what they know."""
        self._passed(self._clock())
        self._known &= self._seats.keys()
        return bool(self._known) and (self._clock() < self._grace or not self._ready())

    def _publish(self) -> None:
        """Tell replicas and fronts who is there, if that has changed."""
        with self._lock:
            if self._yielded or self._awaits():
                return
            self.front.start()
            states = [seat.told() for _, seat in sorted(self._seats.items())]
            same = [(each.number, each.url, each.state) for each in states]
            if same == [(each.number, each.url, each.state) for each in self._members.replicas]:
                self._members.replicas, self._members.generation = states, self.fleet.generation
                return
            self._tell(states)

    def _tell(self, states: list[MemberState]) -> None:
        number, front = self._members.number + 1, self.front.url
        homes = self.placing.homes.number
        self._members = made = Roster(number, states, self.fleet.generation, front, homes)
        self._send("members", msgspec.to_builtins(made))
        self._pool.submit(self._on_members, made)

    def _placed(self, homes: Homes) -> None:
        """Models have other homes: who asks for the members is told so, and finds them."""
        with self._lock:
            self._send("homes", msgspec.to_builtins(homes))
            self._tell(self._members.replicas)

    def _send(self, kind: str, body: object) -> None:
        for seat in self._seats.values():
            if seat.channel is not None:
                seat.channel.ask(kind, body)


def _fields(body: object) -> dict[str, Any]:
    """A message that has fields; one that has none is empty."""
    return body if isinstance(body, dict) else {}


class _Joining:
    """One connection of a process: what it asks."""

    channel: Channel

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._seat: Seat | None = None

    def asked(self, kind: str, body: object) -> object:
        """Answer a question."""
        if kind == "hello":
            self._seat = self._controller.joined(self.channel, _fields(body))
            return self._seat is not None
        if self._seat is None:
            raise FlourError("a process asks something before it says who it is", found=kind)
        if kind == "beat":
            return self._controller.beat(self._seat, self.channel, _fields(body))
        if kind == "ended":
            self._controller.ended(self._seat)
            return None
        return self._controller.asked(self._seat, kind, body)

    def gone(self) -> None:
        """The connection has ended."""
        if self._seat is not None:
            self._controller.lost(self._seat, self.channel)
