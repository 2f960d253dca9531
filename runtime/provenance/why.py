"""Facts about one answer, and the answer computed once more."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any

import oven
from flour.core.errors import InputError, ParameterError
from flour.data.batch import Batch, Form
from oven import Plan
from runtime.errors import LostPlan
from runtime.provenance.log import read_record
from runtime.provenance.values import content_of, id_of, packed
from runtime.service.engines import shaped
from runtime.service.routes import ServingRuntime

_NONE = object()
_FORMS = ("text", "html", "dot")


class Why:
    """An answer that was kept, with what has made it."""

    def __init__(self, answer: str, record: Mapping[str, Any], plans: Plans) -> None:
        self.id, self._record, self._plans = answer, record, plans
        self.endpoint: str = record["endpoint"]
        self.version: str = record["version"]
        #: The digest of the plan, by which it is found again whatever it is called.
        self.digest: str = record["digest"]
        self.when = datetime.fromtimestamp(record["when"], timezone.utc)
        #: The number of the change of the endpoint's route that was in force, if it has one.
        self.change: int | None = record["change"]
        #: The `X-Request-Id` of the request, if it had one.
        self.request: str = record["request"]
        #: The rows, if they are kept: without private values.
        self.inputs: Any = record["inputs"]
        self.answers: dict[str, Any] = record["answers"]
        #: True if the rows are kept, with all columns.
        self.whole: bool = record["whole"]

    @property
    def plan_facts(self) -> dict[str, Any]:
        """Types, digests of parameters, places of import, notes on training, libraries."""
        return self._plans.facts(self.digest)

    def recomputed(self, rows: object = _NONE) -> dict[str, Any]:
        """The answers of the same plan to the same rows, which are needed where none are kept."""
        return next(self._computed(rows))

    def _computed(self, rows: object) -> Iterator[dict[str, Any]]:
        """The answers of native code, and of the definitions that answer until it is there."""
        if rows is _NONE and not self.whole:
            raise InputError(
                "the rows of this answer were not kept, or without their private columns",
                where=self.id,
                hint="recomputed(rows)",
            )
        plan = self._plans.find(self.digest, f"{self.endpoint}@{self.version}")
        if rows is _NONE:
            kind, single = Form[self._record["kind"]], self._record["single"]
            batch = Batch(kind, self.inputs, 0, single=single)
        else:
            batch = plan.reader.read(rows)
        outputs = self._record["outputs"]
        names = None if outputs is None else (outputs,) if isinstance(outputs, str) else outputs
        for compute in (plan.run, plan.program.optimised.reference, plan.flow.reference):
            answers = compute(batch.block)
            yield shaped(answers, None if names is None else tuple(names), single=batch.single)

    def agrees(self, rows: object = _NONE) -> bool:
        """True if recomputed answers have the bits of those that were given.

        An answer given while code was still compiled has the bits of the operators' definitions.
        """
        given = packed(self.answers)
        return any(
            packed({name: found[name] for name in self.answers}) == given
            for found in self._computed(rows)
        )

    def lineage(self, form: str = "text") -> str:
        """From training data to the answer, as "text", "dot" or "html"."""
        if form not in _FORMS:
            raise ParameterError(
                "a lineage has no such form", found=repr(form)[:80], hint=" or ".join(_FORMS)
            )
        steps = self._steps()
        if form == "dot":
            nodes = [
                f"  {name} [label={json.dumps(f'{name}: {text}'[:200])}];" for name, text in steps
            ]
            edges = "  " + " -> ".join(name for name, _ in steps) + ";"
            return "\n".join(["digraph lineage {", "  node [shape=box];", *nodes, edges, "}"])
        if form == "html":
            rows = (f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in steps)
            return f"<table>{''.join(rows)}</table>"
        return "\n".join(f"{name:<12} {text}" for name, text in steps)

    def _steps(self) -> list[tuple[str, str]]:
        facts = self.plan_facts
        libraries = (f"{name} {version}" for name, version in facts.get("libraries", {}).items())
        digests, training = facts.get("parameters", ()), facts.get("training")
        told = {name: each for name, each in (training or {}).items() if name != "columns"}
        found = [
            ("training", (json.dumps(told, sort_keys=True) if told else "")),
            ("assumed", _assumed((training or {}).get("columns", {}))),
            ("imported", "; ".join(facts.get("imported", ())[:8])),
            ("parameters", f"{len(digests)}: " + ", ".join(each[:12] for each in digests[:6])),
            ("libraries", ", ".join(libraries)),
            ("plan", self.digest),
            (
                "inputs",
                ", ".join(f"{name}: {kind}" for name, kind in facts.get("inputs", {}).items()),
            ),
            ("version", f"{self.endpoint}@{self.version}"),
            ("route", "" if self.change is None else f"change {self.change}"),
            ("request", self.request),
            ("answer", f"{self.id} at {self.when.isoformat(timespec='milliseconds')}"),
        ]
        return [(name, text) for name, text in found if text]

    def _repr_html_(self) -> str:
        return self.lineage("html")

    def __str__(self) -> str:
        return self.lineage()


class Plans:
    """The plans that have answered: those of a runtime, and files beside the answers."""

    def __init__(self, folder: Path, runtime: ServingRuntime | None = None) -> None:
        self.folder, self._runtime = folder, runtime
        self._loaded: dict[str, Plan] = {}

    def facts(self, digest: str) -> dict[str, Any]:
        """Facts about a plan."""
        path = self.folder / f"{digest}.json"
        try:
            found: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        except ValueError as problem:
            raise LostPlan(
                "the facts about this plan are damaged", where=path.name, found=str(problem)[:100]
            ) from None
        return found

    def find(self, digest: str, owner: str) -> Plan:
        """The plan of this digest; an error says which file is missing."""
        versions = {} if self._runtime is None else self._runtime.endpoints.versions()
        for version in versions.values():
            if version.digest == digest and version.plan is not None:
                return version.plan
        if digest not in self._loaded:
            self._loaded[digest] = self._load(digest, owner)
        return self._loaded[digest]

    def _load(self, digest: str, owner: str) -> Plan:
        path = self.folder / f"{digest}.pretzel"
        if not path.exists():
            raise LostPlan(
                "the plan of this answer is neither registered nor in the folder of answers",
                where=owner,
                found=f"digest {digest}, once the file {self.facts(digest).get('file')!r}",
                hint=f"register its version again, or put the file back as plans/{path.name}",
            )
        plan = oven.load(path)
        if plan.digest != digest:
            raise LostPlan("this file has another plan", where=path.name, found=plan.digest)
        return plan


def find_answer(folder: Path, answer: str) -> Why | None:
    """An answer of this id in a folder of kept answers, or in one of several in this folder."""
    for each in [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]:
        record = read_record(each, lambda record: id_of(record) == answer)
        if record is not None:
            return Why(answer, content_of(record), Plans(each / "plans"))
    return None


def _assumed(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """Sketches of the training's rows, by column."""
    said = []
    for name, facts in columns.items():
        kind = (
            f"{facts['words']} words"
            if "words" in facts
            else f"{facts['least']} to {facts['most']}"
        )
        missing = facts.get("missing", 0.0)
        said.append(f"{name}: {kind}" + (f", {missing:.1%} missing" if missing else ""))
    return "; ".join(said)
