"""Programs of estimators: a table by dotted name, so that nothing is imported to fill it.

    @adapts("sklearn.preprocessing.MaxAbsScaler")
    def _max_abs(fit, x, to):
        return to.floats(x).divide(fit.scale_)

The function gets the fitted estimator, the flow that reaches it and the importer (for children
and common conversions). A transformer returns its features; a predictor returns a dict of named
outputs (label, probabilities, scores, value, distances).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from flour.core import provenance
from flour.core.callables import Function
from flour.core.errors import UnsupportedSetting
from flour.core.modules import load_adapter
from flour.core.op import belongs_to_flour
from flour.core.pages import page
from flour.core.types import Record, Scalar, Type, Vector
from flour.language.flow import Flow


class Fitted(Protocol):
    """A fitted object of another library: any object, read by attributes that have no types."""

    def __getattribute__(self, name: str, /) -> Any:
        """The library's stored attribute of this name."""


Adapter = Callable[[Fitted, Flow, "Importer"], Any]
ADAPTERS: dict[str, Adapter] = {}
#: Dotted name -> why it is not native yet ("planned: ...") or never will be ("refused: ...").
NOT_NATIVE: dict[str, str] = {}
_F = TypeVar("_F", bound=Adapter)


def adapts(*classes: str | type) -> Callable[[_F], _F]:
    """Register an adapter for classes, given by their public dotted names or themselves.

    One from outside replaces ours, whichever of the two modules is imported first.
    """

    def register(adapter: _F) -> _F:
        ours = belongs_to_flour(adapter.__module__)
        for each in classes:
            name = each if isinstance(each, str) else public_name(each)
            known = ADAPTERS.get(name)
            if known is None or not ours or belongs_to_flour(known.__module__):
                ADAPTERS[name] = adapter
        return adapter

    return register


def declines(reason: str, *names: str) -> None:
    """Say why classes have no adapter; `reason` starts with "planned" or "refused"."""
    for name in names:
        NOT_NATIVE[name] = reason


def public_name(cls: type) -> str:
    """The dotted name a class is imported by: its module down to the first private part."""
    public = f".{cls.__module__}".partition("._")[0]
    return f"{public}.{cls.__qualname__}"[1:]


_ColumnTypes = Callable[[Fitted], Sequence[Type | None] | None]
#: A module of objects that are no estimators -> the type of the input of one.
INPUT_TYPES: dict[str, Callable[[Fitted], Type]] = {}
#: A module of estimators -> the types of the columns one was fitted on; None: it does not say.
COLUMN_TYPES: dict[str, _ColumnTypes] = {}
_Reader = TypeVar("_Reader", bound=_ColumnTypes)


def knows_columns(module: str) -> Callable[[_Reader], _Reader]:
    """Register what tells the types of the columns that estimators of a module were fitted on.

    It stands in the module of their adapters, which is imported before it is asked.
    """

    def register(reader: _Reader) -> _Reader:
        COLUMN_TYPES[module] = reader
        return reader

    return register


def adapter_of(name: str) -> Adapter | None:
    """The adapter of the class of this dotted name, imported if it is one of ours.

    Its own module is imported first, and every module where the index does not know it.
    """
    for wanted in (name, ""):
        if name not in ADAPTERS:
            load_adapter(wanted)
    return ADAPTERS.get(name)


#: The way out where a model does not say what its columns are.
SAMPLE = "pass sample= (in the shell --sample ROWS) with a few rows of its input, such as X[:5]"
INSTEAD = f"replace this step, or write an adapter: {page('how-to/custom-transformers')}"


def of_logarithms(logs: Flow) -> dict[str, Flow]:
    """The probabilities of these logarithms, beside them: taken back, tiny ones would be zero."""
    return {"probabilities": logs.exp(), "log_probabilities": logs}


class Importer:
    """The questions that an adapter may ask while it translates an estimator."""

    #: Trees keep how much of the training data reached each node, for attribution.
    covers: bool = False
    #: Which version of its library wrote the model, in words, where it is not the installed one.
    caveat: str = ""
    #: The version of scikit-learn that fitted the model, where it is known to be a former one.
    fitted: tuple[int, int] = (999, 0)

    # --- children: the importer of estimators knows --------------------------------------------

    def transform(self, estimator: Fitted | None, x: Flow, name: str | None = None) -> Flow:
        """The features a transformer makes of x; `name` is the step's name for messages."""
        raise NotImplementedError

    def predict(self, estimator: Fitted, x: Flow, name: str | None = None) -> dict[str, Flow]:
        """The named outputs of a predictor on x."""
        raise NotImplementedError

    def adapt(self, estimator: Fitted, x: Flow) -> Flow | dict[str, Flow]:
        """The program of an estimator: features, or named outputs."""
        raise NotImplementedError

    def as_features(self, estimator: Fitted, made: dict[str, Flow]) -> Flow:
        """The answer of `transform` of an estimator that also predicts."""
        raise NotImplementedError

    def python(self, call: object, what: str, otherwise: str = "") -> Function:
        """A function of the user's own, where such may be called; `otherwise` is another way."""
        raise NotImplementedError

    def frame_names(self, x: Flow) -> tuple[str, ...]:
        """The names of the columns where this step is handed a frame by the one before it."""
        raise NotImplementedError

    def rows(self, x: Flow) -> Any:
        """The sample as it reaches this step; None without a sample."""
        raise NotImplementedError

    # --- refusing ----------------------------------------------------------------------------

    def where(self) -> str:
        """The step being imported, for messages."""
        path = provenance.current_step()
        return f"step '{path}'" if path else ""

    def refuse(self, what: str, hint: str | None = None) -> Any:
        """Raise UnsupportedSetting: this configuration has no exact translation."""
        raise UnsupportedSetting(what, where=self.where() or None, hint=hint or INSTEAD)

    def need(self, fine: object, what: str, hint: str | None = None) -> None:
        """Refuse unless `fine`."""
        if not fine:
            self.refuse(what, hint)

    # --- common conversions ------------------------------------------------------------------

    def matrix(self, x: Flow) -> Flow:
        """X as one vector: a record's columns side by side, a vector as it is."""
        if isinstance(x.type, Record):
            return x.columns(x.type.names)
        return x.as_vector() if isinstance(x.type, Scalar) else x

    def floats(self, x: Flow) -> Flow:
        """X as a vector of float32 or float64 (what FLOAT_DTYPES validation makes of it)."""
        return self.matrix(x).as_float()

    def doubles(self, x: Flow) -> Flow:
        """X as a vector of float64."""
        return self.matrix(x).cast("float64")

    def is_sparse(self, x: Flow) -> bool:
        """True if x is stored sparsely."""
        return isinstance(x.type, Vector) and x.type.sparse

    def promoted(self, x: Flow, *arrays: object) -> Flow:
        """X in the dtype numpy gives to arithmetic between it and these arrays.

        Only the arrays decide what is done: the program may meet data of another float width.
        """
        dtypes = (getattr(a, "dtype", None) or np.asarray(a).dtype for a in arrays)
        narrow = np.result_type(np.float32, *dtypes) == np.float32
        return self.floats(x) if narrow else self.doubles(x)

    # --- outputs -----------------------------------------------------------------------------

    def classifier(
        self, classes: NDArray[Any], scores: Flow, probabilities: Flow | None = None
    ) -> dict[str, Flow]:
        """The outputs of a classifier that decides by its scores.

        Two classes have one column of scores: above zero is the second class. More have one
        column each, and the largest wins.
        """
        kind = scores.type
        if isinstance(kind, Vector) and kind.width == 1:
            scores = scores.element(0)
            index = scores.greater(0.0).cast("int64")
        else:
            index = scores.arg_max()
        made = {"label": index.take(classes)}
        if probabilities is not None:
            made["probabilities"] = probabilities
        return {**made, "scores": scores}
