"""Rules of this house that no general linter knows, each with the places that break it."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.house import PACKAGES, PRODUCT, ROOT, environment_names, files, parsed, shown

sys.path.insert(0, str(ROOT / "scripts"))

import private_reaches

LONGEST_FILE = 600
LONGEST_FUNCTION = 60
MOST_ENVIRONMENT_VARIABLES = 10

# Only importers may know a training library or read a pickle, and only when they are called.
#: Jobs of a training keep Python objects in the user's own folder: decision 0065.
TRAINING_JOBS = ("runtime/training/job.py",)
IMPORTERS = ("flour/sklearn/*", "flour/onnx/*", "flour/sessions/*")
# Where users' data frames, sparse matrices and tables come in.
COERCION = (
    "flour/data/*",
    "flour/core/sparse.py",
    "runtime/bulk/*",
    "runtime/cli/parquet.py",
    "runtime/watch/arrow_sink.py",
)
# What is there for one library adds to it, or inherits from it, when it is imported.
INTEGRATIONS = ("runtime/bulk/pandas.py", "runtime/bulk/polars.py", "runtime/bulk/spark.py")
TRAINING_LIBRARIES = {"sklearn", "onnx", "onnxruntime", "skl2onnx", "lightgbm", "xgboost"}
DATA_LIBRARIES = {"pandas", "polars", "pyarrow", "scipy"}
OBJECT_READERS = {"pickle", "_pickle", "joblib", "dill", "cloudpickle", "marshal", "shelve"}
TALKERS = ("runtime/cli*.py", "runtime/cli/*", "*/__main__.py")

# Written in pieces, as this file is read too.
LATER = r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b"
MACHINE_PATH = (
    r"(?<![\w.>})/-])/("
    + "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers", "tm" + "p", "mn" + "t"))
    + r")(/|\b)"
)
REGISTRY_HOST = "(?i)" + "|".join(
    ("pypi" + r"\.org", "python" + "hosted", "ana" + r"conda\.org", "index-" + "url")
)

Imported = tuple[ast.stmt, str, bool]


def imports(path: Path) -> list[Imported]:
    """Return (statement, top-level package, whether it runs on import) for each import."""
    return list(_imports(parsed(path).body, on_import=True))


def _imports(body: list[ast.stmt], *, on_import: bool) -> Iterator[Imported]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((node, alias.name.split(".")[0], on_import) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node, (node.module or "").split(".")[0], on_import
        elif not _only_for_types(node):
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for block in _blocks(node):
                yield from _imports(block, on_import=on_import and not inside)


def _only_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block
    for child in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield from _blocks(child)


def allowed(path: Path, patterns: tuple[str, ...]) -> bool:
    """Return whether a file is one of those a rule makes an exception for."""
    name = path.relative_to(ROOT).as_posix()
    return any(fnmatch(name, pattern) for pattern in patterns)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return every function of a file, nested ones and methods included."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def text_files() -> list[Path]:
    """Return every text file a reader of the project meets."""
    suffixes = (".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".html", ".cfg")
    every = [path for suffix in suffixes for path in files(".", suffix=suffix)]
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix]
    return sorted([*every, *scripts, ROOT / ".ci" / "run"])


def lines_matching(pattern: str) -> list[str]:
    """Return each `file:line  text` in the project's text that matches."""
    search = re.compile(pattern).search
    return [
        f"{shown(path, number)}  {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if search(line)
    ]


def test_the_packages_are_there() -> None:
    empty = [place for place in PACKAGES if not (ROOT / place / "__init__.py").is_file()]
    assert empty == []


def test_files_are_short() -> None:
    long = {
        shown(path): count
        for path in files(*PRODUCT, "tests")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST_FILE
    }
    assert long == {}


def test_functions_are_short() -> None:
    long = {
        shown(path, node): node.name
        for path in files(*PRODUCT)
        for node in functions(path)
        if (node.end_lineno or 0) - node.lineno + 1 > LONGEST_FUNCTION
    }
    assert long == {}


def test_only_importers_read_pickles() -> None:
    readers = [
        f"{shown(path, node)} imports {name}"
        for path in files(*PACKAGES)
        if not allowed(path, (*IMPORTERS, *TRAINING_JOBS))
        for node, name, _ in imports(path)
        if name in OBJECT_READERS
    ]
    assert readers == []


def test_nothing_lets_numpy_unpickle() -> None:
    found = [
        shown(path, node.value)
        for path in files(*PACKAGES)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle"
        if not (isinstance(node.value, ast.Constant) and node.value.value is False)
    ]
    assert found == []


def test_no_library_of_the_training_world_is_imported_on_import() -> None:
    eager = [
        f"{shown(path, node)} imports {name}"
        for path in files(*PACKAGES)
        if not allowed(path, INTEGRATIONS)
        for node, name, on_import in imports(path)
        if on_import and name in TRAINING_LIBRARIES | DATA_LIBRARIES
    ]
    assert eager == []


def test_integrations_are_imported_when_they_are_used() -> None:
    """Nothing of ours imports them, apart from their package when it is asked for one."""
    named = {pattern.removesuffix(".py").replace("/", ".") for pattern in INTEGRATIONS}
    statements = [
        (path, node)
        for path in files(*PACKAGES)
        for node, _, on_import in imports(path)
        if on_import
    ]
    eager = [
        shown(path, node)
        for path, node in statements
        if any(name in ast.unparse(node) for name in named)
    ]
    assert eager == []


#: What trains a model itself.
TRAINERS = ("runtime/cli/parity.py",)


@pytest.mark.parametrize(
    ("libraries", "where"),
    [(TRAINING_LIBRARIES, (*IMPORTERS, *TRAINERS)), (DATA_LIBRARIES, (*IMPORTERS, *COERCION))],
    ids=["training", "data"],
)
def test_only_importers_know_the_training_world(libraries: set[str], where: tuple[str]) -> None:
    found = [
        f"{shown(path, node)} imports {name}"
        for path in files(*PACKAGES)
        if not allowed(path, where)
        for node, name, _ in imports(path)
        if name in libraries
    ]
    assert found == []


def test_nothing_prints_but_the_command_line() -> None:
    found = [
        shown(path, node)
        for path in files(*PACKAGES)
        if not allowed(path, TALKERS)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name)
        if node.func.id in {"print", "pprint", "breakpoint"}
    ]
    assert found == []


def test_nothing_is_left_for_later() -> None:
    assert lines_matching(LATER) == []


def test_nothing_names_a_machine() -> None:
    # Paths of containers.
    inside = (
        *("docs/how-to/docker.md", "docs/how-to/kubernetes.md", "deploy/"),
        "tests/integrations/test_deploy.py",
    )
    assert [each for each in lines_matching(MACHINE_PATH) if not each.startswith(inside)] == []


def test_nothing_names_a_package_registry() -> None:
    assert lines_matching(REGISTRY_HOST) == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("LATER", "# TO" + "DO: later"),
        ("LATER", "x = 1  # FIX" + "ME"),
        ("MACHINE_PATH", 'path = "/ho' + 'me/me/x"'),
        ("MACHINE_PATH", "cd /tm" + "p"),
        ("MACHINE_PATH", "PYTHONPATH=/wo" + "rk/main"),
        ("REGISTRY_HOST", "https://PyPI" + ".org/simple"),
        ("REGISTRY_HOST", "pip install --index-" + "url=x"),
    ],
)
def test_the_patterns_fire(pattern: str, line: str) -> None:
    assert re.search(globals()[pattern], line)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("LATER", "total = todos + hackathon"),
        ("MACHINE_PATH", "https://example.org/home/page"),
        ("MACHINE_PATH", "./work/x and a/root and networks"),
    ],
)
def test_the_patterns_do_not_fire(pattern: str, line: str) -> None:
    assert not re.search(globals()[pattern], line)


def test_tests_leave_private_names_of_other_packages_alone() -> None:
    reaches = private_reaches.private_reaches(ROOT, (*PACKAGES, "bench"))
    assert [str(each) for each in reaches] == [], "what a test has to see, make public"


def test_public_names_have_docstrings() -> None:
    bare = [
        shown(path, node) if isinstance(node, ast.stmt) else shown(path)
        for path in files(*PRODUCT)
        for node in _public(parsed(path))
        if ast.get_docstring(node) is None
    ]
    assert bare == []


def _public(module: ast.Module) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef]:
    yield module
    for node in module.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node


def test_environment_variables_are_few() -> None:
    assert len(environment_names()) <= MOST_ENVIRONMENT_VARIABLES, environment_names()


def test_only_our_own_environment_variables_are_read() -> None:
    foreign = [
        f"{shown(path, node)} reads {name.value!r}"
        for path in files(*PACKAGES)
        for node in ast.walk(parsed(path))
        if (name := _variable(node))
        and not str(name.value).startswith("PRETZEL_")
        # Where a user's caches are is said by a convention of desktops.
        and name.value != "XDG_CACHE_HOME"
    ]
    assert foreign == []


def _variable(node: ast.AST) -> ast.Constant | None:
    """Return the literal name in `environ["X"]`, `environ.get("X")` or `getenv("X")`."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("environ"):
        name: ast.expr = node.slice
    elif isinstance(node, ast.Call) and node.args and _reads_environment(node.func):
        name = node.args[0]
    else:
        return None
    return name if isinstance(name, ast.Constant) else None


def _reads_environment(function: ast.expr) -> bool:
    return re.search(r"(\benviron\.\w+|\bgetenvb?)$", ast.unparse(function)) is not None


def test_golden_files_belong_to_a_test() -> None:
    orphans = [
        shown(path)
        for path in files("tests", suffix=".txt")
        if path.parent.name == "golden"
        and re.split(r"[-.]", path.name)[0] not in _functions_beside(path.parent.parent)
    ]
    assert orphans == []


@functools.cache
def _functions_beside(folder: Path) -> frozenset[str]:
    """Return the names of the functions in a folder's tests: it has many golden files."""
    beside = folder.glob("test_*.py")
    return frozenset(node.name for each in beside for node in functions(each))


def test_every_operator_has_a_row_of_cases() -> None:
    cases = importlib.import_module("tests.cases")
    operators = _operators()
    assert operators, "no operator is registered: `import flour` must make the registry complete"
    covered = {_class_name(row.op) for row in cases.CASES}
    assert sorted(operators - covered) == []


def _operators() -> set[str]:
    """Return the classes of the registry that the project itself defines."""
    importlib.import_module("flour.core.modules").load_operator("")
    registry = importlib.import_module("flour.core.op").REGISTRY
    own = [each for each in registry.values() if each.__module__.startswith("flour.")]
    # Those that stand for others until a graph is linked never run: tests/runtime/graph.
    return {each.__name__ for each in own if not each.takes_later or "reference" in vars(each)}


def _class_name(operator: object) -> str:
    return operator.__name__ if isinstance(operator, type) else type(operator).__name__


BROKEN: list[tuple[str, Callable[[Path], object]]] = [
    ("if True:\n    import pandas\n", lambda path: [on for _, _, on in imports(path)] == [True]),
    ("def f():\n    import pandas\n", lambda path: [on for _, _, on in imports(path)] == [False]),
    ("class A:\n    import pickle\n", lambda path: [on for _, _, on in imports(path)] == [True]),
    (
        "try:\n    import onnx\nexcept E:\n    import xgboost\n",
        lambda path: len(imports(path)) == 2,
    ),
    ("if TYPE_CHECKING:\n    import pandas\n", lambda path: imports(path) == []),
]


@pytest.mark.parametrize(("source", "expected"), BROKEN)
def test_imports_are_seen(source: str, expected: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    assert expected(path)


@pytest.mark.parametrize(
    "source", ["os.environ['HOME']", "environ.get('HOME', '')", "os.getenv('HOME')"]
)
def test_variables_are_seen(source: str) -> None:
    name = _variable(ast.parse(source, mode="eval").body)
    assert name is not None
    assert name.value == "HOME"
