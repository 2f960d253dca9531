"""Recipes: Python files whose decorated functions are the steps of a training.

    @step          computes what others read; with `max_age="1 d"`, its result is used for a day
    @candidate     returns a fitted model; `sample` is a step whose rows verify its import
    @gate          a figure of the model, its first argument: `at_least=` or `at_most=` a bound

Parameters with defaults are values; each other one is called like the step that it reads. All this
is read from the syntax tree: only jobs run a recipe.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn, TypeVar, overload

from flour.core.errors import is_number, nearest
from flour.core.parsing import parse_source
from objectstore import combine
from runtime.errors import BadRecipe
from runtime.rollout.terms import seconds_of

Function = TypeVar("Function", bound=Callable[..., Any])
_OPTIONS = {"step": {"max_age"}, "candidate": {"sample"}, "gate": {"at_least", "at_most"}}
#: Distributions that are not called like their package.
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}


@overload
def _mark(function: Function, /) -> Function: ...
@overload
def _mark(**options: float | str) -> Callable[[Function], Function]: ...
def _mark(function: Callable[..., Any] | None = None, /, **_options: float | str) -> Any:
    """A decorator that leaves its function as it is; see above for the options of each."""
    return _mark if function is None else function


step = candidate = gate = _mark


@dataclass(frozen=True)
class RecipeStep:
    """A function of a recipe; `code` is the digest of its source and of what it uses."""

    name: str
    kind: str
    code: str
    values: Mapping[str, object]
    inputs: tuple[str, ...]
    options: Mapping[str, Any]

    @property
    def reads(self) -> list[str]:
        """The steps that it reads; the model that a gate reads is not one of them."""
        sample = [self.options["sample"]] if "sample" in self.options else []
        return [*self.inputs[self.kind == "gate" :], *sample]

    def key(self, inputs: Mapping[str, str]) -> str:
        """The key of its result, of the digests of its inputs; files count by their bytes."""
        contents = {
            name: path_digest(value) if isinstance(value, Path) else value
            for name, value in self.values.items()
        }
        return combine(
            self.code, repr(sorted(contents.items())), *(inputs[each] for each in self.inputs)
        )


@dataclass(frozen=True)
class Recipe:
    """A recipe's source, with settings by "parameter" or "step.parameter"."""

    path: Path
    source: str
    settings: Mapping[str, str] = field(default_factory=dict)
    steps: dict[str, RecipeStep] = field(default_factory=dict, init=False)
    """The steps by name, each one after those that it reads."""

    def __post_init__(self) -> None:
        """Read the steps."""
        try:
            tree = parse_source(self.source)
        except SyntaxError as problem:
            self._refuse("this is not Python", f"line {problem.lineno}: {problem.msg}")
        known, steps = _definitions(tree), dict[str, RecipeStep]()
        for function in tree.body:
            if isinstance(function, ast.FunctionDef):
                for mark in [m for m in function.decorator_list if _word(m) in _OPTIONS]:
                    steps[function.name] = self._step(function, mark, known)
        for name, each in steps.items():
            for read in set(each.reads) - steps.keys():
                what = f"{name} reads {read!r}, which is neither a step nor has a default"
                self._refuse(what, "steps: " + ", ".join(steps), nearest(read, steps))
        names = {f"{name}.{each}" for name, step in steps.items() for each in step.values}
        names |= {each.partition(".")[2] for each in names}
        for name in self.settings.keys() - names:
            found = "parameters: " + ", ".join(sorted(names))
            self._refuse(f"no step has a parameter {name!r}", found, nearest(name, names))
        kinds = [each.kind for each in steps.values()]
        gates = [each for each in steps.values() if each.kind == "gate"]
        if "candidate" not in kinds or [len(each.options) for each in gates] != [1]:
            hint = "@gate(at_least=0.8) above a function of the model"
            self._refuse(
                "a recipe has candidates, and one gate with a bound", ", ".join(kinds), hint
            )
        try:
            order = TopologicalSorter({name: each.reads for name, each in steps.items()})
            self.steps.update({name: steps[name] for name in order.static_order()})
        except CycleError as problem:
            self._refuse("these steps read one another", " -> ".join(problem.args[1]))

    @classmethod
    def read(cls, path: str | Path, settings: Mapping[str, str] | None = None) -> Recipe:
        """The recipe in a file."""
        path = Path(path).absolute()
        return cls(path, path.read_text(encoding="utf-8"), settings or {})

    @property
    def gate(self) -> str:
        """The name of the gate."""
        return next(name for name, each in self.steps.items() if each.kind == "gate")

    def _refuse(self, what: str, found: str, hint: str | None = None) -> NoReturn:
        raise BadRecipe(what, where=str(self.path), found=found[:200], hint=hint) from None

    def _step(
        self, function: ast.FunctionDef, mark: ast.expr, known: Mapping[str, list[ast.stmt]]
    ) -> RecipeStep:
        kind, given = _word(mark), getattr(mark, "keywords", [])
        options = {str(each.arg): seconds_of(self._literal(each.value)) for each in given}
        for name, value in options.items():
            fits = isinstance(value, str) if name == "sample" else is_number(value)
            if name not in _OPTIONS[kind] or not fits:
                self._refuse(f"@{kind} takes no {name}={value!r}"[:100], f"line {mark.lineno}")
        values, inputs = dict[str, object](), list[str]()
        for name, default in _parameters(function.args):
            if default is None:
                inputs.append(name)
                continue
            value = self._literal(default)
            for key in (name, f"{function.name}.{name}"):
                value = self._setting(key, value) if key in self.settings else value
            values[name] = self.path.parent / value if isinstance(value, Path) else value
        code = _code_digest(function, known)
        return RecipeStep(function.name, kind, code, values, tuple(inputs), options)

    def _literal(self, value: ast.expr) -> object:
        """The value of a literal, or of `Path("literal")`."""
        try:
            if isinstance(value, ast.Call) and _word(value) == "Path" and len(value.args) == 1:
                return Path(str(ast.literal_eval(value.args[0])))
            return ast.literal_eval(value)
        except ValueError:
            found = f"line {value.lineno}: {ast.unparse(value)}"
            self._refuse("a default of a step is a literal, or a Path of one", found)

    def _setting(self, key: str, default: object) -> object:
        """A setting's value, of its default's type."""
        value: object = self.settings[key]
        if isinstance(default, Path):
            return Path(self.settings[key]).absolute()
        with suppress(ValueError, SyntaxError):
            value = value if isinstance(default, str) else ast.literal_eval(self.settings[key])
        kind = (int, float) if isinstance(default, float) else type(default)
        if default is not None and not isinstance(value, kind):
            what = f"{key} is of another type than its default, {default!r}"[:120]
            self._refuse(what, repr(value))
        return value


def _word(mark: ast.expr) -> str:
    """The last word of a decorator or call: `step` of `training.step(max_age=1)`."""
    inner = mark.func if isinstance(mark, ast.Call) else mark
    return str(getattr(inner, "attr", getattr(inner, "id", "")))


def _parameters(given: ast.arguments) -> Iterator[tuple[str, ast.expr | None]]:
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    defaults = [*given.defaults, *given.kw_defaults]
    return zip(names, [None] * (len(names) - len(defaults)) + defaults, strict=True)


def _definitions(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """The statements of a file by the names that they define."""
    found: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        whole = [statement] if hasattr(statement, "name") else ast.walk(statement)
        for node in whole:
            name = getattr(node, "asname", None) or getattr(node, "name", "")
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            found.setdefault(str(name).partition(".")[0], []).append(statement)
    return found


def _code_digest(function: ast.FunctionDef, known: Mapping[str, list[ast.stmt]]) -> str:
    """The digest of a function, of what it uses of its file, and of versions of what is imported.

    Comments and formatting do not count, and neither do our decorators and the defaults.
    """
    own, packages, parts = copy.deepcopy(function), set[str](), list[str]()
    own.decorator_list = [each for each in own.decorator_list if _word(each) not in _OPTIONS]
    own.args.defaults, own.args.kw_defaults = [], []
    parameters = {name for name, _ in _parameters(function.args)}
    nodes: list[ast.stmt] = [own]
    for node in nodes:  # which grows
        parts.append(ast.dump(node))
        for each in ast.walk(node):
            match each:
                case ast.Import():
                    packages |= {alias.name.partition(".")[0] for alias in each.names}
                case ast.ImportFrom(module=str(module)):
                    packages.add(module.partition(".")[0])
                case ast.Name(id=name) if node is not own or name not in parameters:
                    nodes += [new for new in known.get(name, ()) if new not in (*nodes, function)]
    return combine(sys.version[:4], *map(_version, sorted(packages)), "", *parts)


def _version(package: str) -> str:
    with suppress(PackageNotFoundError, ValueError):
        return f"{package} {version(_DISTRIBUTIONS.get(package, package))}"
    return package


def path_digest(path: Path) -> str:
    """The digest of a file's bytes, or of all files of a folder with their names."""
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file())
        return combine(*(f"{path_digest(each)} {each.relative_to(path)}" for each in files))
    state = blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()
