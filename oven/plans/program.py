"""The program of a plan: there from the start, or read when it is first looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flour.core.node import Node
from flour.core.op import Parameter
from flour.core.source import Source
from flour.language.flow import Flow
from oven.codegen.ports import find_ports
from oven.codegen.stages import Stage, cut
from oven.compiler import machine
from oven.plans.skeleton import stage_kinds

if TYPE_CHECKING:
    from oven.plans.skeleton import RestoredPlan

Compiler = machine.Compiler
#: The tables of a compiler's code: see flour.core.emission.
_LEAN: dict[Compiler, str] = {"portable": "rows", "portable_blocks": "blocks"}


class PlanProgram:
    """A program as it was written, as it runs, and in stages."""

    __slots__ = ("_flows", "_read", "_stages", "compiler", "exact", "held", "restored")

    def __init__(
        self,
        read: Callable[[], tuple[Flow, Flow]],
        *,
        exact: bool,
        compiler: Compiler = "pretzel",
        restored: RestoredPlan | None = None,
        held: Sequence[Node] = (),
    ) -> None:
        self._read, self.exact, self.restored = read, exact, restored
        self.compiler = machine.compiler(compiler)
        self._flows: tuple[Flow, Flow] | None = None
        self._stages: tuple[Stage, ...] | None = None
        #: The nodes as written, where they are in memory without the rewritten ones.
        self.held = held

    @property
    def in_memory(self) -> bool:
        """True once it has been read: that of a restored plan is made when looked at."""
        return self._flows is not None

    @property
    def flows(self) -> tuple[Flow, Flow]:
        """The program as it was written, and as it runs."""
        if self._flows is None:
            self._flows = self._read()
        return self._flows

    @property
    def optimised(self) -> Flow:
        """The program that runs."""
        return self.flows[1]

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The parts of the program that run together."""
        if self._stages is None:
            roots = tuple(self.flows[1].outputs.values())
            mark, lean = machine.MARKS[self.compiler], _LEAN.get(self.compiler, "")
            stages = cut(roots, find_ports(roots), exact=self.exact, lean=lean)
            self._stages = tuple(
                replace(each, source=mark + each.source) if mark and each.source else each
                for each in stages
            )
        return self._stages

    @property
    def stage_kinds(self) -> list[tuple[str, str | None]]:
        """The kind of each stage, and the name of its machine code."""
        restored = self.restored
        return stage_kinds(self.stages) if restored is None else [*restored.skeleton.stages]

    @property
    def digest(self) -> str:
        """Equal programs have equal digests."""
        return self.restored.digest if self.restored else self.flows[0].digest

    @property
    def node_digests(self) -> str:
        """The digests of the program's nodes, its inputs left out: see `digests_in`.

        One after the other, as many texts of their own would take three times as much.
        """
        if self.restored is not None:
            return self.restored.nodes
        inside = self.flows[0].nodes()
        return "".join(item.digest for item in inside if not isinstance(item.op, Source))

    def parameters(self) -> frozenset[Parameter]:
        """Every array and table the plan refers to: as written, optimised, and derived for code."""
        nodes = (item for flow in reversed(self.flows) for item in flow.nodes())
        named = {parameter for item in nodes for parameter in item.op.parameters()}
        return frozenset(named.union(*(stage.parameters() for stage in self.stages)))

    def resident(self) -> frozenset[Parameter]:
        """The parameters that are in memory for it, small ones of its own table apart."""
        if self.restored is not None and not self.in_memory:
            held = (each for item in self.held for each in item.op.parameters())
            return frozenset((*self.restored.run.kept, *held))
        return self.parameters()

    def release(self) -> None:
        """Give back memory that operators hold only to run faster; they take it again."""
        for item in self.optimised.nodes() if self.in_memory else ():
            item.op.release()
