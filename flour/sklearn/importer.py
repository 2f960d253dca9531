"""Walk a fitted scikit-learn estimator and write the program it computes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from flour.core import provenance
from flour.core.callables import Function, function
from flour.core.errors import (
    FlourError,
    ImportRefused,
    NotRectangular,
    OtherVersion,
    OtherVersionWarning,
    TypeMismatch,
    UnfittedEstimator,
    UnknownEstimator,
    UnsupportedSetting,
)
from flour.core.model_formats import importing
from flour.core.modules import paused_collector
from flour.core.node import Node
from flour.core.pages import page
from flour.core.source import Source
from flour.core.sparse import densify
from flour.core.types import Record, Type
from flour.language.adapters import (
    INSTEAD,
    NOT_NATIVE,
    SAMPLE,
    Adapter,
    Fitted,
    Importer,
    adapter_of,
    public_name,
)
from flour.language.flow import Flow, outputs, source, without_unread
from flour.ops.require import OnMissing, refuses, without_checks
from flour.pickles.standins import Global, StandIn
from flour.sklearn import versions
from flour.sklearn.inputs import input_type, refuse_unreadable
from flour.sklearn.validation import RefusedInput, refused_by, with_checks


def from_sklearn(
    estimator: object,
    sample: object = None,
    *,
    on: Flow | None = None,
    allow_python: bool = False,
    on_missing: OnMissing = "refuse",
    covers: bool = False,
    log_probabilities: bool = False,
) -> Flow:
    """The program a fitted scikit-learn estimator or pipeline, or one in a file, computes.

    Outputs: classifiers `label`, `probabilities`, `scores` (where the estimator has predict_proba
    and decision_function), regressors `value`, clusterers `label` and `distances`, transformers
    `features`. `sample` (a few rows) settles the input's dtypes, columns and sparsity; without it
    they come from what the estimator remembers of its training data. A step without an adapter
    goes through skl2onnx if the result answers the sample as the step does
    (docs/reference/onnxruntime.md). With `on`, the estimator reads a flow: what a program has
    computed so far, in place of an input "X".
    With `allow_python`, functions of your own (an analyzer, that of a FunctionTransformer) are
    called while predicting, as Python stages; without, they are refused.
    Rows with NaN or infinity are refused where the estimator's steps refuse them; with
    `on_missing="answer"` they are computed with.
    With `covers`, trees keep how much of the training data reached each node: `plan.attribute` of
    trees without a background needs it, and predicting does not read it.
    With `log_probabilities`, a classifier with predict_log_proba has that output as well.
    """
    checks = refuses(on_missing)
    if isinstance(estimator, str | Path):
        from flour.pickles import parted  # an estimator in memory needs no reader
        from flour.sklearn.file import read_as_data

        path, part = parted(Path(estimator))
        estimator = read_as_data(path.read_bytes(), str(path), part)
    if form := BOOSTERS.get(public_name(type(estimator))):
        program: Flow = getattr(importing(form), f"from_{form}")(estimator, covers=covers)
        return program if on is None else program.on(on)
    _refuse_others(estimator)
    caveat = warn(estimator, _MEANS[isinstance(estimator, StandIn)])
    with _shallow():
        kind = _input_type(estimator, sample) if on is None else on.type

    importer = EstimatorImporter(sample, allow_python=allow_python)
    importer.covers, importer.caveat = covers, caveat
    foreign = bool(caveat) or isinstance(estimator, StandIn)
    importer.fitted = versions.numbers(writer_of(estimator) if foreign else "")
    with paused_collector(), _shallow():
        try:
            made = _program(estimator, kind, importer, log_probabilities=log_probabilities)
        except TypeMismatch as problem:
            if sample is None and on is None:  # the types were guessed
                problem.hint = SAMPLE
            raise
        made = with_checks(made, importer.asked) if checks else without_checks(made)
        if isinstance(kind, Record):
            made = without_unread(made)
    if on is None and isinstance(kind, Record) and kind.unread:
        refuse_unreadable(sample, made.inputs().get("X"))
    return made if on is None else made.on(on)


#: Boosters without a wrapper of scikit-learn's kind -> the format of their models.
BOOSTERS = {"lightgbm.basic.Booster": "lightgbm", "xgboost.core.Booster": "xgboost"}


@contextmanager
def _shallow() -> Iterator[None]:
    """Refuse estimators within one another, which a file can have by the thousand."""
    try:
        yield
    except RecursionError:
        raise UnsupportedSetting("the estimators are nested too deeply") from None


def _program(estimator: object, kind: Type, importer: Importer, *, log_probabilities: bool) -> Flow:
    made = importer.adapt(estimator, source("X", kind))
    if not isinstance(made, dict):
        if isinstance(made.type, Record):
            from flour.sklearn.estimators.compose import mixed

            made = made if mixed(made) else importer.matrix(made)
        return outputs(features=made)
    logs = made.pop("log_probabilities", None)
    if log_probabilities and hasattr(estimator, "predict_log_proba"):
        names = [name for name in made if name.startswith("probabilities")]
        made |= {f"log_{name}": made[name].log() if logs is None else logs for name in names}
    return outputs(**made)


def _refuse_others(estimator: object) -> None:
    """Raise UnknownEstimator for what is no estimator at all."""
    known = hasattr(estimator, "fit") or adapter_of(public_name(type(estimator)))
    if known or own_adapter(estimator) is not None:
        return
    if isinstance(estimator, StandIn):
        what = f"{public_name(type(estimator))} cannot be imported: the file has only its name"
        caveat, where = version_caveat(estimator), _itself(estimator)
        hint = _unpickling(caveat)
        raise UnknownEstimator(what, where=where, found=caveat or None, hint=hint)
    raise UnknownEstimator(
        "this is no estimator of scikit-learn's kind: it has no fit",
        where="from_sklearn",
        found=f"{type(estimator).__name__} {str(estimator)[:40]!r}",
        hint="pass the fitted estimator itself, or the path of its file",
    )


def _input_type(estimator: object, sample: object) -> Type:
    """The type of the program's input; an error about the sample says that it is the sample."""
    if sample is None:
        try:
            return input_type(estimator)
        except (AttributeError, TypeError) as problem:
            raise lacking(estimator, problem, "", version_caveat(estimator)) from problem
    try:
        return input_type(estimator, sample)
    except FlourError as problem:
        problem.where = problem.where or "sample"
        raise
    except (AttributeError, IndexError, TypeError, ValueError) as problem:
        if hasattr(getattr(problem, "obj", None), "get_params"):  # an estimator lacks it
            raise lacking(estimator, problem, "", version_caveat(estimator)) from problem
        raise NotRectangular(
            "the sample is no table of rows",
            where="sample",
            found=f"{type(sample).__name__}: {problem}"[:120],
            hint="pass a few rows as they will be predicted, such as X[:5]",
        ) from problem


# --- other versions ---------------------------------------------------------------------------


def warn(root: object, means: str) -> str:
    """Warn of an estimator that another version made; `means` says what follows."""
    said = version_caveat(root)
    if said:
        # Without a registry, which would keep all but the first model of a folder silent.
        text, place = f"{type(root).__name__}: {said}; {means}", provenance.here()
        warnings.warn_explicit(text, OtherVersionWarning, place.file, place.line)
    return said


def refuse_stand_in(model: object) -> None:
    """Refuse to ask a model that was read as data."""
    if isinstance(model, StandIn):
        raise OtherVersion(
            "a model that was read as data cannot be asked itself",
            where=type(model).__name__,
            found=version_caveat(model) or None,
            hint="verify it by the estimator: joblib.load(path), if you trust the file's author",
        )


def version_caveat(root: object) -> str:
    """The version that made an estimator, if it is known not to be the installed one; else "".

    Files say so. scikit-learn forgets it of those that a caller unpickles: they show it where
    their parameters are not those of the installed class.
    """
    for value in _values(root):
        if writer := vars(value).get(versions.KEY):
            return versions.differs(writer)
        if said := _strange_parameters(value):
            return said
    return ""


def writer_of(root: object) -> str:
    """The version that wrote an estimator, where it says so."""
    return str(next(filter(None, (vars(each).get(versions.KEY) for each in _values(root))), ""))


def _values(root: object) -> Iterator[Any]:
    """An estimator and, up to a number, the objects of scikit-learn within it."""
    rest, looked_at = [root], 0
    while rest and looked_at < _MOST_VALUES:
        value: Any = rest.pop()
        kind: Any = type(value)
        looked_at += 1
        if issubclass(kind, _SEQUENCES):
            some = [each for each in value[:_MOST_VALUES] if _may_hold(_kind_of(each))]
            rest += [each for each in some if isinstance(each, _SEQUENCES)]
            # Members of an ensemble are of one version: one of each class is enough.
            rest += {type(v): v for v in some if not isinstance(v, _SEQUENCES)}.values()
        elif _has_attributes(kind) or (value is root and hasattr(value, "__dict__")):
            yield value
            rest += [each for each in vars(value).values() if _may_hold(_kind_of(each))]


@lru_cache(1024)
def _has_attributes(kind: type) -> bool:
    """Return whether attributes hold the whole state of objects of this class."""
    return (
        kind.__module__.startswith("sklearn.")
        and bool(kind.__dictoffset__)
        and not issubclass(kind, type | dict | list | tuple | np.ndarray)
        and not any("__getattribute__" in vars(one) for one in kind.__mro__[:-1])
    )


#: The class of a value, which mypy takes for one without a hash.
_kind_of: Callable[[object], Any] = type


@lru_cache(1024)
def _may_hold(kind: Any) -> bool:
    return issubclass(kind, _SEQUENCES) or _has_attributes(kind)


def _strange_parameters(estimator: object) -> str:
    kind: Any = type(estimator)
    own, names = _parameters(kind), vars(estimator).keys()
    if own is None or (own <= names and names.isdisjoint(_GONE)):
        return ""
    strange = (own - names) or (names & _GONE) - own
    if not strange:
        return ""
    which = f"{kind.__name__} {'lacks' if strange & own else 'has'} {', '.join(sorted(strange))}"
    return (
        f"another version than the installed scikit-learn {versions.installed()} made it ({which})"
    )


@lru_cache(512)
def _parameters(kind: Fitted) -> frozenset[str] | None:
    """The parameters of an estimator of theirs; None of another class."""
    theirs = kind.__module__.startswith("sklearn.") and hasattr(kind, "get_params")
    known = theirs and hasattr(kind, "_get_param_names")  # kernels have the former only
    return frozenset(kind._get_param_names()) if known else None


#: Parameters that scikit-learn took away: of logistic regressions, ensembles, column transformers.
_GONE = frozenset(("multi_class", "base_estimator", "force_int_remainder_cols", "normalize"))
#: The consequence of another version: for an object in memory, and for one read as data.
_MEANS = (
    "it is read, and answers, as the installed version does where no difference is known",
    "it is read as data, and answers as that version does",
)
_SEQUENCES = (list, tuple)
#: How many values inside an estimator are looked at for its version.
_MOST_VALUES = 512
#: The way to steps that stay Python, of which a file that is read as data has only the names.
UNPICKLE = (
    "if it transforms rows and you trust the file's author, unpickle it: "
    "pretzel.compile(path, sample, trust_pickle=True, allow_python=True)"
)
_ALLOW = "from_sklearn(..., allow_python=True) calls it while predicting, as a Python stage"


class EstimatorImporter(Importer):
    """The importer that walks a fitted estimator."""

    def __init__(self, sample: object = None, *, allow_python: bool = False) -> None:
        self._depth, self._sample = 0, sample
        self._allow_python = allow_python
        self._frames: dict[Node, tuple[str, ...]] = {}
        #: The values that each step refuses of the node that reaches it, in the order of the steps.
        self.asked: list[tuple[Node, RefusedInput]] = []

    # --- children ----------------------------------------------------------------------------

    def adapt(self, estimator: Fitted, x: Flow) -> Flow | dict[str, Flow]:
        """The program of an estimator: features, or named outputs."""
        try:
            adapter = self._adapter(estimator)
        except UnknownEstimator as problem:
            self._ask(estimator, x)
            if self._allow_python and self._sample is not None and hasattr(estimator, "transform"):
                from flour.sklearn.estimators.function import python_columns

                return python_columns(estimator.transform, estimator, x, self, problem.what)
            return self._fallback(estimator, x, problem)
        if self._depth > 200:
            raise UnsupportedSetting("the estimators are nested too deeply", where=self.where())
        former = versions.FORMER.get(type(estimator).__name__, ())
        if not all(hasattr(estimator, name) for name in former):
            estimator = versions.renewed(estimator)
        self._depth += 1
        try:
            self._ask(estimator, x)
            result: Flow | dict[str, Flow] = adapter(estimator, x, self)
        except UnsupportedSetting as problem:
            problem.where = _joined(problem.where, self.where()) or _itself(estimator)
            result = self._fallback(estimator, x, problem)
        except FlourError as problem:
            problem.where = _joined(problem.where, self.where()) or _itself(estimator)
            raise
        except AttributeError as problem:
            raise lacking(estimator, problem, self.where(), self.caveat) from problem
        except Exception as problem:
            # A setting that fit() accepts and prediction does not, or one the adapter does not
            # expect.
            raise self._unreadable(estimator, problem) from problem
        finally:
            self._depth -= 1
        return result

    def _ask(self, estimator: Fitted, x: Flow) -> None:
        """Write down what the estimator refuses of x."""
        refused = refused_by(estimator, self.fitted)
        if refused is not None:
            self.asked.append((x.node, refused))

    def _fallback(
        self, estimator: Fitted, x: Flow, problem: ImportRefused
    ) -> Flow | dict[str, Flow]:
        """A step without an adapter by way of skl2onnx, if its answers agree on the sample."""
        hopeless = self._sample is None or not hasattr(estimator, "fit")
        # The installed library is no witness of another version, and is not asked of data.
        hopeless = hopeless or bool(self.caveat) or isinstance(estimator, StandIn)
        if hopeless or getattr(problem, "tried", False):
            raise problem
        if isinstance(x.type, Record) and "string" in map(str, dict(x.type.fields).values()):
            raise problem  # ONNX has no such rows, and to say so would blame the rows
        from flour.sklearn.fallback import through_onnx

        try:
            block = self.matrix(x)
            return through_onnx(estimator, block, np.asarray(self.rows(block)))
        except FlourError as other:
            reason = f"{other.what}: {other.found}" if other.found else other.what
            problem.found = f"{problem.found}; {reason}" if problem.found else reason
            problem.tried = True  # type: ignore[attr-defined]  # not by the steps around it again
            raise problem from other

    def transform(self, estimator: Fitted | None, x: Flow, name: str | None = None) -> Flow:
        """The features a transformer makes of x; `name` is the step's name for messages."""
        if estimator is None or (isinstance(estimator, str) and estimator == "passthrough"):
            return self.matrix(x)
        with provenance.step(name or type(estimator).__name__):
            result = self.adapt(estimator, x)
        if isinstance(result, dict):
            result = self.as_features(estimator, result)
        if self._allow_python:
            with suppress(AttributeError, KeyError, ValueError):
                if estimator._sklearn_output_config["transform"] == "pandas":
                    self._frames[result.node] = tuple(estimator.get_feature_names_out())
        return result

    def frame_names(self, x: Flow) -> tuple[str, ...]:
        """The names of the columns if a step answers a frame, as `set_output` has it."""
        if isinstance(x.node.op, Source) and hasattr(self._sample, "iloc"):
            return (str(getattr(self._sample, "name", None)),) * (not isinstance(x.type, Record))
        return self._frames.get(x.node, ())

    def predict(self, estimator: Fitted, x: Flow, name: str | None = None) -> dict[str, Flow]:
        """The named outputs of a predictor on x."""
        with provenance.step(name or type(estimator).__name__):
            result = self.adapt(estimator, x)
        return result if isinstance(result, dict) else {"features": result}

    def as_features(self, estimator: Fitted, outputs: dict[str, Flow]) -> Flow:
        """The features of an estimator that also predicts, as its `transform` has them."""
        for name in ("features", "distances"):
            if name in outputs:
                return outputs[name]
        raise UnsupportedSetting(
            f"{type(estimator).__name__} has no transform here",
            where=self.where() or None,
            hint=INSTEAD,
        )

    def _adapter(self, estimator: Fitted) -> Adapter:
        if isinstance(estimator, type):
            raise UnfittedEstimator(
                f"{estimator.__name__} is a class, not a fitted estimator",
                where=self.where() or _itself(estimator),
                hint=f"make one and fit it: {estimator.__name__}().fit(X, y)",
            )
        name = public_name(type(estimator))
        if (adapter := adapter_of(name) or own_adapter(estimator)) is not None:
            return adapter
        reason = NOT_NATIVE.get(name)
        raise UnknownEstimator(
            f"{name} cannot be imported" + (f" ({reason})" if reason else ""),
            where=self.where() or _itself(estimator),
            found=(self.caveat + "; 0.22 and later are read" * (self.fitted < (0, 22))) or None,
            hint=f"{_instead(estimator, self.caveat, known=bool(reason))}; "
            f"{page('reference/coverage')} lists what can",
        )

    def _unreadable(self, estimator: Fitted, problem: Exception) -> FlourError:
        name = type(estimator).__name__
        return UnsupportedSetting(
            f"{name} cannot be imported as it is fitted",
            where=self.where() or _itself(estimator),
            found=f"{type(problem).__name__}: {problem}"[:120]
            + (self.caveat and f"; {self.caveat}"),
            hint=SAMPLE
            if self._sample is None and "could not convert string" in str(problem)
            else f"if its own methods answer, report this bug of the import; {INSTEAD}",
        )

    # --- what a caller allows, and the sample ----------------------------------------------------

    def python(self, call: Any, what: str, otherwise: str = "") -> Function:
        """A function of the user's own, if allowed; `otherwise` is another way for the hint."""
        another = f"; {otherwise}" if otherwise else ""
        if isinstance(call, Global | StandIn):
            raise UnsupportedSetting(
                f"{what}: the file was read as data, and has only its name",
                where=self.where() or None,
                found=repr(call),
                hint=_unpickling(self.caveat),
            )
        self.need(self._allow_python, what, _ALLOW + another)
        return function(call)

    def rows(self, x: Flow) -> Any:
        """The rows of the sample as they reach this step; None without a sample."""
        if self._sample is None:
            return None
        x = without_unread(x)
        refuse_unreadable(self._sample, x.inputs().get("X"))
        return densify(x.reference(self._sample)["output"])


def lacking(estimator: Fitted, problem: Exception, where: str = "", caveat: str = "") -> FlourError:
    """The error for an attribute that an estimator has not: not fitted, or by another version."""
    name, found = type(estimator).__name__, str(problem)[:120]
    where = where or _itself(estimator)
    owner = getattr(problem, "obj", None)  # an ensemble that is not fitted has no length
    parts = (*_values(estimator), problem if owner is None else owner)
    fitted = any(each[-1] == "_" != each[0] for part in parts for each in vars(part))
    if not fitted and (not caveat or isinstance(estimator, StandIn)):
        hint = "call fit() before importing it"
        return UnfittedEstimator(f"{name} is not fitted", where=where, found=found, hint=hint)
    if not caveat and isinstance(estimator, StandIn) and writer_of(estimator):
        return UnsupportedSetting(
            f"{name} asks for what a file that is read as data does not have",
            where=where,
            found=found,
            hint=UNPICKLE,
        )
    return OtherVersion(
        f"{name} lacks what the installed version of its library would have fitted",
        where=where,
        found=f"{found}; {caveat or 'another version has probably written it'}",
        hint=versions.HINT,
    )


def _unpickling(caveat: str) -> str:
    """Return a way out for a step of which a file that is read as data has only the name."""
    return versions.HINT if caveat else UNPICKLE


def _instead(estimator: Fitted, caveat: str, *, known: bool) -> str:
    """Return a way out for a step without an adapter; `known`: it will never have one."""
    if isinstance(estimator, StandIn):
        return _unpickling(caveat)
    if hasattr(estimator, "transform"):
        return f"with a sample, {_ALLOW}"
    return INSTEAD if known else f"with a sample, it is tried by way of ONNX; {INSTEAD}"


def own_adapter(estimator: Fitted) -> Adapter | None:
    """The adapter of a class that has one of its own: the method `__pretzel__(self, flow)`."""
    kind: Any = type(estimator)
    method = getattr(kind, "__pretzel__", None)
    if method is None:
        return None
    name, returns = f"{kind.__name__}.__pretzel__", "it returns a flow, or a dict of named flows"

    def adapter(fitted: Fitted, x: Flow, to: Importer) -> Flow | dict[str, Flow]:
        try:
            made: Flow | dict[str, Flow] = method(fitted, x)
        except FlourError:
            raise
        except Exception as problem:
            said = f"{type(problem).__name__}: {problem}"[:120]
            raise UnsupportedSetting(f"{name} failed", found=said, hint=returns) from problem
        flows: list[Any] = list(made.values()) if isinstance(made, dict) else [made]
        fine = flows and all(isinstance(each, Flow) for each in flows)
        to.need(fine, f"{name} answered with {type(made).__name__}", returns)
        strange = {label for each in flows for label in each.inputs()} - set(x.inputs())
        to.need(not strange, f"{name} reads inputs of its own: {sorted(strange)}", "use the flow")
        return made

    return adapter


def _itself(estimator: Fitted) -> str:
    """The location of a problem with the estimator itself, not with a step of it."""
    return f"the estimator itself ({type(estimator).__name__})"


def _joined(inner: str | None, outer: str) -> str | None:
    if not inner or not outer or inner.startswith(outer.rstrip("'")):
        return inner or outer or None
    return f"{inner}, {outer}"
