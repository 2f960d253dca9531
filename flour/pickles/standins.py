"""Objects of classes that are not imported: a name, and attributes as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Damaged(ValueError):
    """A file is no pickle, ends too soon, or says what cannot be."""


class Purse(Protocol):
    """An account of the copies that a file may ask for."""

    def pay(self, items: int) -> None:
        """Account for a copy of so many items."""


class Unfinished:
    """An array, or a type of arrays, that gets its state later."""

    __slots__ = ("made",)

    def __init__(self, made: Callable[[Any], Any]) -> None:
        self.made = made


class Global:
    """A class or function by its name."""

    __slots__ = ("module", "name")
    module: str
    name: str

    def __init__(self, module: str, name: str) -> None:
        object.__setattr__(self, "module", module)
        object.__setattr__(self, "name", name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self} is only a name")

    @property
    def __name__(self) -> str:
        """The dotted name."""
        return f"{self.module}.{self.name}"

    def __repr__(self) -> str:
        return self.__name__


class StandIn:
    """An object of a class that is not imported."""

    def __init_subclass__(cls, **of: str) -> None:
        """Register the kind for classes of this name."""
        for name in of.get("names", "").split():
            KINDS[name] = cls
        for package in of.get("packages", "").split():
            PACKAGES[package] = cls

    def begin(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Take the arguments of the class."""
        if arguments:
            vars(self)["_arguments"] = arguments
        vars(self).update(_attributes(named))

    def build(self, state: object) -> None:
        """Take the state: attributes, those of slots, or anything else as `_state`."""
        for each in state if isinstance(state, tuple) and len(state) == 2 else [state]:
            if isinstance(each, dict):
                vars(self).update(_attributes(each))
            elif each is not None:
                vars(self)["_state"] = state
                return

    def finished(self) -> Any:
        """The object to use once its state is there."""
        return self

    def extend(self, values: list[Any]) -> None:
        """Take the items of a list."""
        vars(self).setdefault("_items", []).extend(values)

    def update(self, pairs: object) -> None:
        """Take the items of a mapping."""
        vars(self).setdefault("_pairs", {}).update(pairs)


#: Classes as package.Name, and packages -> a kind with properties of its own.
KINDS: dict[str, type[StandIn]] = {}
PACKAGES: dict[str, type[StandIn]] = {}


def _attributes(state: dict[Any, Any]) -> dict[str, Any]:
    """The items that can be attributes; names of Python's own stay out."""
    return {
        name: value
        for name, value in state.items()
        if isinstance(name, str) and not (name.startswith("__") and name.endswith("__"))
    }


def class_of(named: Global) -> type[StandIn]:
    """A class of the name's module and name, of the kind that is known for it."""
    name = named.name.rpartition(".")[2]
    package = named.module.partition(".")[0]
    kind = KINDS.get(f"{package}.{name}") or PACKAGES.get(package, StandIn)
    return type(name, (kind,), {"__module__": named.module, "__qualname__": named.name})
