"""`pretzel parity`: whether lost answers of a model can be reconstructed, and the model for it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flour.core.pages import page
from runtime.cli import common
from runtime.cli.errors import CommandError, Exit
from runtime.cli.output import CommandOutput

if TYPE_CHECKING:
    from oven import Plan
    from runtime.cluster.parity import ParityModel

DESCRIPTION = """\
A parity replica answers an encoded group of k queries; if one of their answers is lost, it is what
the parity answer has beyond the others. `check` says whether a model's answers can be reconstructed
so: exactly, by a model that is trained for it, or not at all. `train` trains that model on rows
like those in service, and says how often reconstructed answers have the right label."""
EXAMPLES = """\
  pretzel parity check models/fraud
  pretzel parity train models/fraud rows.csv --labels fraud --into parity.pretzel
  pretzel parity train models/fraud rows.parquet -k 3 --encoder sum --into parity.pretzel
"""
#: The part of the rows that neither model learns from.
HELD = 0.3
_LEAST = 50
#: Groups that it learns from: of few rows there are no more that differ much.
_GROUPS, _GROUPS_A_ROW, _LEAST_GROUPS = 12_000, 40, 10


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("action", choices=("check", "train"), help="what to do")
    common.model(parser)
    parser.add_argument("rows", metavar="ROWS", nargs="?", help="with train: a file of rows")
    common.rows(parser)
    parser.add_argument(
        "--labels",
        metavar="COLUMN",
        help="the true labels among the rows; by default the model's own answers are held as true",
    )
    parser.add_argument("-k", type=common.positive, default=2, help="queries of a group (2)")
    parser.add_argument(
        "--encoder",
        choices=("concatenation", "sum"),
        default="concatenation",
        help="how a group becomes one query (concatenation)",
    )
    parser.add_argument("--into", metavar="FILE", help="with train: where the plan is saved")


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Execute the command."""
    from runtime.cli.models import open_asked
    from runtime.cluster.parity import recoverable

    plan = open_asked(options).plan.wait()
    found = recoverable(plan.flow)
    if options.action == "check":
        out.result({"verdict": found.verdict, "reason": found.reason}, str(found))
        return Exit.OK
    if found.verdict != "approximate":
        raise CommandError(
            "no parity model is trained for this one",
            where=options.model,
            found=str(found),
            hint=page("contributing/parity")
            if found.verdict == "exact"
            else "ask another replica instead",
        )
    if options.rows is None or options.into is None or options.k < 2:
        raise CommandError(
            "this needs rows, a place for the plan, and groups of two at least",
            hint="pretzel parity train MODEL ROWS --into FILE",
        )
    if not Path(options.into).absolute().parent.is_dir():
        raise CommandError("this place for the plan is in no directory", where=options.into)
    return _train(plan, options, out)


def _train(plan: Plan, options: argparse.Namespace, out: CommandOutput) -> int:
    from sklearn.neural_network import MLPRegressor

    import oven
    from runtime.cluster.parity import train

    data = _read(plan, options)
    first = int(len(data.rows) * (1 - HELD))
    if _LEAST_GROUPS * options.k > first:
        raise CommandError(
            "there are too few rows for groups of so many",
            found=f"{first:,} rows to train on, groups of {options.k}",
            hint=f"{_LEAST_GROUPS} groups' worth of rows at least",
        )
    hidden = (256, 128)
    estimator = MLPRegressor(hidden_layer_sizes=hidden, max_iter=200, random_state=0)
    found = train(
        lambda rows: np.asarray(plan.run(rows)["probabilities"], np.float64),
        data.rows[:first],
        (data.rows[first:], data.labels[first:]),
        estimator,
        group=options.k,
        encoder=options.encoder,
        groups=min(_GROUPS, _GROUPS_A_ROW * first),
    )
    made = oven.bake(found.flow())
    made.save(options.into, training={"parity_of": plan.digest})
    out.result(
        _told(found) | {"rows": len(data.rows), "file": options.into},
        f"right labels: {found.accuracy:.1%} of answers, {found.degraded:.1%} of reconstructed "
        f"ones, {found.default:.1%} with the most frequent label alone\nsaved {options.into}",
    )
    return Exit.OK


def _told(found: ParityModel) -> dict[str, Any]:
    figures = {"accuracy": found.accuracy, "degraded": found.degraded, "default": found.default}
    return {"encoder": found.encoder, "k": found.group, **figures}


@dataclass(frozen=True, slots=True)
class _Data:
    """Rows in random order, and the column of probabilities that is right for each."""

    rows: NDArray[np.float64]
    labels: NDArray[np.int64]


def _read(plan: Plan, options: argparse.Namespace) -> _Data:
    """The rows of the file, with their labels by the order of the model's probabilities."""
    from runtime.cli import reading

    keep = (options.labels,) if options.labels else ()
    how = replace(reading.options_of(options, options.rows), keep=keep)
    rows, answered, chosen, told = [], [], [], list[str]()
    for block in reading.blocks(options.rows, plan.inputs, how):
        answers = plan.run(block.data)
        if "probabilities" not in answers or "label" not in answers:
            raise CommandError(
                "only models with probabilities have parity models", where=options.model
            )
        (data,) = block.data.values() if isinstance(block.data, dict) else (block.data,)
        rows.append(np.asarray(data, np.float64))
        answered.append(np.asarray(answers["probabilities"]).argmax(axis=1))
        chosen += [str(label) for label in answers["label"]]
        told += [str(label) for label in block.kept.get(options.labels, ())]
    every = np.concatenate(rows) if rows else np.empty((0, 0))
    if len(every) < _LEAST:
        raise CommandError(
            "these are too few rows to train on", where=options.rows, found=f"{len(every)} rows"
        )
    columns = np.concatenate(answered)
    if told:
        places = dict(zip(chosen, columns.tolist(), strict=True))
        unknown = sorted({label for label in told if label not in places})
        if unknown:
            raise CommandError(
                "the model answers none of these rows with this label",
                where=f"{options.rows}, column {options.labels!r}",
                found=unknown[0][:80],
                hint="its labels are " + ", ".join(sorted(places)[:20]),
            )
        columns = np.array([places[label] for label in told])
    order = np.random.default_rng(0).permutation(len(every))
    return _Data(every[order], columns[order])
