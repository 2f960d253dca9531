"""The tenant of a thread's call, and who is shown it: watches and keepers of answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class _Asking(threading.local):
    tenant, seen, kept = "", True, True


_asking = _Asking()


def tenant_now() -> str:
    """The tenant of this thread's call; empty where it has none, or nobody wants to know."""
    return _asking.tenant


def asked_by(tenant: str, call: Callable[[], T]) -> T:
    """The result of `call`, made for this tenant."""
    _asking.tenant = tenant
    try:
        return call()
    finally:
        _asking.tenant = ""


def is_seen() -> bool:
    """Return whether calls of this thread are shown to watches now."""
    return _asking.seen


@contextmanager
def unseen() -> Iterator[None]:
    """Ask again what has been shown to what watches."""
    _asking.seen = False
    try:
        yield
    finally:
        _asking.seen = True


def is_kept() -> bool:
    """Return whether answers of this thread are given to anyone, and so may be kept."""
    return _asking.kept


def unkept(call: Callable[..., T]) -> Callable[..., T]:
    """A function that answers as `call` does, for nobody: a shadow's answers are compared only."""

    def ask(*given: object, **named: object) -> T:
        _asking.kept = False
        try:
            return call(*given, **named)
        finally:
            _asking.kept = True

    return ask
