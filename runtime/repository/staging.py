"""Where plans wait to be registered: copies that nobody changes, named by what they were made of.

A registered plan is a map of its file, so the file must stay what it is; what stands in a folder
that people copy into does not. So a plan is copied here, and a model of another kind is imported,
baked and saved here. The name is a digest of the model's content, its format and its layout's
promise: the same model is imported once, whoever asks for it, and processes that share this
directory share the plans in it.

A directory of our own goes with the process, or with the next one where that was killed. In one
that somebody else named, plans go that no living process uses, and none has for days.
"""

from __future__ import annotations

import os
import stat
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from tempfile import NamedTemporaryFile, gettempdir, mkdtemp

import oven
from objectstore.atomic import sweep
from objectstore.errors import Explained
from runtime.repository import formats
from runtime.repository.errors import RepositoryError
from runtime.repository.files import Folder, shown
from runtime.repository.listing import Model
from runtime.repository.staging_locks import Claim, claimed, deserted

_FORMAT = b"pretzel staging 1"
_SUFFIX = ".pretzel"
SPARE_SECONDS = 60.0
"""What nobody needs any more stays for so long: requests on their way may still ask for it."""


SHARED_SECONDS = 7 * 24 * 3600.0
"""In a directory that processes share, for so long: its owner may be started again."""
_TIDY_SECONDS = 3600.0
_PREFIX, _COPY = "pretzel-models-", ".copy-"
#: A copy that is not done after so long never will be.
_COPY_SECONDS = 24 * 3600.0


class Staging:
    """A directory of plans by digest."""

    def __init__(self, directory: str | Path | None = None) -> None:
        self._own = directory is None
        if directory is None:
            remove_deserted(Path(gettempdir()))
            self.directory, claim = _made()
        else:
            self.directory = Path(directory).absolute()
            self.directory.mkdir(parents=True, exist_ok=True)
            claim = Claim(self.directory)
        self._claims = [claim]  # the one that counts is known to who ends this, too
        self._spare: dict[str, float] = {}
        self._tidied = -_TIDY_SECONDS
        end = _remove if self._own else _leave
        self.close = weakref.finalize(self, end, self.directory, os.getpid(), self._claims)

    def use(self, path: Path) -> None:
        """Other processes must leave this plan alone."""
        self._claims[0].add(path.name)
        with suppress(FileNotFoundError):  # it was read now, which its time of change is not about
            found = path.stat()
            os.utime(path, ns=(time.time_ns(), found.st_mtime_ns))

    def bring(self, folder: Folder, model: Model, *, trust_pickle: bool, exact: bool) -> Path:
        """The file of the model's plan, made if it is not there."""
        where = shown(model.path)
        formats.check_trust(model.form, where, trust_pickle=trust_pickle)
        if model.form == formats.PLAN:
            return self._copied(folder, model)
        raw = folder.read(model.path)
        path = self._path(_digest(raw, model, exact=exact))
        self.use(path)
        if not path.exists():
            program = model.promise.program(model.form, raw, where)
            oven.bake(program, exact=exact).save(path, durable=False)
        return path

    def _copied(self, folder: Folder, model: Model) -> Path:
        digest = blake2b(_FORMAT, digest_size=20)
        with NamedTemporaryFile(dir=self.directory, prefix=_COPY, delete=False) as copy:
            try:
                for chunk in folder.chunks(model.path):
                    digest.update(chunk)
                    copy.write(chunk)
                copy.close()
                path = self._path(digest.hexdigest())
                self.use(path)
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
        """Remove what is not used, and has not been for a while."""
        names = {path.name for path in used}
        self._claims[0] = self._claims[0].only(names)
        if self._own:
            self._keep(names)
        elif time.monotonic() - self._tidied >= _TIDY_SECONDS:
            self._tidied = time.monotonic()
            self._tidy()

    def _keep(self, names: set[str]) -> None:
        now = time.monotonic()
        for path in self.directory.glob(f"*{_SUFFIX}"):
            if path.name in names:
                self._spare.pop(path.name, None)
            elif now - self._spare.setdefault(path.name, now) > SPARE_SECONDS:
                with suppress(OSError):
                    path.unlink()
                self._spare.pop(path.name, None)

    def _tidy(self) -> None:
        """Remove plans that nobody uses, and what processes left that were killed."""
        sweep(self.directory)
        names, now = claimed(self.directory), time.time()
        for path in self.directory.iterdir():
            copy = path.name.startswith(_COPY)
            if path.name in names or not (copy or path.suffix == _SUFFIX):
                continue
            with suppress(OSError):  # somebody else was faster, or it is not ours
                found = path.stat()
                unused = now - max(found.st_atime, found.st_mtime)
                if unused > (_COPY_SECONDS if copy else SHARED_SECONDS):
                    path.unlink()


def _made() -> tuple[Path, Claim]:
    """A new directory, and our claim on it."""
    while True:
        directory = Path(mkdtemp(prefix=_PREFIX)).absolute()
        with suppress(FileNotFoundError):  # taken for a deserted one, in its first instant
            return directory, Claim(directory)


def remove_deserted(place: Path) -> int:
    """Remove directories of processes that were killed; how many there were."""
    count = 0
    for directory in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = directory.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            with deserted(directory) as free:
                if free:
                    rmtree(directory, ignore_errors=True)
                    count += 1
    return count


def _digest(raw: bytes, model: Model, *, exact: bool) -> str:
    made = blake2b(_FORMAT, digest_size=20)
    made.update(repr((model.form, model.promise, exact)).encode())
    made.update(raw)
    return made.hexdigest()


def _remove(path: Path, process: int, held: list[Claim]) -> None:
    if process == os.getpid():
        rmtree(path, ignore_errors=True)
        held[0].close()


def _leave(path: Path, process: int, held: list[Claim]) -> None:  # noqa: ARG001 (as `_remove`)
    """What somebody else named is theirs to remove; what we say of it is ours."""
    held[0].close()
