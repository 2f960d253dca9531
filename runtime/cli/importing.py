"""`pretzel import`: a trained model becomes a plan, after its answers have been compared."""

from __future__ import annotations

import argparse
import hashlib
import json
import warnings
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flour.core.errors import BoosterWarning, OtherVersionWarning
from flour.sklearn.versions import differs
from runtime.cli import common
from runtime.cli.errors import ArgumentError, CommandError, Exit
from runtime.cli.output import CommandOutput, TaskProgress

if TYPE_CHECKING:
    from oven import Plan
    from runtime.cli.comparing import FileComparison
    from runtime.repository.files import Folder
    from runtime.repository.listing import FolderModel

DESCRIPTION = """\
Import a model (ONNX, LightGBM, XGBoost, or a pickled scikit-learn estimator) and save it as a plan:
data without code, which loads in a millisecond and needs none of those libraries.

With --verify, every row of a file is answered by the plan and by the original in its own library.
One answer that differs ends the import, and nothing is written. Some of the rows, with the
original's answers, are kept beside the plan and checked again wherever a server loads it."""
EXAMPLES = """\
  pretzel import booster.ubj --into models
  pretzel import model.joblib --trust-pickle --verify rows.csv --into models --name fraud
  pretzel import model.onnx --output fraud.pretzel
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("model", metavar="FILE", help="a model's file")
    common.trust(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--into", metavar="DIR", help="save it in this folder of models")
    where.add_argument("--output", metavar="FILE", help="save it as this file")
    parser.add_argument("--name", help="of the endpoint; by default the file's")
    parser.add_argument("--version", help="of the endpoint; by default the next number")
    parser.add_argument("--force", action="store_true", help="replace a model that is there")
    parser.add_argument(
        "--exact", action="store_true", help="keep every bit, sum in the model's order"
    )
    parser.add_argument(
        "--on-missing",
        choices=("refuse", "answer"),
        default="refuse",
        help="NaN or infinity where the original refuses them: an error, or computed with",
    )
    parser.add_argument(
        "--covers",
        action="store_true",
        help="keep how much of the training data reached each node of trees, for `explain --rows`",
    )
    parser.add_argument(
        "--leaves",
        action="store_true",
        help="answer with the leaf that each tree ends in as well (LightGBM, XGBoost)",
    )
    parser.add_argument(
        "--log-probabilities",
        action="store_true",
        help="answer with log_probabilities as well, as predict_log_proba computes them",
    )
    common.cpu(parser, "", "put machine code for these into the plan, as `warm` does into packs")
    parser.add_argument(
        "--verify", metavar="ROWS", help="rows for which plan and original must answer alike"
    )
    parser.add_argument(
        "--training",
        metavar="ROWS",
        help="rows of the training, of which sketches go into the plan (those of --verify)",
    )
    parser.add_argument(
        "--sample",
        metavar="ROWS",
        help="rows that say what the columns are, where the model does not: of a pickle or skops",
    )
    parser.add_argument(
        "--decimals",
        type=int,
        metavar="N",
        help="round scores and probabilities, so that less is told of the model",
    )
    parser.add_argument(
        "--private", metavar="COLUMNS", default="", help="columns whose values are not to be seen"
    )
    common.tolerance(parser)
    common.rows(parser)


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Import, verify, save."""
    from oven.plans.ahead import level_names
    from runtime.cli.models import find, hide
    from runtime.repository.notes_file import of_file

    folder, model = find(options.model)
    target = _target(options, model)
    noted: Any = of_file(target).get("private", ())
    options.private = sorted({*noted, *map(str.strip, options.private.split(","))} - {""})
    hide(options.private)
    levels = level_names(options.cpu.split(","), "--cpu") if options.cpu else []
    with TaskProgress(f"import {model.name}", hidden=out.as_json) as progress:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", BoosterWarning)
            warnings.simplefilter("ignore", OtherVersionWarning)  # the result says it
            plan, compared, training, steps = _imported(options, folder, model, progress)
        progress.step("saving")
        _save(plan, target, compared, _private(options, plan), code=levels, training=training)
    written = training.get("libraries", {})
    facts: dict[str, Any] = {
        "file": str(target),
        "format": model.form,
        "caveat": differs(written.get("sklearn"))
        or (differs(written.get("xgboost"), "xgboost") if model.form == "sklearn" else ""),
        "steps": steps,
        "outputs": {name: str(kind) for name, kind in plan.outputs.items()},
        "code": levels,
        "verified_rows": compared.rows if compared else 0,
        "verified_outputs": list(compared.outputs) if compared else [],
        "training": {name: each for name, each in training.items() if name != "reference"},
    }
    verified, caveat = "", facts["caveat"]
    if facts["verified_rows"]:
        names = ", ".join(facts["verified_outputs"])
        before = "before"
        if caveat:  # of XGBoost, which reads its former models itself
            before = "the installed libraries do, one of which is not what trained the model"
        verified = f"verified: {facts['verified_rows']:,} rows answer as {before} ({names})\n"
    how = ": it was read as data, and answers as that version does" * ("scikit-learn" in caveat)
    said = f"{caveat}{how}\n" if caveat else ""
    kinds = (each["kind"].rpartition(".")[2] for each in steps[:8])
    said += f"{', '.join(kinds)}{', ...' * (len(steps) > 8)}\n" if steps else ""
    out.result(facts, f"{said}{verified}saved {facts['file']}")
    for each in told:
        out.note(str(each.message))
    if compared is not None and options.private:
        out.note("no rows are kept beside the plan, as they would tell private values")
    if compared is None:
        out.note("not verified; --verify ROWS holds it against the original")
    return Exit.OK


def _imported(
    options: argparse.Namespace, folder: Folder, model: FolderModel, progress: TaskProgress
) -> tuple[Plan, FileComparison | None, dict[str, Any], list[dict[str, Any]]]:
    import oven
    from runtime.cli.models import hide
    from runtime.repository import formats
    from runtime.repository.formats import written_by

    if model.form == formats.PLAN:
        raise CommandError(
            "this file is a plan already",
            where=str(model.path),
            hint="copy it into the folder of models; plans need no import",
        )
    progress.step("reading")
    raw = folder.read(model.path)
    where, trust, part = str(model.path), options.trust_pickle, model.promise.part
    found = formats.estimator(model.form, raw, where, part)
    steps = formats.contents(model.form, raw, found) if found is not None else []
    source: Any = None
    if options.verify:  # which is refused before anything is baked
        source = formats.original(model.form, raw, where, part, trust_pickle=trust)
    program = formats.program(
        *(model.form, raw, where),
        covers=options.covers,
        leaves=options.leaves,
        log_probabilities=options.log_probabilities,
        trust_pickle=trust,
        found=found,
        sample=_sample(options),
        part=part,
    )
    progress.step("baking")
    plan = oven.bake(program, exact=options.exact, on_missing=options.on_missing)
    hide(_private(options, plan), plan)
    compared = _compared(options, plan, model.form, source, progress) if options.verify else None
    if options.decimals is not None:
        plan = oven.bake(
            program.rounded(options.decimals), exact=options.exact, on_missing=options.on_missing
        )
        compared = compared and compared.rounded(options.decimals)
    progress.step("looking at the rows of the training")
    return plan, compared, _training(options, plan, written_by(model.form, raw)), steps


def _sample(options: argparse.Namespace) -> object:
    from runtime.cli import reading

    path = options.sample
    return path and reading.sample(path, reading.options_of(options, path))


def _training(options: argparse.Namespace, plan: Plan, libraries: dict[str, str]) -> dict[str, Any]:
    """Libraries, and what the rows of a file were like, whose digest is kept."""
    from runtime.bulk.files import parts_of
    from runtime.cli import reading
    from runtime.service.private import in_tables
    from runtime.watch.rows import table_of
    from runtime.watch.training import training_of_tables

    known: dict[str, Any] = {"libraries": libraries} if libraries else {}
    path = options.training or options.verify
    if not path or path == "-":
        return known
    blocks = reading.blocks(path, plan.inputs, reading.options_of(options, path))
    tables = (table_of(block.data, plan.inputs) for block in blocks)
    first = next(tables, {})
    if not first and not options.training:
        return known  # documents have no columns
    private = in_tables(_private(options, plan), plan.inputs)
    found = training_of_tables(chain([first], tables), private=private)
    digest = hashlib.sha256()
    for part in parts_of(path):
        one = hashlib.sha256()
        with part.path.open("rb") as file:
            while block := file.read(1 << 18):
                one.update(block)
        digest.update(one.digest())
    return known | found | {"data": f"{Path(path).name}: sha256 {digest.hexdigest()}"}


def _compared(
    options: argparse.Namespace, plan: Plan, form: str, source: object, progress: TaskProgress
) -> FileComparison:
    from flour.sklearn.originals import original
    from runtime.cli import reading
    from runtime.cli.comparing import compare_file

    path, how = options.verify, reading.options_of(options, options.verify)
    total = Path(path).stat().st_size if Path(path).is_file() else 0
    with TaskProgress("verify", total, hidden=not progress.shown) as inner:
        return compare_file(plan, original(form, source), path, how, options.tolerance, inner.at)


def _private(options: argparse.Namespace, plan: Plan) -> list[str]:
    from runtime.service.private import private_columns

    return sorted(private_columns({"private": options.private}, plan.inputs, "--private"))


def _target(options: argparse.Namespace, model: FolderModel) -> Path:
    """The plan's file; an existing one is replaced only on request."""
    from runtime.repository.layout_own import next_version
    from runtime.repository.listing import wrong_name

    name = options.name or model.name
    wrong = wrong_name(name, options.version or "1")
    if wrong:
        raise ArgumentError(
            "this name cannot be served", found=wrong, hint="choose another one with --name"
        )
    if options.into:
        folder = Path(options.into) / name
        target = folder / (options.version or str(next_version(folder))) / f"{name}.pretzel"
    else:
        target = Path(options.output or f"{name}.pretzel")
    if target.exists() and not options.force:
        raise CommandError(
            "there is already a model of this name and version",
            where=str(target),
            hint="--force replaces it",
        )
    return target


def _save(
    plan: Plan, target: Path, compared: FileComparison | None, private: list[str], **how: Any
) -> None:
    """Save the plan after its rows, so that a server that sees the plan also sees the rows."""
    from objectstore import atomic
    from runtime.repository.layout_own import ROWS
    from runtime.repository.notes_file import NAME

    target.parent.mkdir(parents=True, exist_ok=True)
    own_folder = target.parent.name != "" and target.stem == target.parent.parent.name
    rows = target.with_name(ROWS if own_folder else f"{target.stem}.{ROWS}")
    if compared is not None and not private:  # whose values these rows would tell
        atomic.write_file(rows, [("\n".join(compared.kept) + "\n").encode()], durable=True)
    else:
        rows.unlink(missing_ok=True)  # they are another model's
    if private:
        notes = target.with_name(NAME if own_folder else f"{target.stem}.{NAME}")
        atomic.write_file(notes, [f"private = {json.dumps(private)}\n".encode()], durable=True)
    plan.save(target, **how)
