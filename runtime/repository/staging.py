"""The staging directory: unchanging copies of plans, named by a digest of their source.

A registered plan maps its file into memory, so the file must not change, which files in the
repository do. So a plan is copied here, and a model of another format is imported, baked and saved
here. The name is a digest of the model's content, its format and its layout's contract: the same
model is imported once, and processes that share this directory share the plans in it.

A directory that we created is removed when the process ends, or by a later process if it was
killed. In a directory named by the user, plans are removed that no living process uses and that
were not used for days.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterable
from concurrent.futures import Executor
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from tempfile import NamedTemporaryFile, gettempdir, mkdtemp

import oven
from flour.language.graph_file import ENDING, save_graph
from objectstore import Archive, Explained, system
from objectstore.atomic import sweep
from runtime.repository import formats
from runtime.repository.errors import RepositoryError
from runtime.repository.files import Folder, shown
from runtime.repository.listing import FolderModel
from runtime.repository.staging_locks import Claim, claimed, deserted

_FORMAT = b"pretzel staging 1"
_SUFFIX = ".pretzel"
SPARE_SECONDS = 60.0
"""Unused plans are kept for this time, as current requests may still need them."""


SHARED_SECONDS = 7 * 24 * 3600.0
"""Unused plans are kept for this time in a shared directory: their user may be started again."""
_TIDY_SECONDS = 3600.0
_PREFIX, _COPY = "pretzel-models-", ".copy-"
#: An unfinished copy of this age is abandoned.
_COPY_SECONDS = 24 * 3600.0


class Staging:
    """A directory of plans by digest."""

    def __init__(self, directory: str | Path | None = None, *, trust_code: bool = False) -> None:
        self.trust_code = trust_code
        self._own = directory is None
        if directory is None:
            remove_deserted(Path(gettempdir()))
            self.directory, claim = _new_directory()
        else:
            self.directory = Path(directory).absolute()
            self.directory.mkdir(parents=True, exist_ok=True)
            claim = Claim(self.directory)
        self._claims = [claim]  # a list: shared with the finalizer, which closes the current claim
        self._spare: dict[str, float] = {}
        self._tidied = -_TIDY_SECONDS
        own = os.getpid() if self._own else None
        self.close = weakref.finalize(self, _release, self.directory, own, self._claims)

    def use(self, path: Path) -> None:
        """Claim this plan, so that other processes do not remove it."""
        self._claims[0].add(path.name)
        with suppress(FileNotFoundError):  # set the access time only
            status = path.stat()
            os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))

    def bring(self, folder: Folder, model: FolderModel, *, trust_pickle: bool, exact: bool) -> Path:
        """The file of the model's plan, made if it does not exist."""
        where = shown(model.path)
        if model.form == formats.PLAN:
            digest = blake2b(_FORMAT, digest_size=20)
            with NamedTemporaryFile(dir=self.directory, prefix=_COPY, delete=False) as copy:
                try:
                    for chunk in folder.chunks(model.path):
                        digest.update(chunk)
                        copy.write(chunk)
                    copy.close()
                    _check(Path(copy.name), where)
                    path = self._path(digest.hexdigest())
                    self.use(path)
                    Path(copy.name).replace(path)
                except BaseException:
                    Path(copy.name).unlink(missing_ok=True)
                    raise
            return path
        raw = folder.read(model.path)
        digest = blake2b(_FORMAT, digest_size=20)
        digest.update(repr((model.form, model.promise, exact)).encode())
        digest.update(raw)
        path = self._path(digest.hexdigest())
        if model.form == formats.GRAPH:  # its models are looked up where it is registered
            path = path.with_suffix(ENDING)
            save_graph(formats.program(model.form, raw, where), path, durable=False)
            return path
        self.use(path)
        if not path.exists():
            promised = model.promise.program
            program = promised(model.form, raw, where, trust_pickle=trust_pickle)
            oven.bake(program, exact=exact).save(path, durable=False)
        return path

    def _path(self, digest: str) -> Path:
        return self.directory / f"{digest}{_SUFFIX}"

    def load(
        self, path: Path, model: FolderModel, *, background: Executor | None = None
    ) -> oven.Plan:
        """Load a staged plan; a damaged file is deleted, and made again the next time."""
        try:
            return oven.load(path, background=background, trust_code=self.trust_code)
        except Explained as problem:
            path.unlink(missing_ok=True)
            raise _refused(problem, shown(model.path)) from problem

    def keep(self, used: Iterable[Path]) -> None:
        """Remove plans that have not been used for a while."""
        names = {path.name for path in used}
        self._claims[0] = self._claims[0].only(names)
        if self._own:
            now = time.monotonic()
            for path in self.directory.glob(f"*{_SUFFIX}"):
                if path.name in names:
                    self._spare.pop(path.name, None)
                elif now - self._spare.setdefault(path.name, now) > SPARE_SECONDS:
                    with suppress(OSError):
                        path.unlink()
                    self._spare.pop(path.name, None)
        elif time.monotonic() - self._tidied >= _TIDY_SECONDS:
            self._tidied = time.monotonic()
            self._drop_abandoned()

    def _drop_abandoned(self) -> None:
        """Remove unused plans and the temporary files of killed processes."""
        sweep(self.directory)
        names, now = claimed(self.directory), time.time()
        for path in self.directory.iterdir():
            copy = path.name.startswith(_COPY)
            if path.name in names or not (copy or path.suffix == _SUFFIX):
                continue
            with suppress(OSError):  # another process was faster, or the file is not ours
                status = path.stat()
                unused = now - max(status.st_atime, status.st_mtime)
                if unused > (_COPY_SECONDS if copy else SHARED_SECONDS):
                    path.unlink()


def _check(copy: Path, where: str) -> None:
    """Refuse a damaged plan before it replaces a good one: every byte of it is read."""
    try:
        with Archive.open(copy) as archive:
            archive.verify()
    except Explained as problem:
        raise _refused(problem, where) from problem


def _refused(problem: Explained, where: str) -> RepositoryError:
    return RepositoryError(problem.what, where=where, found=problem.found, hint=problem.hint)


def _new_directory() -> tuple[Path, Claim]:
    """A new directory, and our claim on it."""
    while True:
        directory = Path(mkdtemp(prefix=_PREFIX)).absolute()
        with suppress(FileNotFoundError):  # removed by another process before it was claimed
            return directory, Claim(directory)


def remove_deserted(parent: Path) -> int:
    """Remove directories of killed processes; returns their number."""
    count = 0
    for directory in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            status = directory.lstat()
            if not system.is_own_folder(status):
                continue
            with deserted(directory) as free:
                if free:
                    rmtree(directory, ignore_errors=True)
                    count += 1
    return count


def _release(path: Path, own: int | None, held: list[Claim]) -> None:
    """Release our claim, and remove the directory where it is this process' own."""
    if own == os.getpid():
        rmtree(path, ignore_errors=True)
    if own in {None, os.getpid()}:
        held[0].close()
