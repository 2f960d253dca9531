"""What a command's MODEL means: a file of any kind that is known, or `DIR/name[@version]`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import oven
from oven import Plan
from runtime.cli.errors import NotFound
from runtime.repository import formats, sample
from runtime.repository.files import Folder, natural, shown
from runtime.repository.layout_own import ROWS
from runtime.repository.listing import FIRST_VERSION, Model
from runtime.repository.staging import Staging
from runtime.repository.walk import scan


@dataclass(frozen=True, slots=True)
class Opened:
    """A model with its plan."""

    model: Model
    folder: Folder
    plan: Plan

    def verified_rows(self) -> int:
        """How many answers that stand beside the model it gives; Unfaithful if one differs."""
        rows = self.model.rows
        where = shown(rows or self.model.path)
        data = None if rows is None else self.folder.read(rows, sample.MAX_BYTES)
        return sample.check(self.plan, data, where)


def find(reference: str) -> tuple[Folder, Model]:
    """The model of a reference, unread."""
    path = Path(reference)
    if path.is_file():
        return _file(path)
    folder = Folder(path.parent)
    if not path.parent.is_dir():
        raise NotFound("there is no such file or folder", where=shown(reference))
    name, _, version = path.name.partition("@")
    found = scan(folder)
    known = [one for one in found.models if one.name == name and version in ("", one.version)]
    if not known:
        raise _unknown(reference, folder, name)
    return folder, max(known, key=lambda one: natural(one.version))


def _file(path: Path) -> tuple[Folder, Model]:
    folder = Folder(path.absolute().parent)
    form = formats.of(folder, folder.root / path.name)
    name, _, version = path.stem.partition("@")
    beside = [folder.root / ROWS, folder.root / f"{path.stem}.{ROWS}"]
    rows = next((each for each in beside if each.is_file()), None)
    return folder, Model(
        name, version or FIRST_VERSION, "file", folder.root / path.name, form, rows=rows
    )


def _unknown(reference: str, folder: Folder, name: str) -> NotFound:
    found = scan(folder)
    for trouble in found.troubles:
        if trouble.name == name:
            return NotFound(
                "this model cannot be served", where=trouble.where, found=trouble.reason
            )
    names = ", ".join(sorted({one.name for one in found.models})[:12])
    return NotFound(
        "there is no such model",
        where=shown(reference),
        found=f"models in {shown(folder.root)}: {names or 'none'}",
        hint="a MODEL is a file, or FOLDER/NAME[@VERSION]",
    )


def open_model(reference: str, *, trust_pickle: bool, exact: bool = False) -> Opened:
    """A model with its plan, imported if it is no plan yet."""
    folder, model = find(reference)
    if model.form == formats.PLAN and model.layout == "file":
        return Opened(model, folder, oven.load(model.path))
    with tempfile.TemporaryDirectory(prefix="pretzel-") as place:
        staging = Staging(place)
        path = staging.bring(folder, model, trust_pickle=trust_pickle, exact=exact)
        return Opened(model, folder, staging.load(path, model))
