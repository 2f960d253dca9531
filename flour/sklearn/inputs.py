"""The input type of a fitted estimator, from its fitted state: columns, dtypes, text or numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError, UnfittedEstimator
from flour.core.types import FLOATS, Pairs, Record, Scalar, Text, Tokens, Type, Vector, dtype_name
from flour.data.frames import as_column, frame_columns, is_sparse
from flour.language.adapters import (
    COLUMN_TYPES,
    INPUT_TYPES,
    SAMPLE,
    Fitted,
    adapter_of,
    public_name,
)

_NUMBER = Scalar("float64")
#: Whole numbers beyond it are rounded by float64.
_EXACT = 1 << 53


def input_type(estimator: Fitted, sample: object = None) -> Type:
    """The type of X: from the sample's own columns, or from what the estimator remembers."""
    if (reader := INPUT_TYPES.get(type(estimator).__module__)) is not None:
        return reader(estimator)
    return _remembered(estimator) if sample is None else _from_sample(estimator, sample)


def _remembered(estimator: Fitted) -> Type:
    if takes_text(estimator):
        return documents(estimator)
    kind = rows_of_names(estimator)
    if kind is not None:
        return kind
    if type(estimator).__name__ in _ONE_VALUE:
        if type(estimator).__name__ == "IsotonicRegression":
            return Scalar(dtype_name(estimator.X_thresholds_.dtype))
        return Scalar(_stored(np.asarray(estimator.classes_)))
    names = _fitted_names(estimator)
    width = len(names) if names is not None else _own_width(estimator)
    if width is None:
        width = next((w for w in map(_own_width, _leaves(estimator)) if w is not None), None)
    if not width:
        raise UnfittedEstimator(
            f"{type(estimator).__name__} does not say how many columns it was fitted on",
            where=f"the estimator itself ({type(estimator).__name__})",
            hint=f"call fit() first; if it is fitted, {SAMPLE}",
        )
    kinds = column_types(estimator, int(width))
    return _record_or_vector(names, kinds, renamed=_renamed(estimator))


def _renamed(estimator: Fitted) -> bool:
    """True if LightGBM, which checks no names, may have written blanks as underscores."""
    names = getattr(estimator, "feature_names_in_", ())
    if not any("_" in str(name) for name in names):
        return False
    if type(estimator).__module__.startswith("lightgbm."):
        return True
    return any(
        list(getattr(child, "feature_names_in_", ())) == list(names) and _renamed(child)
        for child in _entry_points(estimator)
    )


def _fitted_names(estimator: Fitted) -> Any:
    """The names of the columns that an estimator was fitted on, if they had any."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None and type(estimator).__module__ == "catboost.core":
        names = getattr(estimator, "feature_names_", None)  # numbers where there are no names
        names = None if names == [str(j) for j in range(len(names or ()))] else names
    return names


def takes_text(estimator: Fitted) -> bool:
    """True if the first step that reads the data is a text vectoriser."""
    if type(estimator).__name__ in _TEXT or public_name(type(estimator)) in _EMBEDDINGS:
        return True
    return any(takes_text(child) for child in _entry_points(estimator))


def documents(estimator: Fitted) -> Text:
    """The type of documents, with the decoding of the vectorisers that read them.

    Where those disagree there is no decoding, and bytes are refused.
    """
    decodings = set(_decodings(estimator))
    return decodings.pop() if len(decodings) == 1 else Text()


def _decodings(estimator: Fitted) -> Iterator[Text]:
    if type(estimator).__name__ in _TEXT:
        try:
            yield Text(estimator.encoding, estimator.decode_error)
        except ParameterError:
            yield Text()  # the library finds out when it meets bytes, and so do we
    for child in _entry_points(estimator):
        yield from _decodings(child)


def rows_of_names(estimator: Fitted) -> Type | None:
    """The type of rows of any names, or of words, if the first step reads such rows."""
    match type(estimator).__name__:
        case "DictVectorizer":
            return Pairs(estimator.separator, lenient=True)
        case "FeatureHasher":
            return Tokens() if estimator.input_type == "string" else Pairs()
    kinds = map(rows_of_names, _entry_points(estimator))
    return next((kind for kind in kinds if kind is not None), None)


_TEXT = {"CountVectorizer", "TfidfVectorizer", "HashingVectorizer"}
_EMBEDDINGS = {
    "embetter.text.TextEncoder",
    "model2vec.inference.model.StaticModelPipeline",
    "model2vec.model.StaticModel",
    "sentence_transformers.SentenceTransformer.SentenceTransformer",
    "sentence_transformers.sentence_transformer.model.SentenceTransformer",
}
#: Estimators that are fitted on one value per row.
_ONE_VALUE = {"IsotonicRegression", "LabelEncoder", "LabelBinarizer"}


def column_types(estimator: Fitted, width: int) -> list[Type]:
    """The type of each input column, as far as the fitted state tells (else float64)."""
    kinds: list[Type | None] = [None] * width
    _note(estimator, list(range(width)), kinds)
    return [kind or _NUMBER for kind in kinds]


def _note(estimator: Fitted, columns: list[int], kinds: list[Type | None]) -> None:
    """Fill in the types of the input columns that this estimator's fitted state gives."""
    places = getattr(estimator, "_transformer_to_input_indices", None)  # of a ColumnTransformer
    if places is not None:
        for name, child, picked in estimator.transformers_:
            where = places.get(name, [])
            if not isinstance(child, str) and len(where):
                inner = [columns[i] for i in where]
                if isinstance(picked, str | int) and takes_text(child):
                    kinds[inner[0]] = _agreed(kinds[inner[0]], documents(child))
                else:
                    _note(child, inner, kinds)
        return
    dtypes = _categories(estimator)
    if dtypes is not None and len(dtypes) == len(columns):
        for column, kind in zip(columns, dtypes, strict=True):
            if isinstance(kind, Scalar) and kind.given:
                kind = Scalar(kind.dtype, 1 + columns[0])  # noqa: PLW2901 (its group is known here)
            kinds[column] = _agreed(kinds[column], kind)
        return
    for child in _entry_points(estimator):
        _note(child, columns, kinds)


def _agreed(other: Type | None, kind: Type | None) -> Type | None:
    """A column's type, given the one from another step that may read it as well.

    Beside an encoder a vectoriser reads strings: they may be missing, and are not decoded.
    """
    documents = [isinstance(each, Text) for each in (other, kind)]
    if other is None or other == kind or not any(documents):
        return other or kind
    return Text() if all(documents) else Scalar("string")


def _categories(estimator: Fitted) -> Sequence[Type | None] | None:
    """The column types of an encoder or imputer, from what it learnt."""
    if hasattr(estimator, "categories_") and type(estimator).__name__ != "CategoricalNB":
        return [Scalar(_stored(np.asarray(values))) for values in estimator.categories_]
    frame = _of_frame(estimator)
    if frame is not None:
        return frame
    statistics = getattr(estimator, "statistics_", None)
    if statistics is not None:
        return [Scalar("string" if isinstance(v, str) else "float64") for v in statistics]
    applies = type(estimator).__name__ == "FunctionTransformer"  # others, to their target
    func = estimator.func if applies else None
    if isinstance(func, np.ufunc) or func is np.clip:
        return [Scalar("float64", 1)] * (_own_width(estimator) or 0)
    return None


def _of_frame(estimator: Fitted) -> Sequence[Type | None] | None:
    """The column types of an estimator that says what frame it was trained on."""
    adapter_of(public_name(type(estimator)))
    reader = COLUMN_TYPES.get(type(estimator).__module__)
    fitted = getattr(estimator, "__sklearn_is_fitted__", None)
    if reader is None or (fitted is not None and not fitted()):  # an ensemble's prototype
        return None
    return reader(estimator)


def _stored(values: Any) -> str:
    """Categories learnt from an object column may still all be numbers."""
    if values.dtype.kind == "O":
        texts = any(isinstance(value, str) for value in values)
        return "string" if texts or not len(values) else "float64"
    if values.dtype == np.int64 and np.any((values > _EXACT) | (values < -_EXACT)):
        return "int64"  # float64 would make one of two of them
    return "string" if values.dtype.kind == "U" else "float64"


def _entry_points(estimator: Fitted) -> Iterator[Any]:
    """The children that read the estimator's own input."""
    if hasattr(estimator, "steps"):
        steps = (s for _, s in estimator.steps if s is not None and not isinstance(s, str))
        first = (
            s for s in steps if not hasattr(s, "fit_resample") and getattr(s, "func", s) is not None
        )
        yield from _readers([*first])
    for _, child in getattr(estimator, "transformer_list", ()):
        if not isinstance(child, str):
            yield child
    for name in ("best_estimator_", "estimator_", "classifier_", "regressor_", "_preprocessor"):
        child = getattr(estimator, name, None)
        if child is not None and not isinstance(child, str):
            yield child
    for each in getattr(estimator, "calibrated_classifiers_", ())[:1]:
        yield getattr(each, "estimator", None) or each.base_estimator  # to 1.1
    children = getattr(estimator, "estimators_", None)
    if isinstance(children, list):
        if all(public_name(type(child)).startswith("sklearn.tree.") for child in children):
            children = children[:1]  # all know the same of their input
        yield from (child for child in children if hasattr(child, "get_params"))


def _readers(steps: list[Any]) -> Iterator[Any]:
    """The first step, and those behind that read all of its columns by their names."""
    yield from steps[:1]
    for before, step in pairwise(steps):
        names = getattr(step, "feature_names_in_", ())
        frame = type(before).__module__.startswith("feature_engine.")
        if not frame or [*names] != [*getattr(before, "feature_names_in_", ())]:
            return
        yield step


def _leaves(estimator: Fitted) -> Iterable[Any]:
    for child in _entry_points(estimator):
        yield child
        yield from _leaves(child)


def _own_width(estimator: Fitted) -> int | None:
    """The number of columns an estimator was fitted on, from its fitted arrays."""
    if getattr(estimator, "n_features_in_", None) is not None:
        return int(estimator.n_features_in_)
    if type(estimator).__name__ == "IsotonicRegression":
        return 1
    trained = np.shape(getattr(estimator, "X_train_", ()))  # Gaussian processes
    return int(trained[1]) if len(trained) == 2 else None


# --- from a sample ------------------------------------------------------------------------------


def _from_sample(estimator: Fitted, sample: Any) -> Type:
    kind = rows_of_names(estimator)
    if kind is not None:
        return kind
    if is_sparse(sample):
        return Vector(int(sample.shape[1]), _number(sample.dtype), sparse=True)
    columns = frame_columns(sample)
    if columns is not None:
        return _from_frame(estimator, {name: _shown(c) for name, c in columns.items()})
    values = np.asarray(sample)
    if values.ndim == 1:
        return (
            documents(estimator)
            if takes_text(estimator)
            else Scalar("string" if values.dtype.kind in "OU" else _number(values.dtype))
        )
    if values.dtype.kind in "OU":
        return _record_or_vector(None, [_kind(values[:, j]) for j in range(values.shape[1])])
    width = int(values.shape[1])
    kind = _record_or_vector(None, column_types(estimator, width))
    given = getattr(kind, "given", 0)
    return Vector(width, _number(values.dtype), given=given)


def _shown(column: object) -> Any:
    """A column of the sample; one that may hold missing values is of floats, also if none does."""
    array = as_column(column)
    nullable = hasattr(getattr(column, "dtype", None), "na_value") and array.dtype.kind in "biu"
    return array.astype(np.float64) if nullable else array


def _from_frame(estimator: Fitted, columns: dict[str, Any]) -> Type:
    """The sample's column types, in the order in which the estimator was fitted."""
    fitted = _fitted_names(estimator)
    names = list(columns) if fitted is None else [str(name) for name in fitted]
    if len(names) == len(columns) and not {*names} <= {*columns} and _renamed(estimator):
        names = list(columns)
    guesses = column_types(estimator, len(names))
    fields, unread = [], []
    for name, guess in zip(names, guesses, strict=True):
        kind = guess
        if name not in columns or not _has_place(columns[name]):
            unread.append(name)  # unless something reads it: see `refuse_unreadable`
        elif isinstance(guess, Scalar):
            kind = _kind(columns[name])
        if isinstance(guess, Scalar) and isinstance(kind, Scalar):
            kind = Scalar(kind.dtype, guess.given)
        fields.append((name, kind))
    return Record(tuple(fields), unread=tuple(unread))


def _has_place(column: NDArray[Any]) -> bool:
    """Return whether a program can read a column of this dtype."""
    try:
        return bool(_kind(column))
    except ParameterError:
        return False


def refuse_unreadable(sample: object, kind: Type | None) -> None:
    """Raise for a column of the sample that a program cannot read, and reads."""
    columns = frame_columns(sample) if isinstance(kind, Record) and not is_sparse(sample) else None
    for name, column in (columns or {}).items():
        if isinstance(kind, Record) and name in kind.names and name not in kind.unread:
            try:
                _kind(_shown(column))
            except ParameterError as problem:
                problem.where = f"sample, column {name!r}"
                raise


def _kind(column: Any) -> Type:
    if column.dtype.kind == "O":
        return Scalar("string" if any(isinstance(v, str) for v in column) else "float64")
    return Scalar("string" if column.dtype.kind == "U" else _number(column.dtype))


def _number(dtype: object) -> str:
    name = dtype_name(dtype)
    return name if name in FLOATS or name in ("int64", "bool", "string") else "float64"


def _record_or_vector(names: Any, kinds: list[Type], *, renamed: bool = False) -> Type:
    """A vector where all columns are nameless numbers, else a record."""
    if names is None and kinds.count(_NUMBER) == len(kinds):
        return Vector(len(kinds), given=max(getattr(kind, "given", 0) for kind in kinds))
    if names is None:
        return Record(tuple((f"x{j}", kind) for j, kind in enumerate(kinds)), positional=True)
    return Record(tuple((str(n), kind) for n, kind in zip(names, kinds, strict=True)), renamed)
