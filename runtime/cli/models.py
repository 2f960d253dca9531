"""Resolves a command's MODEL: a file of a supported format, or `DIR/name[@version]`."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import oven
from flour.pickles import parted
from oven import Plan
from runtime.cli.errors import NotFound
from runtime.cli.output import concealing
from runtime.repository import formats, sample
from runtime.repository.embedding_folder import PackedFolder, is_embedding
from runtime.repository.files import Folder, natural, shown
from runtime.repository.io_contract import Plain
from runtime.repository.layout_own import ROWS
from runtime.repository.listing import FIRST_VERSION, FolderModel
from runtime.repository.mlflow_folder import is_mlflow, model_file
from runtime.repository.notes_file import of_file
from runtime.repository.staging import Staging
from runtime.repository.walk import scan
from runtime.service.private import redacted, spelt


@dataclass(frozen=True, slots=True)
class OpenedModel:
    """A model with its plan."""

    model: FolderModel
    folder: Folder
    plan: Plan
    private: frozenset[str] = frozenset()

    def verified_rows(self) -> int:
        """Verify the rows beside the model: the number of answers; Unfaithful if one differs."""
        rows = self.model.rows
        where = shown(rows or self.model.path)
        data = None if rows is None else self.folder.read(rows, sample.MAX_BYTES)
        return sample.check(self.plan, data, where)


def find(reference: str) -> tuple[Folder, FolderModel]:
    """The model of a reference, unread."""
    path, part = parted(Path(reference))
    if path.is_file():
        return _file(path, part)
    if is_mlflow(path):
        folder, model = _file(model_file(path))
        return folder, replace(model, name=path.absolute().name)
    if is_embedding(path):
        whole = path.absolute()
        form = formats.EMBEDDING
        return PackedFolder(whole.parent), FolderModel(
            whole.name, FIRST_VERSION, "file", whole, form
        )
    folder = Folder(path.parent)
    if not path.parent.is_dir():
        raise NotFound("there is no such file or folder", where=shown(reference))
    name, _, version = path.name.partition("@")
    listing = scan(folder)
    matching = [one for one in listing.models if one.name == name and version in ("", one.version)]
    if not matching:
        raise _unknown(reference, folder, name)
    model = max(matching, key=lambda one: natural(one.version))
    # All versions of a name hide the columns that one of them hides.
    named: list[Any] = [one.notes.get("private", ()) for one in listing.models if one.name == name]
    private = sorted({str(column) for columns in named for column in columns})
    return folder, replace(model, notes={**model.notes, "private": private}) if private else model


def _file(path: Path, part: str = "") -> tuple[Folder, FolderModel]:
    folder = Folder(path.absolute().parent)
    form = formats.of(folder, folder.root / path.name)
    stem = formats.stem(path)
    name, _, version = stem.partition("@")
    beside = [folder.root / ROWS, folder.root / f"{stem}.{ROWS}"]
    rows = next((each for each in beside if each.is_file()), None)
    where, promise = folder.root / path.name, Plain(part=part)
    model = FolderModel(name, version or FIRST_VERSION, "file", where, form, promise, rows)
    return folder, replace(model, notes=of_file(model.path))


def _unknown(reference: str, folder: Folder, name: str) -> NotFound:
    path = folder.root / name
    if not path.is_dir() and (path.exists() or path.is_symlink()):
        what = "this is no regular file" if path.exists() else "this link leads to no file"
        return NotFound(what, where=shown(reference))
    listing = scan(folder)
    for trouble in listing.troubles:
        if trouble.name == name:
            return NotFound(
                "this model cannot be served", where=trouble.where, found=trouble.reason
            )
    names = ", ".join(sorted({one.name for one in listing.models})[:12])
    return NotFound(
        "this is a folder without a model" if path.is_dir() else "there is no such model",
        where=shown(reference),
        found=f"models in {shown(folder.root)}: {names or 'none'}",
        hint="a MODEL is a file, or FOLDER/NAME[@VERSION]",
    )


def open_model(
    reference: str,
    *,
    trust_pickle: bool,
    allow_python: Sequence[str] = (),
    background: Executor | None = None,
) -> OpenedModel:
    """A model with its plan, imported unless it is a plan already."""
    folder, model = find(reference)
    private: Any = model.notes.get("private", ())
    hide(private)
    formats.check_whole(folder, model.path, model.form)
    if model.form == formats.PLAN and model.layout == "file":
        plan = oven.load(model.path, background=background)
    elif model.form == formats.GRAPH:
        plan, hidden = _linked(folder, model, trust_pickle, allow_python)
        private = hidden.union(private)
    else:
        with tempfile.TemporaryDirectory(prefix="pretzel-") as directory:
            staging = Staging(directory)
            path = staging.bring(folder, model, trust_pickle=trust_pickle, exact=False)
            plan = staging.load(path, model, background=background)
    hide(private, plan)
    return OpenedModel(model, folder, plan, spelt(private, plan.inputs))


def open_asked(options: Namespace, background: Executor | None = None) -> OpenedModel:
    """The model of a command's options."""
    allowed = {"trust_pickle": options.trust_pickle, "allow_python": options.allow_python}
    return open_model(options.model, background=background, **allowed)


def hide(private: Collection[str], plan: Plan | None = None) -> None:
    """Let errors of this command quote no values, if there are private columns."""
    inputs, outputs = ({}, ()) if plan is None else (plan.inputs, plan.outputs)
    conceal = partial(redacted, inputs=inputs, names=(*private, *outputs))
    concealing.set(conceal if private else None)


def _linked(
    folder: Folder,
    model: FolderModel,
    trust_pickle: bool,  # noqa: FBT001 (as it was given to the command)
    allow_python: Sequence[str],
) -> tuple[Plan, frozenset[str]]:
    """The plan of a graph, with the models of its folder, and its private columns."""
    from runtime.bulk.graphs import in_folder

    version = in_folder(
        folder.root, model.address, trust_pickle=trust_pickle, allow_python=allow_python
    )
    plan = version.plan
    assert plan is not None, "it was opened"
    return plan.wait(), version.private
