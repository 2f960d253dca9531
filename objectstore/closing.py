"""Objects that are closed at the end of their `with` block."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self  # Python 3.11 has it


class Closing:
    """Has a method `close`, and calls it where the block that uses it ends."""

    __slots__ = ()

    def close(self) -> None:
        """Let go of all that is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
