"""The replicas of a cluster as the controller sees them, and the models that all should have.

A change is acknowledged when every replica that may answer has followed it. A replica whose
connection broke may still answer until its lease ends: so an acknowledgment waits for that, unless
the same process, or its successor on the same machine, has come back and followed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Any, Literal

from objectstore.atomic import write_file
from runtime.cluster.serving.autoscaling import Load
from runtime.cluster.serving.bodies import MemberState
from runtime.repository.object_storage import RemotePlans
from runtime.workers.channel import Channel
from runtime.workers.errors import ChannelClosed, NotInStep
from runtime.workers.fleet import Fleet, Member

State = Literal["starting", "spare", "loading", "ready", "leaving", "lost"]
_LOOK = 0.02


class ClusterMember(Member):
    """A process of a replica; `followed` when it has loaded all models since it joined."""

    followed = False


class Seat:
    """The place of one replica: its process now, and the next one after that has ended."""

    def __init__(self, number: int) -> None:
        self.number, self.since = number, time.monotonic()
        self.state: State = "starting"
        self.url = self.node = ""
        self.process = 0
        self.channel: Channel | None = None
        self.member: ClusterMember | None = None
        self.load = Load()
        self.generation = -1
        self.trouble = ""

    def become(self, state: State) -> None:
        """Change its state, now."""
        self.state, self.since = state, time.monotonic()

    def told(self) -> MemberState:
        """What clients are told of it."""
        return MemberState(
            *(self.number, self.url, self.state, self.process, self.node, self.generation)
        )


class ClusterFleet(Fleet):
    """The models that all replicas should have registered; knows who may still answer."""

    def __init__(self, plans: RemotePlans | None = None) -> None:
        super().__init__()
        self.plans = plans
        # A controller that is started again must not repeat the numbers of the one before.
        self._serials = count(time.time_ns())
        self._leases: dict[Member, tuple[str, float]] = {}
        self._granting = threading.Lock()

    def _stage(self, source: Path) -> None:
        """Put a plan where machines find it that do not see its file."""
        if self.plans is not None:
            self.plans.put(source)

    def granted(self, member: Member, node: str, until: float) -> None:
        """A replica may answer until this moment of `time.monotonic`."""
        with self._granting:
            self._leases[member] = node, until

    def replaced(self, member: Member, nodes: Collection[str]) -> None:
        """Processes before this one with its number, on these nodes, answer no more."""
        self._drop(lambda each, where: each.number == member.number and where in nodes, member)

    def ended(self, member: Member) -> None:
        """A replica has said that it answers no more."""
        self.leave(member)
        self._drop(lambda each, _: each is member)

    def _drop(self, chosen: Callable[[Member, str], bool], but: Member | None = None) -> None:
        with self._granting:
            for member in [
                each for each, (where, _) in self._leases.items() if chosen(each, where)
            ]:
                if member is not but:
                    del self._leases[member]

    def unsure(self) -> list[int]:
        """The replicas that cannot be reached and may still answer."""
        now = time.monotonic()
        with self._granting:
            for member in [m for m, (_, until) in self._leases.items() if until < now]:
                del self._leases[member]
            return sorted(m.number for m in self._leases if _is_closed(m))

    def settle(self, seconds: float) -> None:
        """Wait until every replica that may answer has followed all changes so far."""
        end = time.monotonic() + seconds
        super().settle(seconds)
        while behind := self.unsure():
            if time.monotonic() > end:
                raise NotInStep(
                    "replicas that cannot be reached may still answer as before",
                    found="replicas " + ", ".join(map(str, behind)),
                    hint="they stop when their lease ends; ask again",
                )
            time.sleep(_LOOK)


def _is_closed(member: Member) -> bool:
    line = member.line
    return not isinstance(line, Channel) or line.closed


class Unreachable:
    """The line to a process that a controller before this one knew."""

    def ask(self, kind: str, body: object = None) -> Future[Any]:
        """Fail."""
        future: Future[Any] = Future()
        future.set_exception(ChannelClosed("it has not joined again yet"))
        return future


class Withdrawn:
    """The models that were unloaded by name, in a file: the next controller unloads them too."""

    def __init__(self, path: Path, plans: RemotePlans | None = None) -> None:
        """The file is beside the plans, where the next controller finds it on any machine."""
        self._path, self._plans = path, plans

    def names(self) -> set[str]:
        """Their names."""
        try:
            path, plans = self._path, self._plans
            return set(json.loads(plans.read(path.name) if plans else path.read_bytes()))
        except FileNotFoundError:
            return set()

    def note(self, name: str, *, away: bool) -> None:
        """A model was unloaded, or loaded again."""
        names = self.names() | {name} if away else self.names() - {name}
        text = json.dumps(sorted(names)).encode()
        if self._plans is not None:
            self._plans.write(self._path.name, text)
        else:
            write_file(self._path, [text])
