"""The replicas of a cluster as the controller sees them, and the models that all should have.

A change is acknowledged when every replica that may answer has followed it. A replica whose
connection broke may still answer: so the state of the cluster forbids it to, and an acknowledgment
waits until its lease has ended, unless the same process, or its successor on the same machine, has
come back and followed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from secrets import randbits
from typing import Literal, NamedTuple

from runtime.cluster.serving.autoscaling import ReplicaLoad
from runtime.cluster.serving.bodies import MemberState
from runtime.cluster.serving.state import ClusterState
from runtime.errors import NotInStep
from runtime.repository.object_storage import RemotePlans
from runtime.workers.channel import Channel
from runtime.workers.fleet import Fleet
from runtime.workers.judging import Member

State = Literal["starting", "spare", "loading", "ready", "leaving", "lost"]
_LOOK = 0.02


class ClusterMember(Member):
    """A process of a replica; `followed` when it has loaded all models since it joined."""

    followed = False


class Seat:
    """The place of one replica: its process now, and the next one after that has ended."""

    def __init__(self, number: int, now: float) -> None:
        self.number, self.since = number, now
        self.state: State = "starting"
        self.url = self.node = self.key = ""
        self.process = 0
        self.channel: Channel | None = None
        self.member: ClusterMember | None = None
        self.load = ReplicaLoad()
        self.generation = -1
        self.trouble = ""
        self.quiet = 0.0
        """Seconds for which it has not reported."""

    def become(self, state: State, now: float) -> None:
        """Change its state."""
        self.state, self.since = state, now

    def told(self) -> MemberState:
        """State of a member as clients see it."""
        return MemberState(
            *(self.number, self.url, self.state, self.process, self.node, self.generation)
        )


class _Grant(NamedTuple):
    """Until when a process may answer: its own lease, or any it gives itself if not forbidden."""

    number: int
    member: Member | None
    until: float
    forbidden: bool = False

    @property
    def is_lost(self) -> bool:
        line = None if self.member is None else self.member.line
        return not isinstance(line, Channel) or line.closed


class ClusterFleet(Fleet):
    """The models that all replicas should have registered; knows who may still answer."""

    def __init__(
        self,
        state: ClusterState,
        lease: float,
        plans: RemotePlans | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.plans, self._state, self._lease, self._clock = plans, state, lease, clock
        # A controller that is started again must not repeat the numbers of the one before.
        self._serials = count(randbits(50) << 12)
        self._grants: dict[str, _Grant] = {}
        """By `Replica.key`."""
        self._granting = threading.Lock()

    def _stage(self, source: Path) -> None:
        """Put a plan where machines find it that do not see its file."""
        if self.plans is not None:
            self.plans.put(source)

    def granted(self, number: int, key: str, member: Member | None = None, leases: int = 1) -> None:
        """A process may answer for the time of some leases; without a member it is not reached."""
        with self._granting:
            self._grants[key] = _Grant(number, member, self._clock() + leases * self._lease)

    def replaced(self, number: int, key: str) -> None:
        """Processes before this one with its number, on its node, answer no more."""
        node = key.partition("/")[0] + "/"
        self._drop(lambda k, each: each.number == number and k.startswith(node) and k != key)

    def ended(self, member: Member) -> None:
        """A replica has said that it answers no more."""
        self.leave(member)
        self._drop(lambda _, grant: grant.member is member)

    def _drop(self, chosen: Callable[[str, _Grant], bool]) -> None:
        with self._granting:
            self._grants = {k: each for k, each in self._grants.items() if not chosen(k, each)}

    def unsure(self) -> list[int]:
        """The replicas that cannot be reached and may still answer."""
        now = self._clock()
        self._drop(lambda _, grant: grant.forbidden and grant.until < now and grant.is_lost)
        with self._granting:
            return sorted(each.number for each in self._grants.values() if each.is_lost)

    def forbid(self) -> None:
        """Let replicas that cannot be reached, and whose leases have ended, take no other one."""
        now = self._clock()
        with self._granting:
            over = {
                key
                for key, grant in self._grants.items()
                if grant.is_lost and not grant.forbidden and grant.until < now
            }
        if over:
            self._state.forbid(over)
            until = self._clock() + self._lease  # it may have read the state just before
            with self._granting:
                for key in over & self._grants.keys():
                    self._grants[key] = self._grants[key]._replace(until=until, forbidden=True)

    def settle(self, seconds: float) -> None:
        """Wait until every replica that may answer has followed all changes so far."""
        end = time.monotonic() + seconds
        super().settle(seconds)
        while behind := self.unsure():
            self.forbid()
            if time.monotonic() > end:
                raise NotInStep(
                    "replicas that cannot be reached may still answer as before",
                    found="replicas " + ", ".join(map(str, behind)),
                    hint="they stop when their lease ends; ask again",
                )
            time.sleep(_LOOK)
        self._state.check()
