"""The program of a plan: there from the start, or read when it is first looked at."""

from __future__ import annotations

from collections.abc import Callable

from flour.language.flow import Flow
from oven.codegen.ports import find_ports
from oven.codegen.stages import Stage, cut


class PlanProgram:
    """A program as it was written, as it runs, and in stages."""

    __slots__ = ("_exact", "_flows", "_read", "_stages")

    def __init__(self, read: Callable[[], tuple[Flow, Flow]], *, exact: bool) -> None:
        self._read, self._exact = read, exact
        self._flows: tuple[Flow, Flow] | None = None
        self._stages: tuple[Stage, ...] | None = None

    @property
    def in_memory(self) -> bool:
        """Whether it has been read."""
        return self._flows is not None

    @property
    def flows(self) -> tuple[Flow, Flow]:
        """The program as it was written, and as it runs."""
        if self._flows is None:
            self._flows = self._read()
        return self._flows

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What runs together."""
        if self._stages is None:
            roots = tuple(self.flows[1].outputs.values())
            self._stages = tuple(cut(roots, find_ports(roots), exact=self._exact))
        return self._stages
