"""Values of a JSON file that a stranger wrote, each with the path that leads to it, for errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flour.core.errors import DamagedProgram, UnsupportedSetting


@dataclass(frozen=True)
class JsonPart:
    """A value, and where it stands."""

    value: object
    where: str

    @classmethod
    def of_json(cls, raw: bytes, where: str) -> JsonPart:
        """The value of a whole file."""
        try:
            return cls(json.loads(raw), where)
        except (ValueError, RecursionError) as problem:
            raise DamagedProgram("this is no JSON", where=where, found=str(problem)[:80]) from None

    def __getitem__(self, key: object) -> JsonPart:
        """The value of a key; of one that is not there, None."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object is expected here")
        return JsonPart(self.value.get(key), f"{self.where}: {key}")

    def names(self) -> list[str]:
        """The keys of an object."""
        return [*self.value] if isinstance(self.value, dict) else []

    def each(self) -> Iterator[JsonPart]:
        """The elements of a list; None has none."""
        if not isinstance(self.value, list | None):
            raise self.wrong("a list is expected here")
        for place, value in enumerate(self.value or ()):
            yield JsonPart(value, f"{self.where}[{place}]")

    def text(self, otherwise: str | None = None) -> str:
        """A string, or what stands for None."""
        value = otherwise if self.value is None else self.value
        if not isinstance(value, str):
            raise self.wrong("a string is expected here")
        return value

    def whole(self, otherwise: int | None = None) -> int:
        """An integer that is not negative, or what stands for None."""
        value = otherwise if self.value is None else self.value
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
            raise self.wrong("an integer is expected here")
        return value

    def whole_numbers(self) -> list[int]:
        """A list of such integers."""
        return [each.whole() for each in self.each()]

    def flag(self, otherwise: bool | None = None) -> bool:  # noqa: FBT001 (what stands for None)
        """True or False, or what stands for None."""
        value = otherwise if self.value is None else self.value
        if not isinstance(value, bool):
            raise self.wrong("true or false is expected here")
        return value

    def wrong(self, what: str) -> DamagedProgram:
        """The error that this value is no such thing."""
        return DamagedProgram(what, where=self.where, found=repr(self.value)[:80])

    def refused(self, what: str, known: Sequence[str] = ()) -> UnsupportedSetting:
        """The error that this value is not supported."""
        hint = f"supported: {', '.join(known)}" if known else ""
        return UnsupportedSetting(what, where=self.where, found=repr(self.value)[:80], hint=hint)
