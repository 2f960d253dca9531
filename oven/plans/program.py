"""The program of a plan: there from the start, or read when it is first looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flour.language.flow import Flow
from oven.codegen.ports import find_ports
from oven.codegen.stages import Stage, cut
from oven.compiler import machine

Compiler = machine.Compiler


class PlanProgram:
    """A program as it was written, as it runs, and in stages."""

    __slots__ = ("_exact", "_flows", "_read", "_stages", "compiler")

    def __init__(
        self,
        read: Callable[[], tuple[Flow, Flow]],
        *,
        exact: bool,
        compiler: Compiler = "pretzel",
    ) -> None:
        self._read, self._exact = read, exact
        self.compiler = machine.compiler(compiler)
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
            stages = cut(roots, find_ports(roots), exact=self._exact)
            mark = machine.BY_NUMBA if self.compiler == "numba" else ""
            self._stages = tuple(
                replace(each, source=mark + each.source) if mark and each.source else each
                for each in stages
            )
        return self._stages
