"""Where plans wait to be registered: copies that nobody changes, named by what they were made of.

A registered plan is a map of its file, so the file must stay what it is; what stands in a folder
that people copy into does not. So a plan is copied here, and a model of another kind is imported,
baked and saved here. The name is a digest of the model's content, its format and its layout's
promise: the same model is imported once, whoever asks for it, and processes that share this
directory share the plans in it.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from tempfile import NamedTemporaryFile, mkdtemp

import oven
from objectstore.errors import Explained
from runtime.repository import formats
from runtime.repository.errors import RepositoryError
from runtime.repository.files import Folder, shown
from runtime.repository.found import Model

_FORMAT = b"pretzel staging 1"
_SUFFIX = ".pretzel"
SPARE_SECONDS = 60.0
"""What nobody needs any more stays for so long: requests on their way may still ask for it."""


class Staging:
    """A directory of plans by digest."""

    def __init__(self, directory: str | Path | None = None) -> None:
        self._own = directory is None
        self.directory = Path(directory or mkdtemp(prefix="pretzel-models-")).absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._spare: dict[str, float] = {}
        sweep = _remove if self._own else _leave
        self.close = weakref.finalize(self, sweep, self.directory, os.getpid())

    def bring(self, folder: Folder, model: Model, *, trust_pickle: bool, exact: bool) -> Path:
        """The file of the model's plan, made if it is not there."""
        where = shown(model.path)
        formats.check_trust(model.form, where, trust_pickle=trust_pickle)
        if model.form == formats.PLAN:
            return self._copied(folder, model)
        raw = folder.read(model.path)
        path = self._path(_digest(raw, model, exact=exact))
        if not path.exists():
            program = model.promise.program(model.form, raw, where)
            oven.bake(program, exact=exact).save(path, durable=False)
        return path

    def _copied(self, folder: Folder, model: Model) -> Path:
        digest = blake2b(_FORMAT, digest_size=20)
        with NamedTemporaryFile(dir=self.directory, prefix=".", delete=False) as copy:
            try:
                for chunk in folder.chunks(model.path):
                    digest.update(chunk)
                    copy.write(chunk)
                copy.close()
                path = self._path(digest.hexdigest())
                Path(copy.name).replace(path)
            except BaseException:
                Path(copy.name).unlink(missing_ok=True)
                raise
        return path

    def _path(self, digest: str) -> Path:
        return self.directory / f"{digest}{_SUFFIX}"

    def load(self, path: Path, model: Model) -> oven.Plan:
        """The plan in a file of ours; one that is damaged is made again the next time."""
        try:
            return oven.load(path)
        except Explained as problem:
            path.unlink(missing_ok=True)
            raise RepositoryError(
                problem.what, where=shown(model.path), found=problem.found, hint=problem.hint
            ) from problem

    def keep(self, used: Iterable[Path]) -> None:
        """Remove what is not used, and has not been for a while; only in a directory of ours."""
        if not self._own:
            return
        names, now = {path.name for path in used}, time.monotonic()
        for path in self.directory.glob(f"*{_SUFFIX}"):
            if path.name in names:
                self._spare.pop(path.name, None)
            elif now - self._spare.setdefault(path.name, now) > SPARE_SECONDS:
                with suppress(OSError):
                    path.unlink()
                self._spare.pop(path.name, None)


def _digest(raw: bytes, model: Model, *, exact: bool) -> str:
    made = blake2b(_FORMAT, digest_size=20)
    made.update(repr((model.form, model.promise, exact)).encode())
    made.update(raw)
    return made.hexdigest()


def _remove(path: Path, process: int) -> None:
    if process == os.getpid():
        rmtree(path, ignore_errors=True)


def _leave(path: Path, process: int) -> None:
    """What somebody else named is theirs to remove."""
