"""Endpoints: from a name, or a name and a version, to what answers, through one table.

The table is the one place that is asked. A request looks its address up once and keeps what it
found, so a switch is one assignment: a request sees the version before or the one after it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from threading import RLock
from typing import Any, NamedTuple

from flour.core.errors import nearest
from runtime.errors import AlreadyTaken, BadRegistration, InService, RuntimeClosed, UnknownEndpoint
from runtime.service.private import column_names, spelt
from runtime.service.version import ModelVersion

log = logging.getLogger("pretzel.runtime")
_NAME = re.compile(r"[^@\s]{1,200}")
#: Before the address of a version that is held: names cannot begin with it.
HELD = "@"
#: Time for watches and kept answers to begin, before it is told that models are served.
SETTLE_SECONDS = 10.0


class Endpoint(NamedTuple):
    """A name, its versions in the order they came, and the one that answers."""

    name: str
    current: str
    versions: tuple[str, ...]


class Endpoints:
    """The table of a runtime. Readers use `routes` without a lock; writers take turns."""

    def __init__(self) -> None:
        #: "name" (the version in service) and "name@version" to what answers. A name is missing
        #: where a route has to be asked which version does.
        self.routes: dict[str, ModelVersion] = {}
        #: Every name to the version in service: of a route, the champion.
        self.champions: dict[str, ModelVersion] = {}
        #: Names that answer nothing, with the reason; "name@version" does.
        self.muted: dict[str, str] = {}
        self._versions: dict[str, dict[str, ModelVersion]] = {}
        self._numbers: dict[str, int] = {}
        self._claimed: set[str] = set()
        #: Names that are not in the table, and neither are their versions, as something is done
        #: beside each call: answers are kept, or errors must not show values.
        self._held: set[str] = set()
        #: How often what is in service, or what is done beside it, may have changed.
        self.changes = 0
        #: What was put together of all this, by whom. It is a new dict when a change is over, so
        #: that nothing in it is older than that.
        self.opened: dict[object, dict[str, Any]] = {}
        #: Each waits up to so many seconds for what has to be done beside the calls of what is in
        #: service now, such as keeping answers; true if it is done.
        self.followers: list[Callable[[float], bool]] = []
        #: True if the runtime takes no more calls.
        self.closed = False
        self.lock = RLock()

    def __iter__(self) -> Iterator[Endpoint]:
        """Every endpoint with its versions, as they are now."""
        with self.lock:
            every = [
                Endpoint(name, self.champions[name].version, tuple(versions))
                for name, versions in self._versions.items()
            ]
        return iter(every)

    def __len__(self) -> int:
        return len(self._versions)

    @property
    def ready(self) -> bool:
        """True once no usual call of any version compiles anything."""
        return all(version.ready for version in self.all())

    def changed(self) -> None:
        """Something has changed that is in service, or done beside it."""
        with self.lock:
            self.changes += 1
            self.opened = {}

    def settle(self, seconds: float) -> bool:
        """Wait until what follows the changes has followed; true if it has."""
        return all(follow(seconds) for follow in tuple(self.followers))

    def check_open(self) -> None:
        """Raise RuntimeClosed where no more calls are taken."""
        if self.closed:
            raise RuntimeClosed("this runtime was closed", hint="it takes no more calls")

    def next_version(self, name: str) -> str:
        """The first number that was not given yet."""
        with self.lock:
            number = self._numbers.get(name, 0) + 1
            while str(number) in self._versions.get(name, {}):
                number += 1
            self._numbers[name] = number
            return str(number)

    def check(self, name: str, version: str, *, replace: bool = False) -> None:
        """Raise unless this name and version can be registered."""
        for label, text in (("name", name), ("version", version)):
            if not _NAME.fullmatch(text):
                raise BadRegistration(
                    f"this is no {label} of an endpoint",
                    found=repr(text)[:80],
                    hint="up to 200 characters, without spaces and '@'",
                )
        taken = version in self._versions.get(name, {}) and not replace
        if taken or f"{name}@{version}" in self._claimed:
            raise AlreadyTaken(
                "this version is registered already",
                where=f"{name}@{version}",
                hint="give it another version, or unregister this one first",
            )

    def claim(self, version: ModelVersion, *, replace: bool = False) -> ModelVersion | None:
        """Take a version's address for it, until it is added or given up; who has it so far."""
        with self.lock:
            self.check(version.name, version.version, replace=replace)
            self._claimed.add(version.owner)
            return self._known(version)

    def disclaim(self, version: ModelVersion) -> None:
        """Give a claimed address up."""
        with self.lock:
            self._claimed.discard(version.owner)

    def add(self, version: ModelVersion, *, activate: bool) -> None:
        """Put a version in the table; the first one of a name always goes into service.

        One that takes another's address takes its service, too.
        """
        with self.lock:
            self._claimed.discard(version.owner)
            versions = self._versions.setdefault(version.name, {})
            former = self._known(version)
            follows = former is not None and self.champions.get(version.name) is former
            versions[version.version] = version
            self._hide_together(version.name)
            self.routes[self.address(version)] = version
            if activate or follows or len(versions) == 1:
                direct = len(versions) == 1 or version.name in self.routes
                self.serve(version.name, version.owner, direct=direct)
            self.changed()

    def _hide_together(self, name: str) -> None:
        """Hide in all versions of a name what one of them hides: what is told is of the name."""
        versions = self._versions[name].values()
        hidden = frozenset[str]().union(*(each.hides for each in versions))
        for each in versions:
            each.private = spelt(hidden & column_names(each.inputs), each.inputs)
        if hidden:
            self._held.add(name)
            self._place(name)
            self.routes.pop(name, None)

    def switch(self, name: str, version: str) -> None:
        """Let another version answer from the next request on."""
        self.serve(name, f"{name}@{version}", direct=True)

    def serve(self, name: str, owner: str, *, direct: bool) -> None:
        """Put a version into service; unless it is `direct`, its name is not in the table."""
        with self.lock:
            before = self.champions.get(name)
            self.champions[name] = version = self.find(owner)
            if before is not None and (shown := before.hides - version.hides):
                found = ", ".join(sorted(shown))
                log.warning("%s shows columns that %s hides: %s", owner, before.owner, found)
            if direct and name not in self._held and name not in self.muted:
                self.routes[name] = version
            else:
                self.routes.pop(name, None)
            self.changed()

    def address(self, version: ModelVersion) -> str:
        """The address under which the table has a version."""
        return HELD + version.owner if version.name in self._held else version.owner

    def serves(self, version: ModelVersion) -> bool:
        """True if this version, and no route, answers under the bare name."""
        routed = version.name not in self._held and version.name not in self.routes
        return not routed and self.champions.get(version.name) is version

    def hold(self, name: str, *, held: bool, direct: bool) -> None:
        """Take a name and its versions out of the table, or put them back in if it is `direct`."""
        with self.lock:
            (self._held.add if held else self._held.discard)(name)
            self._place(name)
            self.serve(name, self.champions[name].owner, direct=direct)

    def _place(self, name: str) -> None:
        """Let each version of a name stand under its address."""
        for each in self._versions[name].values():
            for address in (each.owner, HELD + each.owner):
                if address != self.address(each):
                    self.routes.pop(address, None)
                elif address not in self.routes:
                    self.routes[address] = each

    def _known(self, version: ModelVersion) -> ModelVersion | None:
        """The version of this name and number that is registered."""
        return self._versions.get(version.name, {}).get(version.version)

    def remove(self, name: str, version: str | None = None) -> list[ModelVersion]:
        """Take a version out, or the whole endpoint; what was taken out."""
        with self.lock:
            if version is None:
                self.muted.pop(name, None)
            model = self.find(name, version)
            versions = self._versions[name]
            if version is not None and len(versions) > 1 and self.champions[name] is model:
                raise InService(
                    "this version answers the endpoint's requests",
                    where=model.owner,
                    found="also registered: " + ", ".join(v for v in versions if v != version),
                    hint=f"switch({name!r}, another version) first, or unregister the whole name",
                )
            gone = list(versions.values()) if version is None else [model]
            for each in gone:
                del versions[each.version], self.routes[self.address(each)]
            if versions:
                self._hide_together(name)
            else:
                del self._versions[name], self.champions[name]
                self._held.discard(name)
                self.routes.pop(name, None)
            self.changed()
            return gone

    def find(self, name: str, version: str | None = None) -> ModelVersion:
        """The version that answers at this address (of a route, the champion), or UnknownEndpoint.

        A call of it ends on this version, whatever is switched meanwhile.
        """
        address = name if version is None else f"{name}@{version}"
        model = self.routes.get(address)
        if model is not None:
            return model
        model = self.champions.get(address) or self.routes.get(f"{HELD}{address}")
        if model is None:
            self.check_open()
            raise self._unknown(name, version)
        if address in self.muted:
            raise UnknownEndpoint(
                "the route of this endpoint is not known, so nothing answers under its name",
                where=model.name,
                found=self.muted[model.name],
                hint=f"{model.owner!r} and other versions answer under their own names",
            )
        return model

    def mute(self, name: str, reason: str) -> None:
        """Let nothing answer under a name from now on, or as soon as there is one."""
        with self.lock:
            self.muted[name] = reason
            self.routes.pop(name, None)
            self.changed()

    def unmute(self, name: str) -> None:
        """Let the version in service answer again."""
        with self.lock:
            if self.muted.pop(name, None) is not None and name in self.champions:
                self.serve(name, self.champions[name].owner, direct=True)

    def _unknown(self, name: str, version: str | None) -> UnknownEndpoint:
        with self.lock:
            base, _, asked = str(name).partition("@")
            versions = list(self._versions.get(base, {}))
            names = list(self._versions)
        if versions:
            return UnknownEndpoint(
                f"endpoint {base!r} has no version {version or asked!r}",
                found="versions: " + ", ".join(versions[-20:]),
            )
        return UnknownEndpoint(
            f"nothing is registered as {name!r}",
            found=f"{len(names)} endpoints",
            hint=nearest(name, names) or _registered(names),
        )

    def clear(self) -> list[ModelVersion]:
        """Take everything out."""
        with self.lock:
            gone = self.all()
            self._versions.clear()
            self._held.clear()
            self.routes.clear()
            self.champions.clear()
            self.changed()
            return gone

    def versions(self) -> dict[str, ModelVersion]:
        """Every registered version, by "name@version"."""
        return {each.owner: each for each in self.all()}

    def all(self) -> list[ModelVersion]:
        """Every version, in the order of their endpoints."""
        with self.lock:
            return [each for versions in self._versions.values() for each in versions.values()]


def _registered(names: list[str]) -> str:
    """The registered endpoints, for the hint of an error."""
    if not names:
        return "no model is registered or loaded yet"
    return "there are: " + ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
