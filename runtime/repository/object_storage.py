"""Folders on object storage (`s3://`, `gs://`, `file://`, ...), by way of fsspec.

`RemoteFolder` keeps a copy of a folder on this machine, which is then served like any other folder:
a look at the folder lists the objects and fetches those that are new or have changed. `RemotePlans`
passes plans on to machines that share no directory: one process puts each plan there under its
digest, and each machine fetches it once.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from tempfile import mkstemp
from typing import Any

from objectstore.atomic import write_file
from runtime.repeated import Repeated
from runtime.repository.errors import NoFolder, RepositoryError
from runtime.repository.files import MAX_BYTES, MAX_ENTRIES, Folder, is_ignored
from runtime.repository.staging import Staging

log = logging.getLogger("pretzel.repository")

#: What file systems call the things that change when an object does.
_MARKS = {"size", "etag", "md5hash", "content-md5", "content_md5", "crc32c", "checksum", "digest"}
_MARKS |= {"generation", "versionid", "version_id", "mtime", "updated", "created"}
_MARKS |= {"last-modified", "last_modified", "lastmodified"}
_SIZE = frozenset({"size"})
_KNOWN = ".objects.json"
_THREADS = 8
_SECRET = re.compile(r"(?<=//)[^/@]*@")


def is_url(folder: str | os.PathLike[str]) -> bool:
    """True if this names a folder of a file system by its protocol, and no path."""
    return isinstance(folder, str) and "://" in folder


def folder_of(path: str | Path, staging: Path, *, max_bytes: int = MAX_BYTES) -> Folder:
    """The folder at a path, or the copy of one at a URL, which is kept in the staging directory."""
    if not is_url(path):
        return Folder(path, max_bytes=max_bytes)
    name = blake2b(str(path).encode(), digest_size=8).hexdigest()
    return RemoteFolder(str(path), staging / f"folder-{name}", max_bytes=max_bytes)


class RemoteFolder(Folder):
    """A folder on object storage; what is read is its copy on this machine."""

    def __init__(self, url: str, copy: Path, *, max_bytes: int = MAX_BYTES) -> None:
        """Use a copy that is there from before, or begin one; nothing is fetched yet."""
        copy.mkdir(parents=True, exist_ok=True)
        super().__init__(copy, max_bytes=max_bytes)
        self._remote = _Remote(url)
        self._marks: dict[str, str] = {}
        self._failures = Repeated()
        with suppress(OSError, ValueError):
            self._marks = json.loads((copy / _KNOWN).read_bytes())

    def check(self, *, gentle: bool = False) -> None:
        """Bring the copy up to date, and start a walk of it.

        An object that cannot be fetched stays as it was, and is tried again at the next look.
        """
        self._update(self._remote.objects())
        super().check(gentle=gentle)

    def _update(self, there: Mapping[str, tuple[str, int]]) -> None:
        for name in self._marks.keys() - there.keys():
            del self._marks[name]
        changed = [name for name, (mark, _) in there.items() if self._marks.get(name) != mark]
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="pretzel-fetches") as pool:
            fetched = pool.map(lambda name: self._fetch(name, there[name][1]), changed)
            for name, done in zip(changed, fetched, strict=True):
                if done:
                    self._marks[name] = there[name][0]
        copies = (each for each in self.root.rglob("*") if each.is_file() and each.name != _KNOWN)
        gone = [path for path in copies if str(path.relative_to(self.root)) not in there]
        for path in gone:
            path.unlink(missing_ok=True)
            for above in path.parents:
                if above == self.root or any(above.iterdir()):
                    break
                above.rmdir()
        if changed or gone:
            text = json.dumps(self._marks, sort_keys=True)
            write_file(self.root / _KNOWN, [text.encode()], durable=False)

    def _fetch(self, name: str, size: int) -> bool:
        path = self.root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if size > self.max_bytes:  # an empty one of this size, which is refused for it
                with path.open("wb") as file:
                    file.truncate(size)
            else:
                self._remote.fetch(name, path)
        # Storage has errors of its own kinds; all other objects are served.
        except Exception as problem:  # noqa: BLE001
            if self._failures.is_due(name):
                log.warning("%s/%s cannot be fetched: %s", self._remote.shown, name, problem)
            return False
        self._failures.is_over(name)
        return True


class RemotePlans:
    """Plans by digest on object storage, and those of this machine in a directory."""

    def __init__(self, url: str, directory: Path) -> None:
        """Keep plans of this machine in a directory, which its processes share."""
        self._remote, self._staging = _Remote(url), Staging(directory)
        self._staging.keep(())  # those of ended processes, after days

    def put(self, path: Path) -> None:
        """Put a plan there, unless it is there in full length."""
        with self._told(path.name, "put on", "the machine of the controller has to write there"):
            if self._remote.size(path.name) != path.stat().st_size:
                self._remote.put(path)

    def get(self, path: str) -> Path:
        """The file of a plan on this machine, fetched if it is not there."""
        local = self._staging.directory / Path(path).name
        self._staging.use(local)
        if not local.exists():
            with self._told(local.name, "fetched from", "every machine has to read there"):
                self._remote.fetch(local.name, local)
        return local

    @contextmanager
    def _told(self, name: str, done: str, hint: str) -> Iterator[None]:
        """Errors of the storage, whose kinds are its own."""
        try:
            yield
        except Exception as problem:
            raise RepositoryError(
                f"a plan cannot be {done} object storage",
                where=f"{self._remote.shown}/{name}",
                found=f"{type(problem).__name__}: {problem}"[:300],
                hint=hint,
            ) from problem

    def read(self, name: str) -> bytes:
        """A small file beside the plans; FileNotFoundError if there is none."""
        return self._remote.read(name)

    def write(self, name: str, content: bytes) -> None:
        """Replace a small file beside the plans."""
        self._remote.write(name, content)


class _Remote:
    """A folder of a file system of fsspec."""

    def __init__(self, url: str) -> None:
        self.shown = _SECRET.sub("", url.rstrip("/"))
        try:
            from fsspec.core import url_to_fs

            self._files, root = url_to_fs(url)
        except (ImportError, ValueError) as problem:
            raise NoFolder(
                "nothing is installed that reads this folder",
                where=self.shown,
                found=str(problem)[:200],
                hint="pip install 'pretzel-runtime[cluster]', and the package for its protocol, "
                "such as s3fs for s3:// and gcsfs for gs://",
            ) from None
        self._root = str(root).rstrip("/")

    def objects(self) -> dict[str, tuple[str, int]]:
        """The objects that may be models or belong to them: what marks their content, and sizes."""
        try:
            self._files.invalidate_cache()
            if not self._files.isdir(self._root):
                raise FileNotFoundError(f"no folder at {self.shown}")
            listed = self._files.find(self._root, detail=True)
            names = {path: self._name(path) for path in listed}
            found = {name: listed[path] for path, name in names.items() if name}
            if len(found) > MAX_ENTRIES:
                raise ValueError(f"more than {MAX_ENTRIES:,} objects")
            return {name: self._marked(name, about) for name, about in found.items()}
        except Exception as problem:
            raise NoFolder(
                "this folder cannot be read",
                where=self.shown,
                found=f"{type(problem).__name__}: {problem}"[:300],
                hint="is it there, and may this machine's credentials read it?",
            ) from problem

    def _name(self, path: str) -> str:
        """The path of an object in the folder; empty if it is none, or should not be served."""
        inside = path.removeprefix(self._root).lstrip("/")
        parts = PurePosixPath(inside).parts
        strange = ".." in parts or "\0" in inside or not path.startswith(self._root)
        return "" if strange or any(map(is_ignored, parts)) else "/".join(parts)

    def _marked(self, name: str, about: Mapping[str, Any]) -> tuple[str, int]:
        marks = _marks_of(about)
        if not marks.keys() - _SIZE:  # a listing over HTTP has names only
            about = self._files.info(f"{self._root}/{name}")
            marks = _marks_of(about)
        if not marks.keys() - _SIZE:
            marks["looked"] = str(time.time_ns())  # it tells nothing: fetched at each look
        return json.dumps(marks, sort_keys=True), int(about.get("size") or 0)

    def fetch(self, name: str, path: Path) -> None:
        """Bring an object here; the file appears complete or not at all."""
        handle, temporary = mkstemp(dir=path.parent, prefix=".copy-")
        os.close(handle)
        try:
            self._files.get_file(f"{self._root}/{name}", temporary)
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def size(self, name: str) -> int:
        """The bytes of an object; -1 if there is none."""
        self._files.invalidate_cache()
        try:
            return int(self._files.info(f"{self._root}/{name}")["size"])
        except FileNotFoundError:
            return -1

    def read(self, name: str) -> bytes:
        """The content of an object."""
        return bytes(self._files.cat_file(f"{self._root}/{name}"))

    def write(self, name: str, content: bytes) -> None:
        """Make or replace an object."""
        self._files.makedirs(self._root, exist_ok=True)
        self._files.pipe_file(f"{self._root}/{name}", content)

    def put(self, path: Path) -> None:
        """Put a file there under its name."""
        self._files.makedirs(self._root, exist_ok=True)
        self._files.put_file(str(path), f"{self._root}/{path.name}")


def _marks_of(about: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: str(value)
        for key, value in about.items()
        if key.lower() in _MARKS and value is not None
    }
