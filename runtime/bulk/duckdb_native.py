"""A function of SQL over DuckDB's C API: called by all of its threads, a vector of rows at a time.

Vectors of numbers and strings are read where they are (`Vectors`). DuckDB hands all others
over as Arrow (`duckdb_data_chunk_to_arrow`) and takes answers so, by functions of its own. The
library that is asked for them is the one that the Python package `duckdb` consists of. A call holds
the GIL while columns are converted, and native code releases it.

A shared object of one function that jumps to an address of this process.
DuckDB gives its C API to extensions, which are shared objects that it loads by path. What it should
call is a function of ours that exists already, so the file holds a jump and nothing that would
have to be compiled or linked. It is good for this process only.
"""

from __future__ import annotations

import ctypes
import platform
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from ctypes import PyDLL, byref, c_bool, c_char_p, c_uint64, c_void_p, memmove
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.types import FLOATS, INTS, Category, Record, Scalar, Type
from flour.data.arrow_reader import Arrow, library
from flour.data.arrow_strings import CELLS, NONE, bits, fill_views, memory
from objectstore import system
from runtime.errors import BadRegistration

if TYPE_CHECKING:
    import duckdb

    from runtime.bulk.sql_function import SqlFunction

#: Numbers by what their types are called in the C API, and strings.
_NUMBERS = dict(enumerate(map(np.dtype, ("bool", *INTS, *FLOATS)), 1))
_STRING = 17
#: Chunks of fewer rows take less time as Arrow.
_LEAST_ROWS = 64


class Vectors:
    """A reader of the chunks of one call."""

    def __init__(
        self, api: PyDLL, fields: Sequence[tuple[str, Type]], types: Sequence[int]
    ) -> None:
        self._api, self._fields = api, tuple(zip(fields, types, strict=True))

    def read(self, chunk: int) -> dict[str, NDArray[Any]] | None:
        """The columns by name; None where these rows have to be read as Arrow."""
        rows = self._api.duckdb_data_chunk_get_size(c_void_p(chunk))
        if rows < _LEAST_ROWS:
            return None
        found: dict[str, NDArray[Any]] = {}
        texts: list[tuple[str, int, NDArray[np.bool_] | None]] = []
        for place, ((name, kind), number) in enumerate(self._fields):
            api = self._api
            vector = c_void_p(api.duckdb_data_chunk_get_vector(c_void_p(chunk), c_uint64(place)))
            valid = api.duckdb_vector_get_validity(vector)
            begin, there = (
                api.duckdb_vector_get_data(vector),
                bits(valid, 0, rows) if valid else None,
            )
            if number == _STRING:
                texts.append((name, begin, there))
                continue
            column = _numbers(begin, there, rows, _NUMBERS[number])
            if column is None:
                return None
            if column.dtype == np.float32 and isinstance(kind, Scalar) and kind.dtype in FLOATS:
                column = column.astype(kind.dtype, copy=False)
            found[name] = column
        return found | _cells(texts, rows) if texts else found


def vectors(
    api: PyDLL, inputs: Mapping[str, Type], names: Sequence[str], types: Sequence[int]
) -> Vectors | None:
    """A reader of chunks with these names and types; None if that needs Arrow."""
    (kind, *more), fields = inputs.values(), inputs
    if not more:
        if not isinstance(kind, Record):
            return None
        fields = dict(kind.fields)
    if len(names) != len(types) or not set(names) <= set(fields):
        return None
    given = [(name, fields[name]) for name in names]
    plain = all(_is_plain(kind, number) for (_, kind), number in zip(given, types, strict=True))
    return Vectors(api, given, types) if plain else None


def _is_plain(kind: Type, number: int) -> bool:
    """True if a column of this type is read without Arrow."""
    if not isinstance(kind, Scalar | Category):
        return False
    return number in _NUMBERS or (number == _STRING and kind.dtype == "string")


def _numbers(
    begin: int, there: NDArray[np.bool_] | None, rows: int, dtype: np.dtype[Any]
) -> NDArray[Any] | None:
    column = memory(begin, rows * dtype.itemsize).view(dtype)
    if there is None or there.all():
        return column
    # Whole numbers with missing ones become floats, and large ones must not be rounded.
    return np.where(there, column, dtype.type(np.nan)) if dtype.kind == "f" else None


def _cells(
    vectors: Sequence[tuple[str, int, NDArray[np.bool_] | None]], rows: int
) -> dict[str, NDArray[Any]]:
    """The address and length of each string of some vectors."""
    made = np.empty((len(vectors), rows), CELLS)
    fill_views(made.view(np.int64).reshape(-1, 2), [begin for _, begin, _ in vectors], None)
    for column, (_, _, there) in zip(made, vectors, strict=True):
        if there is not None:
            column[~there] = 0, NONE
    return {name: column for (name, _, _), column in zip(vectors, made, strict=True)}


def put(api: PyDLL, answers: object, number: int, output: int) -> bool:
    """Copy answers into a vector of this type; False where they are not one such number a row."""
    if number not in _NUMBERS or not isinstance(answers, np.ndarray):
        return False
    if answers.ndim != 1 or answers.dtype != _NUMBERS[number]:
        return False
    whole = np.ascontiguousarray(answers)
    memmove(api.duckdb_vector_get_data(c_void_p(output)), whole.ctypes.data, whole.nbytes)
    return True


_PAGE = 0x1000
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_EXECUTE, _WRITE, _READ = 1, 2, 4
_HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT = 4, 5, 6, 10, 11
_HEADERS, _HEADER, _SYMBOL = 64, 56, 24
#: By machine: its number in ELF, and a jump to the address that follows these bytes.
_MACHINES = {
    "x86_64": (62, bytes.fromhex("ff2500000000")),  # jmp [rip]
    "aarch64": (183, bytes.fromhex("5000005800021fd6")),  # ldr x16, 8; br x16
}


def is_possible() -> bool:
    """True if this machine loads such files."""
    return system.LINUX and platform.machine() in _MACHINES


def shared_object(function: str, address: int) -> bytes:
    """The bytes of an ELF file for this machine that exports `function`."""
    machine, jump = _MACHINES[platform.machine()]
    names = b"\0" + function.encode() + b"\0"
    code = (jump + struct.pack("<Q", address)).ljust(16, b"\0")
    start = _HEADERS + 4 * _HEADER
    places = _places(start, len(code), 2 * _SYMBOL, len(names))
    code_at, symbols_at, names_at, hash_at, end = places
    symbols = bytes(_SYMBOL) + struct.pack("<IBBHQQ", 1, 0x12, 0, 1, code_at, len(code))
    table = struct.pack("<5I", 1, 2, 1, 0, 0)  # one bucket, which has the second symbol
    tags = {_HASH: hash_at, _STRTAB: names_at, _SYMTAB: symbols_at, _STRSZ: len(names)}
    tags |= {_SYMENT: _SYMBOL, 0: 0}
    dynamic = b"".join(struct.pack("<QQ", *each) for each in tags.items())
    parts = ((code, code_at), (symbols, symbols_at), (names, names_at), (table, hash_at))
    made = bytearray(_PAGE + len(dynamic))
    made[:_HEADERS] = struct.pack(
        *("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, machine, 1, 0, _HEADERS, 0),
        *(0, _HEADERS, _HEADER, 4, 64, 0, 0),
    )
    headers = (
        (_LOAD, _READ | _EXECUTE, 0, end, _PAGE),
        (_LOAD, _READ | _WRITE, _PAGE, len(dynamic), _PAGE),
        (_DYNAMIC, _READ | _WRITE, _PAGE, len(dynamic), 8),
        (_STACK, _READ | _WRITE, 0, 0, 16),
    )
    made[_HEADERS:start] = b"".join(
        struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, align)
        for kind, flags, at, size, align in headers
    )
    for part, at in parts:
        made[at : at + len(part)] = part
    made[_PAGE:] = dynamic
    return bytes(made)


def _places(start: int, *sizes: int) -> tuple[int, ...]:
    """Offsets of parts of these sizes, and the bounds of the last one, a hash table."""
    places = []
    for size in sizes:
        start = -(-start // 16) * 16
        places.append(start)
        start += size
    start = -(-start // 16) * 16
    return (*places, start, start + 20)


#: The version of the C API that the extension is written for, which all later releases keep.
_API = "v1.2.0"
_FIELD, _SIGNATURE = 32, 256
#: What DuckDB goes on calling for as long as the process lives, by its extension's name.
_kept: dict[str, _Native] = {}
_serials = count()
#: Releases before this one add a function of the same name to the one that is there.
_REPLACES = (2,)

_Init = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p)
_Bind = ctypes.CFUNCTYPE(None, c_void_p)
_Copy = ctypes.CFUNCTYPE(c_void_p, c_void_p)
_Run = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
#: What DuckDB types are called in its C API.
_TYPES = {
    "bool": 1,
    "int8": 2,
    "int16": 3,
    "int32": 4,
    "int64": 5,
    "uint8": 6,
    "uint16": 7,
    "uint32": 8,
    "uint64": 9,
    "float": 10,
    "double": 11,
    "string": 17,
}
_ANY = 34


class _Access(ctypes.Structure):
    """Argument of an extension's first function."""

    _fields_ = (
        ("set_error", ctypes.CFUNCTYPE(None, c_void_p, c_char_p)),
        ("get_database", ctypes.CFUNCTYPE(c_void_p, c_void_p)),
        ("get_api", c_void_p),
    )


class _Arrow(ctypes.Structure):
    """Room for an array or a schema of the C data interface."""

    _fields_ = (("words", c_uint64 * 10),)


@cache
def _duckdb() -> Any:
    """DuckDB's C API. Calls keep the GIL: they are short, and none waits for another thread."""
    import _duckdb

    api = ctypes.PyDLL(_duckdb.__file__)
    for name in _POINTERS:
        getattr(api, f"duckdb_{name}").restype = c_void_p
    for name in ("scalar_function_bind_get_argument_count", "data_chunk_get_size"):
        getattr(api, f"duckdb_{name}").restype = c_uint64
    api.duckdb_error_data_message.restype = c_char_p
    return api


_POINTERS = (
    *("create_scalar_function", "create_logical_type", "create_struct_type", "create_array_type"),
    *("create_list_type", "scalar_function_get_bind_data", "data_chunk_get_vector"),
    *("scalar_function_bind_get_argument", "expression_return_type"),
    *("vector_get_data", "vector_get_validity"),
    *("to_arrow_schema", "data_chunk_to_arrow", "schema_from_arrow", "data_chunk_from_arrow"),
)


def register_native(
    connection: duckdb.DuckDBPyConnection, name: str, function: SqlFunction
) -> None:
    """Register a function by an extension that DuckDB loads now, or give one another plan."""
    # The latest function of this name in the connection's database.
    query = "select extension_name from duckdb_extensions() where loaded"
    loaded = {each for (each,) in connection.execute(query).fetchall()}
    found = [each for own, each in _kept.items() if own in loaded and each.is_called(name)]
    there = found[-1] if found else None
    if there is not None:
        if there.function.returned == function.returned:
            there.function = function
            return
        _check_replaces(name)
    own = f"pretzel_{next(_serials)}"
    problems: list[Exception] = []

    def start(info: int, access: int) -> bool:
        try:
            given = ctypes.cast(access, ctypes.POINTER(_Access)).contents
            database = c_void_p.from_address(given.get_database(info)).value
            _kept[own] = _Native(database, name, function)
        except Exception as problem:  # noqa: BLE001 (it is raised below, outside of DuckDB)
            problems.append(problem)
        return True

    callback = _Init(start)
    body = shared_object(f"{own}_init_c_api", ctypes.cast(callback, c_void_p).value or 0)
    ((system,),) = connection.execute("pragma platform").fetchall()
    with tempfile.TemporaryDirectory(prefix="pretzel-") as folder:
        path = Path(folder) / f"{own}.duckdb_extension"
        path.write_bytes(body + _footer(str(system)))
        connection.load_extension(str(path))
    if problems:
        raise problems[0]


def _check_replaces(name: str) -> None:
    import duckdb

    release = duckdb.__version__
    if tuple(map(int, release.split(".")[:1])) < _REPLACES:
        raise BadRegistration(
            f"DuckDB {release} cannot replace a function by one of another type",
            found=repr(name),
            hint="choose another name, or DuckDB 2",
        )


def _footer(system: str) -> bytes:
    """Footer that DuckDB reads before it loads an extension; there is no signature."""
    fields = ("", "", "", "C_STRUCT", "0", _API, system, "4")
    return b"".join(field.encode().ljust(_FIELD, b"\0") for field in fields) + bytes(_SIGNATURE)


class _PlannedQuery(NamedTuple):
    """Facts that a query was planned for."""

    schema: Arrow
    function: SqlFunction
    vectors: Vectors | None
    """The reader of its columns without Arrow, if all of them can be read so."""


class _Native:
    """A registered function with all that DuckDB holds of it."""

    def __init__(self, database: int | None, name: str, function: SqlFunction) -> None:
        self._api, self._name = _duckdb(), name
        #: What is called from the next query on: another plan may take its place.
        self.function = function
        self._connection, self._options = c_void_p(), c_void_p()
        #: What queries that DuckDB holds were planned for, by a number.
        self._planned: dict[int, _PlannedQuery] = {}
        self._next = count(1)
        self._api.duckdb_connect(c_void_p(database), byref(self._connection))
        self._api.duckdb_connection_get_arrow_options(self._connection, byref(self._options))
        field = library().field("answer", function.returned)
        schema, self._converted = _Arrow(), c_void_p()
        library().schema([field])._export_to_c(ctypes.addressof(schema))  # noqa: SLF001 (pyarrow has no other way for addresses)
        self._check(
            self._api.duckdb_schema_from_arrow(
                self._connection, byref(schema), byref(self._converted)
            )
        )
        self._returned = _TYPES.get(str(function.returned), 0)
        self._copy, self._forget = (
            _Copy(lambda key: self._numbered(self._planned[key])),
            _Bind(self._forgotten),
        )
        self._callbacks = _Bind(self._bind), _Run(self._run)
        api, (bind, run) = self._api, self._callbacks
        made = c_void_p(api.duckdb_create_scalar_function())
        anything, returned = self._type(_ANY), self._logical(self.function.returned)
        api.duckdb_scalar_function_set_name(made, name.encode())
        api.duckdb_scalar_function_set_varargs(made, anything)
        api.duckdb_scalar_function_set_return_type(made, returned)
        api.duckdb_scalar_function_set_special_handling(made)  # missing values are ours to read
        api.duckdb_scalar_function_set_bind(made, bind)
        api.duckdb_scalar_function_set_function(made, run)
        state = api.duckdb_register_scalar_function(self._connection, made)
        for kind in (anything, returned):
            api.duckdb_destroy_logical_type(byref(kind))
        api.duckdb_destroy_scalar_function(byref(made))
        if state:
            raise BadRegistration("DuckDB does not take a function of this name", found=repr(name))

    def is_called(self, name: str) -> bool:
        """True if SQL means this function."""
        return self._name.lower() == name.lower()

    # --- types -----------------------------------------------------------------------------------

    def _type(self, number: int) -> c_void_p:
        return c_void_p(self._api.duckdb_create_logical_type(number))

    def _logical(self, kind: Arrow) -> c_void_p:
        """DuckDB's type for an Arrow type."""
        if hasattr(kind, "value_type"):
            inner = self._logical(kind.value_type)
            size = getattr(kind, "list_size", None)
            if size is None:
                made = self._api.duckdb_create_list_type(inner)
            else:
                made = self._api.duckdb_create_array_type(inner, c_uint64(size))
            self._api.duckdb_destroy_logical_type(byref(inner))
            return c_void_p(made)
        if not kind.num_fields:
            return self._type(_TYPES[str(kind)])
        inners = [self._logical(field.type) for field in kind]
        types = (c_void_p * len(inners))(*inners)
        names = (c_char_p * len(inners))(*(field.name.encode() for field in kind))
        made = self._api.duckdb_create_struct_type(types, names, c_uint64(len(inners)))
        for inner in inners:
            self._api.duckdb_destroy_logical_type(byref(inner))
        return c_void_p(made)

    # --- called by DuckDB ------------------------------------------------------------------------

    def _bind(self, info: int) -> None:
        """Look at the types of a call's arguments, before it runs."""
        with _QueryErrors(self._api.duckdb_scalar_function_bind_set_error, info):
            schema, types = self._schema(info)
            function = self.function
            function.check(schema)
            read = vectors(self._api, function.inputs, [n for n, _ in function.columns], types)
            key = self._numbered(_PlannedQuery(schema, function, read))
            self._api.duckdb_scalar_function_set_bind_data(
                c_void_p(info), c_void_p(key), self._forget
            )
            self._api.duckdb_scalar_function_set_bind_data_copy(c_void_p(info), self._copy)

    def _numbered(self, planned: _PlannedQuery) -> int:
        key = next(self._next)
        self._planned[key] = planned
        return key

    def _forgotten(self, key: int) -> None:
        del self._planned[key]

    def _schema(self, info: int) -> tuple[Arrow, list[int]]:
        """The arguments as columns of Arrow, and the numbers of their types in the C API."""
        api = self._api
        arguments = api.duckdb_scalar_function_bind_get_argument_count(c_void_p(info))
        types = (c_void_p * arguments)()
        for place in range(arguments):
            found = c_void_p(
                api.duckdb_scalar_function_bind_get_argument(c_void_p(info), c_uint64(place))
            )
            types[place] = api.duckdb_expression_return_type(found)
            api.duckdb_destroy_expression(byref(found))
        numbers = [api.duckdb_get_type_id(c_void_p(kind)) for kind in types]
        names = (c_char_p * arguments)(*(f"c{place}".encode() for place in range(arguments)))
        schema = _Arrow()
        problem = api.duckdb_to_arrow_schema(
            self._options, types, names, c_uint64(arguments), byref(schema)
        )
        for place in range(arguments):
            api.duckdb_destroy_logical_type(byref(c_void_p(types[place])))
        self._check(problem)
        made = library().Schema._import_from_c(ctypes.addressof(schema))  # noqa: SLF001 (pyarrow has no other way for addresses)
        return made, numbers

    def _run(self, info: int, chunk: int, output: int) -> None:
        """Answer the rows of one chunk."""
        with _QueryErrors(self._api.duckdb_scalar_function_set_error, info):
            key = self._api.duckdb_scalar_function_get_bind_data(c_void_p(info))
            schema, function, read = self._planned[key]
            columns = read.read(chunk) if read else None
            answers = function.run(columns) if columns else None
            if answers is None:
                self._write(function.answer(self._read(chunk, schema, function)), output)
                return
            if not put(self._api, function.single(answers), self._returned, output):
                self._write(function.as_arrow(answers), output)

    def _read(self, chunk: int, schema: Arrow, function: SqlFunction) -> Arrow:
        pa, array = library(), _Arrow()
        self._check(
            self._api.duckdb_data_chunk_to_arrow(self._options, c_void_p(chunk), byref(array))
        )
        batch = pa.RecordBatch._import_from_c(ctypes.addressof(array), schema)  # noqa: SLF001 (pyarrow has no other way for addresses)
        if len(schema.types) == 1 and pa.types.is_struct(schema.types[0]):
            row = batch.column(0)
            return pa.record_batch(row.flatten(), names=[field.name for field in row.type])
        return function.named(batch.columns)

    def _write(self, answers: Arrow, output: int) -> None:
        array, chunk = _Arrow(), c_void_p()
        batch = library().record_batch([answers], names=["answer"])
        batch._export_to_c(ctypes.addressof(array))  # noqa: SLF001 (pyarrow has no other way for addresses)
        self._check(
            self._api.duckdb_data_chunk_from_arrow(
                self._connection, byref(array), self._converted, byref(chunk)
            )
        )
        vector = c_void_p(self._api.duckdb_data_chunk_get_vector(chunk, c_uint64(0)))
        self._api.duckdb_vector_reference_vector(c_void_p(output), vector)
        self._api.duckdb_destroy_data_chunk(byref(chunk))

    def _check(self, problem: int | None) -> None:
        """Raise what a function of DuckDB has answered, if that is an error."""
        if problem:
            data = c_void_p(problem)
            text = self._api.duckdb_error_data_message(data).decode()
            self._api.duckdb_destroy_error_data(byref(data))
            raise BadRegistration("DuckDB and Arrow do not agree about a type", found=text[:200])


class _QueryErrors:
    """Errors inside become those of the query."""

    def __init__(self, tell: Callable[..., object], info: int) -> None:
        self._tell, self._info = tell, info

    def __enter__(self) -> None:
        """Nothing is held."""

    def __exit__(self, kind: object, problem: BaseException | None, *_: object) -> bool:
        if problem is not None:
            text = str(problem) or type(problem).__name__
            self._tell(c_void_p(self._info), text.encode())
        return True
