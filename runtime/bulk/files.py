"""Arrow batches from files: Parquet, Arrow's file and stream formats; and to files.

A file is read a batch at a time, and of a batch only the columns that are asked for. The rows of
several files follow one another in the order of their paths. Folders may be partitioned as Hive
does it: below `city=Graz/`, each row has "Graz" in a column `city`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import unquote

from flour.data.arrow_reader import Arrow, library, no_rows
from oven.plans.arrow import as_schema
from runtime.bulk.where import RowCondition
from runtime.errors import UnreadableFile
from scheduler import cores

Choose = Callable[[list[str]], list[str]]
"""Chooses the columns of a file to read."""

_MAGIC = b"ARROW1"
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
#: How much of each column is read from disk at a time: a page, so that the buffers of all columns
#: are still in the processor's cache when they are decoded.
_BUFFER = 1 << 16
#: Rows of Parquet are decoded so many at a time, as each time costs a little for each column; and
#: no more bytes than these.
_DECODED, _BYTES = 1 << 16, 16 << 20
#: Strings take at most so many bytes a row where they are stored as places in a short dictionary.
_CODED = 3
#: With so many cores, decoding columns by several threads takes more from the model than it gives.
_FEW = 2
#: At least so many rows make a row group of Parquet, all but the last.
_GROUP = 1 << 17

NO_TYPES = "write CSV or JSON lines, or leave such a column out of --keep"


class FilePart(NamedTuple):
    """A file, and the columns whose only value is in its path."""

    path: Path
    values: Mapping[str, str | None]


class Read(NamedTuple):
    """Some rows of a file."""

    batch: Arrow
    path: str
    lines: Sequence[int]
    """The number of each row in its file, from 1."""
    done: int
    """The rows of all files that have been gone through so far."""


def is_stream(place: str) -> bool:
    """True if this can be read only once: standard input, or a pipe that has a path."""
    return place == "-" or Path(place).is_fifo()


def parts_of(place: str) -> list[FilePart]:
    """The files of a path: one, those in a folder, or those that a pattern matches."""
    root = Path(place)
    if root.is_file() or is_stream(place):
        return [FilePart(root, {})]
    if root.is_dir():
        found = [path for path in root.rglob("*") if path.is_file() and not _is_hidden(path, root)]
    else:
        base = Path(*[part for part in root.parts[:1] if root.is_absolute()])
        pattern = str(root.relative_to(base)) if root.is_absolute() else place
        some = base.glob(pattern) if any(sign in place for sign in "*?[") else ()
        named = root.name[:1] in {".", "_"}  # files that are being written have such names
        found = [path for path in some if path.is_file() and (named or path.name[0] not in "._")]
    if not found:
        raise FileNotFoundError(2, "there is no such file", place)
    return [FilePart(path, _values(path)) for path in sorted(found)]


def reads(place: str, path: Path) -> bool:
    """True if a file of this path, which need not be there yet, is one of those of a place."""
    root, file = Path(place).resolve(), path.resolve()
    if not any(sign in place for sign in "*?[") or root.exists():
        inside = root in file.parents and not _is_hidden(file, root)
        return file == root or (root.is_dir() and inside)
    return _matches(file.parts, root.parts)


def _matches(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    if not patterns:
        return not parts
    if patterns[0] == "**":
        return any(_matches(parts[at:], patterns[1:]) for at in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part[0] in "._" for part in path.relative_to(root).parts)


def _values(path: Path) -> dict[str, str | None]:
    """The values in the names of folders."""
    pairs = (part.partition("=") for part in path.parts[:-1] if "=" in part)
    return {name: None if text == _NO_VALUE else unquote(text) for name, _, text in pairs}


class FileSource:
    """The rows of files, in batches of `rows` at most; only those `where` a condition holds.

    Strings of `categories` that Parquet stores as places in a dictionary are left so.
    """

    def __init__(
        self,
        place: str,
        form: str,
        choose: Choose,
        rows: int,
        where: RowCondition | None = None,
        categories: Collection[str] = (),
    ) -> None:
        self.parts, self._form = parts_of(place), form
        self._choose, self._rows, self._where = choose, rows, where
        self._categories = categories
        self._skip = 0
        #: The columns of the first file, without rows, from when it is open.
        self.first: Arrow = None

    def rows(self) -> int:
        """The number of rows; 0 where only reading them would tell."""
        return 0 if self._form != "parquet" else sum(_rows_of(part.path) for part in self.parts)

    def read(self, skip: int = 0) -> Iterator[Read]:
        """Every batch but the first ones, which have `skip` rows together.

        Where no row is read at all, one batch without rows says what columns there are.
        """
        self._skip, before, done = skip, 0, 0
        some = bool(skip)
        for part in self.parts:
            with _errors_with_place(part.path):
                batches = self._parquet(part) if self._form == "parquet" else self._arrow(part)
                for start, batch in batches:
                    whole = self._with_values(batch, part.values)
                    done = before + start + len(batch)
                    found, lines = self._matching(whole, start + 1, part)
                    if self._where is None or not self._skips(len(found)):
                        some = True
                        yield Read(found, str(part.path), lines, done)
            before = done
        if not some and self.first is not None:
            yield Read(self.first, str(self.parts[0].path), (), before)

    def common_types(self, names: Iterable[str]) -> dict[str, Arrow]:
        """One type for each of these columns that holds the values of all files exactly."""
        found: dict[str, tuple[Arrow, Path]] = {}
        for part in self.parts if len(self.parts) > 1 else ():
            with _errors_with_place(part.path):
                schema = self._schema(part.path)
            for name in names:
                if schema.names.count(name) == 1:
                    here = schema.field(name).type, part.path
                    found[name] = _promoted(name, found.get(name, here), here)
        return {name: kind for name, (kind, _) in found.items()}

    def _schema(self, path: Path) -> Arrow:
        if self._form == "parquet":
            return library_parquet().read_schema(path)
        return opened_arrow(path)[0]

    def _begin(self, schema: Arrow, part: FilePart) -> list[str]:
        """The columns to read of a file."""
        names, path = schema.names, str(part.path)
        if self._where is not None:
            self._where.check([*names, *part.values], path)
        wanted = self._choose(names)
        if len(set(wanted)) < len(wanted):
            twice = next(name for name in wanted if wanted.count(name) > 1)
            raise UnreadableFile(
                f"several columns have the name {twice!r}",
                where=path,
                hint="rename all but one of them, or leave them out of --keep and --where",
            )
        if self.first is None:
            self.first = self._with_values(no_rows(schema).select(wanted), part.values)
        return wanted

    def _matching(self, batch: Arrow, first: int, part: FilePart) -> tuple[Arrow, Sequence[int]]:
        """The rows for which the condition holds, with their numbers."""
        if self._where is None:
            return batch, range(first, first + len(batch))
        found, places = self._where.matching(batch, part.values)
        return found, [first + place for place in places]

    def _row_groups(self, file: Arrow, path: Path) -> set[int]:
        """The row groups in which the condition may hold, by the least and largest values there."""
        if self._where is None or not self._where.columns <= set(file.schema_arrow.names):
            return set(range(file.num_row_groups))
        form = import_module("pyarrow.dataset").ParquetFileFormat()
        fragment = form.make_fragment(str(path), import_module("pyarrow.fs").LocalFileSystem())
        try:
            return {group.id for group in fragment.subset(self._where.expression).row_groups}
        except library().ArrowException:
            return set(range(file.num_row_groups))  # the first batch says what is wrong

    def _skips(self, rows: int) -> bool:
        """True if all of these rows are to be left out."""
        if rows > self._skip:
            return False
        self._skip -= rows
        return True

    def _skips_source(self, rows: int) -> bool:
        """Skip rows that are not looked at yet: how many answers they have is unknown."""
        return self._where is None and self._skips(rows)

    def _parquet(self, part: FilePart) -> Iterator[tuple[int, Arrow]]:
        with self._opened(part.path) as file:
            names, start = self._begin(file.schema_arrow, part), 0
            wanted = self._row_groups(file, part.path)
            for group in range(file.num_row_groups):
                about = file.metadata.row_group(group)
                if group in wanted and not self._skips_source(about.num_rows):
                    row: int = max(about.total_byte_size // max(about.num_rows, 1), 1)
                    some = file.iter_batches(
                        max(min(_DECODED, _BYTES // row) // self._rows, 1) * self._rows,
                        row_groups=[group],
                        columns=names,
                        use_threads=cores() > _FEW,
                    )
                    yield from self._unskipped(self._slices(read_ahead(some)), start)
                start += about.num_rows

    def _opened(self, path: Path) -> Any:
        read = partial(library_parquet().ParquetFile, path, buffer_size=_BUFFER, pre_buffer=False)
        file = read()
        coded = _coded(file.metadata) & set(self._categories)
        if not coded:
            return file
        file.close()
        return read(metadata=file.metadata, read_dictionary=sorted(coded))

    def _slices(self, batches: Iterable[Arrow]) -> Iterator[Arrow]:
        for batch in batches:
            for at in range(0, len(batch), self._rows):
                yield batch.slice(at, self._rows)

    def _arrow(self, part: FilePart) -> Iterator[tuple[int, Arrow]]:
        schema, batches = opened_arrow(part.path)
        names, start = self._begin(schema, part), 0
        for batch in batches:
            if not self._skips_source(batch.num_rows):
                yield from self._unskipped(self._slices([batch.select(names)]), start)
            start += batch.num_rows

    def _unskipped(self, batches: Iterator[Arrow], start: int) -> Iterator[tuple[int, Arrow]]:
        for batch in batches:
            if not self._skips_source(batch.num_rows):
                yield start, batch
            start += batch.num_rows

    def _with_values(self, batch: Arrow, values: Mapping[str, str | None]) -> Arrow:
        """The batch with the columns that only its path has."""
        pa = library()
        for name in self._choose(list(values)) if values else ():
            if name not in batch.schema.names:
                codes = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
                word = pa.array([values[name]], pa.string())
                column = pa.DictionaryArray.from_arrays(codes, word)
                batch = batch.append_column(name, column)
        return batch


def _coded(about: Arrow) -> set[str]:
    """The columns whose first row group has places in a short dictionary, as Parquet's footer says.

    Decoding them to strings, of which the distinct ones are found again, takes several times as
    long. Of other columns, a dictionary would have to be made, which takes longer than strings do.
    """
    if not about.num_row_groups:
        return set()
    group = about.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {
        column.path_in_schema
        for column in columns
        if column.physical_type == "BYTE_ARRAY"
        and column.has_dictionary_page
        and column.total_uncompressed_size <= _CODED * group.num_rows
    }


def read_ahead(items: Iterator[Arrow]) -> Iterator[Arrow]:
    """Yield items while another thread makes the next one."""
    with ThreadPoolExecutor(1, "pretzel-read") as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


def opened_arrow(path: Path) -> tuple[Arrow, Iterator[Arrow]]:
    """The columns and batches of a file in either of Arrow's formats, over mapped memory."""
    pa = library()
    if is_stream(str(path)):
        stream = pa.ipc.open_stream(sys.stdin.buffer if str(path) == "-" else path.open("rb"))
        return stream.schema, iter(stream)
    source = pa.memory_map(str(path))
    if source.read(len(_MAGIC)) != _MAGIC:
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        return stream.schema, iter(stream)
    opened = pa.ipc.open_file(source)
    return opened.schema, map(opened.get_batch, range(opened.num_record_batches))


def _rows_of(path: Path) -> int:
    with _errors_with_place(path):
        count: int = library_parquet().read_metadata(path).num_rows
    return count


def _promoted(name: str, one: tuple[Arrow, Path], other: tuple[Arrow, Path]) -> tuple[Arrow, Path]:
    """The type of a column of two files, and the first of the files."""
    pa, (kind, path), (more, elsewhere) = library(), one, other
    if kind == more:
        return one
    plain = [each.value_type if hasattr(each, "index_type") else each for each in (kind, more)]
    try:
        fields = [pa.schema([(name, each)]) for each in plain]
        made = pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except pa.ArrowException:
        made = None
    wide = [pa.types.is_integer(each) and each.bit_width == 64 for each in plain]
    cut = pa.uint64() in plain and made != pa.uint64()
    if made is None or cut or (pa.types.is_floating(made) and any(wide)):
        raise UnreadableFile(
            f"column {name!r} has different types in two files",
            where=str(elsewhere),
            found=f"{more}, which is {kind} in {path}",
            hint="leave it out of --keep, or write one of the files with the type of the other",
        )
    return made, path


@contextmanager
def _errors_with_place(path: Path) -> Iterator[None]:
    """Errors of reading, with the file."""
    try:
        yield
    except (library().ArrowException, OSError) as problem:
        if isinstance(problem, FileNotFoundError):
            raise
        raise UnreadableFile(
            "this file cannot be read", where=str(path), found=str(problem)[:120]
        ) from None


def library_parquet() -> ModuleType:
    """The pyarrow.parquet module."""
    return import_module("pyarrow.parquet")


class FileWriter:
    """Writes batches to a file, or Arrow's stream to standard output ("-")."""

    def __init__(self, path: str, form: str) -> None:
        self._path, self._form = path, form
        self._open: Any = None
        self._schema: Any = None
        #: Batches that wait to become a row group of Parquet, and how many rows they have.
        self._waiting: list[Arrow] = []
        self._rows = 0

    def write(self, batch: Arrow) -> None:
        """The next rows."""
        if self._open is None:
            self._open, self._schema = self._opened(batch.schema), batch.schema
        batch = self._alike(batch)
        if self._form != "parquet":
            self._open.write_batch(batch)
            return
        self._waiting.append(batch)
        self._rows += len(batch)
        if self._rows >= _GROUP:
            self._flush()

    def _alike(self, batch: Arrow) -> Arrow:
        """The rows with the types of those before; JSON says types by its values only."""
        try:
            return as_schema(self._schema, batch)
        except library().ArrowException as problem:
            what = "these rows have columns of other types than those before"
            raise UnreadableFile(what, found=str(problem)[:120], hint=NO_TYPES) from None

    def _flush(self) -> None:
        if self._waiting:
            self._open.write_table(library().Table.from_batches(self._waiting))
        self._waiting, self._rows = [], 0

    def _opened(self, schema: Arrow) -> Any:
        pa = library()
        if self._form == "parquet":
            words = [field.name for field in schema if str(field.type).endswith("string")]
            return library_parquet().ParquetWriter(self._path, schema, use_dictionary=words)
        if self._path == "-":
            return pa.ipc.new_stream(sys.stdout.buffer, schema)
        return pa.ipc.new_file(self._path, schema)

    def close(self) -> None:
        """Finish the file."""
        self._flush()
        self._open.close()
