"""The state of a cluster that outlives its controllers: a file beside the plans.

A controller writes each change at once, and sees there that another one has taken its place.
Replicas read it while no controller can be reached.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from objectstore.atomic import write_file
from runtime.errors import ClusterError
from runtime.repository.object_storage import RemotePlans

_FORMER = "withdrawn.json"


class StateRecord(msgspec.Struct):
    """The content of the file."""

    epoch: int = 0
    """The number of its controllers so far."""
    wanted: int | None = None
    """The number of replicas that there should be."""
    withdrawn: list[str] = []
    """The models that were unloaded by name."""
    answering: dict[int, str] = {}
    """The process of each replica that may answer without a controller: `Replica.key`."""


class ClusterState:
    """The file, for one controller or one replica."""

    def __init__(self, path: Path, plans: RemotePlans | None = None) -> None:
        """The file is at `path`, or under that name where plans are on object storage."""
        self.path, self._plans, self._lock = path, plans, threading.RLock()
        self.record = StateRecord()

    def take_over(self) -> StateRecord:
        """Become the controller that counts; returns what the one before it has left."""
        left = self._read() or StateRecord(withdrawn=self._former())
        self.record = msgspec.structs.replace(left, epoch=left.epoch + 1)
        self._write(self.record)
        return self.record

    @property
    def is_current(self) -> bool:
        """True if no other controller has taken over."""
        found = self._read()
        return found is None or found.epoch == self.record.epoch

    def check(self) -> None:
        """Raise if another controller has taken over, which may have other replicas."""
        if not self.is_current:
            raise ClusterError("another controller has taken over", hint="ask again")

    def change(self, **fields: object) -> None:
        """Write other values of some fields, where they differ."""
        with self._lock:
            changed = msgspec.structs.replace(self.record, **fields)
            if changed != self.record:
                self.check()
                self._write(changed)
                self.record = changed

    def note(self, name: str, *, away: bool) -> None:
        """A model was unloaded, or loaded again."""
        with self._lock:
            names = {*self.record.withdrawn, name} if away else {*self.record.withdrawn} - {name}
            self.change(withdrawn=sorted(names))

    def allow(self, number: int, key: str) -> None:
        """Let this process, and none before it with its number, answer without a controller."""
        with self._lock:
            self.change(answering={**self.record.answering, number: key})

    def forbid(self, keys: set[str]) -> None:
        """Let these processes answer no more without a controller."""
        with self._lock:
            held = self.record.answering.items()
            self.change(answering={number: key for number, key in held if key not in keys})

    def allows(self, number: int, key: str) -> bool:
        """True if a process may answer without a controller, as far as can be read."""
        try:
            found = self._read()
        except ClusterError:
            return False
        return found is not None and found.answering.get(number) == key

    def _read(self) -> StateRecord | None:
        """The content; None where there is no file, or it is damaged."""
        path, plans = self.path, self._plans
        try:
            data = plans.read(path.name) if plans else path.read_bytes()
            return msgspec.json.decode(data, type=StateRecord)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        except Exception as problem:  # object storage has errors of its own kinds
            raise self._failed("read", problem) from problem

    def _former(self) -> list[str]:
        """The models that were unloaded by name, as controllers before this file wrote them."""
        with suppress(FileNotFoundError, msgspec.MsgspecError):
            plans, path = self._plans, self.path.with_name(_FORMER)
            data = plans.read(_FORMER) if plans else path.read_bytes()
            return msgspec.json.decode(data, type=list[str])
        return []

    def _write(self, record: StateRecord) -> None:
        data = msgspec.json.encode(record)
        try:
            if self._plans is not None:
                self._plans.write(self.path.name, data)
            else:
                write_file(self.path, [data])
        except Exception as problem:
            raise self._failed("written", problem) from problem

    def _failed(self, done: str, problem: Exception) -> ClusterError:
        return ClusterError(
            f"the state of the cluster cannot be {done}",
            where=str(self.path),
            found=f"{type(problem).__name__}: {problem}"[:300],
            hint="--staging is a directory, or object storage, that every machine may use",
        )
