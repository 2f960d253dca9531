"""Functions in native code that read texts and columns, or write them, without the GIL.

They are compiled in the background. Until one is there, and where none can be compiled, callers go
their general way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from oven.compiler import cache, machine
from oven.errors import NoCompiler
from oven.plans.background import Needed, Pending


class NativeReader:
    """One function: `function(params, io, size, scratch)`, 0 if it has done the whole."""

    def __init__(
        self, function: Callable[..., int], table: Callable[[], NDArray[np.int64]] | None = None
    ) -> None:
        """`table` makes the numbers that the function finds at `params`."""
        self._function, self._table = function, table
        self._made: tuple[Callable[..., int], int] | None = None
        self._numbers = np.zeros(1, np.int64)
        self._pending: Pending[bool] | None = None

    @property
    def is_there(self) -> bool:
        """True if it can be called now."""
        return self._made is not None

    def __call__(self, io: NDArray[np.int64], size: int) -> bool:
        """Call it; whether it has done what it should. It has to be there."""
        assert self._made is not None, "callers ask for is_there"
        call, numbers = self._made
        return not call(numbers, io.ctypes.data, size, 0)

    def compiled(self) -> int:
        """The address of the native code, compiled if no cache has it."""
        return cache.function_address(self._function)

    def make(self) -> None:
        """Have it now."""
        if self._table is not None:
            self._numbers = self._table()
        self._made = machine.STAGE(self.compiled()), self._numbers.ctypes.data

    def prepare(self) -> None:
        """Have it soon."""
        if self._pending is None:
            self._pending = Pending(
                self._prepared, None, lambda: [Needed.of_function(self._function)]
            )

    @property
    def is_settled(self) -> bool:
        """True if it is not being compiled."""
        return self._pending is None or self._pending.done

    def _prepared(self) -> bool:
        with suppress(NoCompiler):  # callers go their general way
            self.make()
        return True
