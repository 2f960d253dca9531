"""Functions of users' own as static fields of operators, and who may run them.

A function that stands at the top of a module is known by its place, `module:name`, and a saved plan
holds that place. Reading it back imports the module, which runs its code, so that needs permission:
`oven.load(path, allow_python=True)`, or the names of the modules that may be imported: then only
what they define, or list in `__all__`, is found in them. Any other function lives in this process
alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from typing import Any, TypeAlias

from flour.core.errors import PythonRefused

#: True if any module may be imported, or the names of those that may.
Allowed: TypeAlias = bool | Collection[str]


@dataclass(frozen=True, slots=True, repr=False)
class Function:
    """A Python function; two are equal if they have one name, which no other function gets."""

    name: str
    place: str
    call: Callable[..., Any] = field(compare=False)

    def __repr__(self) -> str:
        return f"Function({self.name})"

    def saved(self) -> str:
        """The place where it will be found again."""
        if not self.place or _granted.get(self.place) != self:
            raise PythonRefused(
                "a plan with this Python function cannot be saved",
                found=self.name,
                hint="put it at the top of a module that can be imported where the plan is loaded",
            )
        return self.place


#: Functions that this process has been told to run, by place: reading these again runs nothing new.
_granted: dict[str, Function] = {}
_numbers = count(1)
_permitted: ContextVar[Allowed] = ContextVar("permitted", default=False)


def function(call: Callable[..., Any] | Function) -> Function:
    """The callable as a field of an operator; its use was permitted by the caller."""
    if isinstance(call, Function):
        return call
    place = _place(call)
    known = _granted.get(place)
    if known is not None and known.call is call:
        return known
    if not place or known is not None:  # one that was defined anew is another function
        return _grant(Function(f"{place or called(call)} #{next(_numbers)}", place, call))
    return _grant(Function(place, place, call))


def _grant(made: Function) -> Function:
    if made.place:
        _granted[made.place] = made
    return made


@contextmanager
def allowing(permitted: Allowed) -> Iterator[None]:
    """Within this block plans may name functions that are imported."""
    before = _permitted.set(permitted)
    try:
        yield
    finally:
        _permitted.reset(before)


def found(place: str) -> Function:
    """The function that a saved plan names, if it may be run."""
    known = _granted.get(place)
    if known is not None:
        return known
    module, _, name = place.partition(":")
    allowed = _permitted.get()
    if not (allowed is True or (allowed and module in allowed)):
        raise PythonRefused(
            "this runs a Python function, which is not allowed",
            found=place[:80],
            hint="if you trust its author: allow_python=True in Python; a served folder runs only "
            f"functions that its graphs fetch: --allow-python {module[:80]}",
        )
    try:
        import_module(module)
        call = _at(module, name)
    except (Exception, SystemExit) as problem:
        text = f": {problem}" if isinstance(problem, ModuleNotFoundError) else ""
        raise _gone(place, f"{type(problem).__name__}{text}") from problem
    if not callable(call):
        raise _gone(place, f"{type(call).__name__}")
    if allowed is not True and not _belongs(call, module, name):
        raise PythonRefused(
            "this function is not one of the module that is allowed",
            found=place[:80],
            hint=f"functions are defined in {module[:80]}, or listed in its __all__",
        )
    return _grant(Function(place, place, call))


def _belongs(call: object, module: str, name: str) -> bool:
    """Return whether a module defines this or lists it; its imports do not count."""
    listed = getattr(sys.modules[module], "__all__", ())
    return getattr(call, "__module__", None) == module or name in listed


def _gone(place: str, said: str) -> PythonRefused:
    return PythonRefused(
        "a Python function of this plan is not here",
        found=f"{place[:80]}: {said}"[:200],
        hint="install or add to sys.path the module it was imported from",
    )


def _place(call: object) -> str:
    """The import path of a function; "" if it has none."""
    module, name = getattr(call, "__module__", None), getattr(call, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return ""
    return f"{module}:{name}" if _at(module, name) is call else ""


def _at(module: str, name: str) -> object:
    """The object of this name in a module that is loaded."""
    here: object = sys.modules.get(module)
    for part in name.split("."):
        here = getattr(here, part, None)
    return here


def called(call: object) -> str:
    """The name of a callable, for messages."""
    return str(
        getattr(call, "__qualname__", None) or getattr(call, "__name__", type(call).__name__)
    )
