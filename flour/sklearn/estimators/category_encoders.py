"""category_encoders: a table of numbers for the categories of each column, from an encoder's state.

An encoder replaces every category of a column by numbers, whatever its method: most give it a code
(`ordinal_encoder`), and have a series or a frame of numbers by code (`mapping`). Which version
wrote one shows in its attributes only: to 2.5 `feature_names`, from 2.6 on `feature_names_out_`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from flour.core.types import Record, Scalar, Type
from flour.language.adapters import Fitted, Importer, adapts, declines, knows_columns
from flour.language.flow import Flow
from flour.ops.categories import Coding, codes_of, pick
from flour.ops.categorise import flatten

#: The encoders by their modules: every number that they make depends on one column.
_ENCODERS = {
    "backward_difference": "BackwardDifferenceEncoder",
    "basen": "BaseNEncoder",
    "binary": "BinaryEncoder",
    "cat_boost": "CatBoostEncoder",
    "count": "CountEncoder",
    "glmm": "GLMMEncoder",
    "gray": "GrayEncoder",
    "helmert": "HelmertEncoder",
    "james_stein": "JamesSteinEncoder",
    "leave_one_out": "LeaveOneOutEncoder",
    "m_estimate": "MEstimateEncoder",
    "one_hot": "OneHotEncoder",
    "ordinal": "OrdinalEncoder",
    "polynomial": "PolynomialEncoder",
    "quantile_encoder": "QuantileEncoder",
    "rankhot": "RankHotEncoder",
    "sum_coding": "SumEncoder",
    "target_encoder": "TargetEncoder",
    "woe": "WOEEncoder",
}
_NAMES = [f"category_encoders.{module}.{name}" for module, name in _ENCODERS.items()]
declines(
    "refused: it hashes every value with a function of hashlib; OrdinalEncoder or OneHotEncoder "
    "keep the categories",
    "category_encoders.hashing.HashingEncoder",
)
declines(
    "planned: it is several encoders in one; a QuantileEncoder for each quantile is imported",
    "category_encoders.quantile_encoder.SummaryEncoder",
)
#: Numbers for a value of a column, one for each column that is made of it; None: it is refused.
_Row = list[float] | None
_Lookup = Callable[[Any], _Row]
_UNKNOWN, _MISSING = -1.0, -2.0
#: A value that no column holds, and one that is missing; None beside strings is one of the two.
_NEW, _GAP = object(), float("nan")


class _TableColumn(NamedTuple):
    """The categories of a column, and what becomes of them."""

    categories: list[Any]
    #: The names of the columns that are made of it.
    names: list[str]
    answer: _Lookup


@adapts(*_NAMES)
def _encoder(fit: Fitted, x: Flow, to: Importer) -> Flow:
    fit = vars(fit).get("base_n_encoder", fit)  # to 2.2
    composed = getattr(fit, "composite_cols", None) or getattr(fit, "hierarchy", None) is not None
    to.need(not composed, "it joins columns, or reads a hierarchy", "make such columns before it")
    columns = {name: _column(fit, name, to) for name in map(str, fit.cols)}
    owners = {made: name for name, each in columns.items() for made in each.names}
    inputs = _inputs(fit, owners, x.type)
    codes = {name: _coded(name, inputs, each, x, to) for name, each in columns.items()}

    def part(name: str) -> Flow:
        """One column that the encoder makes: a table's, or one of the input as it is."""
        if name not in owners and name in inputs:
            same = pick(x, [inputs.index(name)])
            stays = getattr(same.type, "dtype", "") == "string"
            to.need(not stays, f"column {name!r} stays strings", "encode it, or drop it")
            return to.matrix(same).cast("float64")
        to.need(name in owners or name == "intercept", f"column {name!r} comes of nothing")
        of = owners.get(name, next(iter(owners.values())))  # to 2.6, "intercept" is of none
        flow, table = codes[of]
        place = columns[of].names.index(name) if name in owners else None
        flat = [1.0 if place is None else row[place] for row in table]
        return flow.look_up(*flatten([flat], np.float64), np.array([np.nan]))

    parts = [part(str(name)) for name in _attribute(fit, "feature_names_out_", "feature_names")]
    return parts[0].concat(*parts[1:]) if len(parts) > 1 else parts[0]


def _attribute(fit: Fitted, *names: str) -> Any:
    """The first of these attributes that an encoder has."""
    return next((found for name in names if (found := vars(fit).get(name)) is not None), None)


def _inputs(fit: Fitted, owners: dict[str, str], kind: Type | None = None) -> list[str]:
    """The names of the columns that an encoder reads; to 2.5 it has those that it makes only."""
    named = _attribute(fit, "feature_names_in_")
    if named is None and isinstance(kind, Record):
        named = kind.names
    if named is not None:
        return [str(name) for name in named]
    made = [str(name) for name in fit.feature_names if name != "intercept"]
    return list(dict.fromkeys(owners.get(each, each) for each in made))


def _coded(
    name: str, inputs: list[str], column: _TableColumn, x: Flow, to: Importer
) -> tuple[Flow, list[list[float]]]:
    """The number of each value of a column, and the row of a table for each number."""
    texts = any(isinstance(value, str) for value in column.categories)
    gaps = [_GAP, None] if texts else [_GAP]
    new, kept = column.answer(_NEW), [each for each in gaps if column.answer(each) is not None]
    fine = new is None or len(kept) == len(gaps)
    to.need(fine, f"it refuses missing values in column {name!r}", _HINT)
    rows = [*map(column.answer, [*column.categories, *kept]), new]
    coding = Coding(np.arange(len(rows) - 1), None if new is None else len(rows) - 1)
    flow = codes_of(
        pick(x, [inputs.index(name)]),
        [[*column.categories, *kept]],
        [coding],
        to,
        strict=new is None,
    )
    return flow, [row or [np.nan] * len(column.names) for row in rows]


_MEANS = "fit it with handle_missing='return_nan', or impute before"
_HINT = "fit it with handle_missing='value', or impute before"


# --- tables ---------------------------------------------------------------------------------------


def _column(fit: Fitted, name: str, to: Importer) -> _TableColumn:
    """The values that an encoder makes of a column."""
    kind = type(fit).__name__
    to.need(fit.mapping is not None and fit.cols is not None, "it is not fitted")
    own = fit.mapping if kind == "OrdinalEncoder" else _mapping(fit, name)
    if kind == "CountEncoder" or kind in _BY_MEAN:
        found = _table(own)
        answer = _counts(fit, name, found) if kind == "CountEncoder" else _means(fit, found, to)
        categories = [*found]
    else:
        encoder = fit if kind == "OrdinalEncoder" else fit.ordinal_encoder
        codes = {label: row[0] for label, row in _table(_mapping(encoder, name)).items()}
        answer, categories = _by_code(fit, encoder, own, codes, to), [*codes]
    if not {"feature_names_out_", "invariant_cols"} & {*vars(fit)}:  # to 2.4
        alike = kind != "CountEncoder" and getattr(fit, "a", 1) == 1
        alike = alike and str(answer(_NEW)) == str(answer(_GAP))
        to.need(alike, "versions before 2.5 differ in what they make of missing values", _HINT)
    lumped = getattr(fit, "min_group_lumping_", None) or getattr(fit, "_min_group_categories", {})
    into = {_label(value): one for value, one in lumped.get(name, {}).items()}
    if not any(isinstance(value, str) for value in into):  # a name in place of numbers
        categories = [value for value in categories if value not in into.values()]
    known = [value for value in dict.fromkeys([*into, *categories]) if value is not _GAP]
    refuses, gaps = fit.handle_missing == "error", (_GAP, None)
    made = (
        [str(each) for each in own.columns]
        if isinstance(fit.mapping, list) and kind != "OrdinalEncoder"
        else [name]
    )
    return _TableColumn(
        known,
        made,
        lambda value: None if refuses and value in gaps else answer(into.get(_label(value), value)),
    )


def _mapping(encoder: Fitted, name: str) -> Any:
    """The table of a column."""
    if isinstance(encoder.mapping, dict):
        return {str(key): table for key, table in encoder.mapping.items()}[name]
    return {str(each["col"]): each["mapping"] for each in encoder.mapping}[name]


def _label(value: object) -> Any:
    missing = value is None or value != value  # noqa: PLR0124 (the definition of NaN)
    return _GAP if missing else value  # one object, as NaN is no other NaN


def _table(found: Any) -> dict[Any, list[float]]:
    """The rows of a series or a frame by their labels."""
    if isinstance(found, dict):
        return {_label(value): [float(code)] for value, code in found.items()}
    rows = np.asarray(found.to_numpy(), np.float64)
    rows = rows.reshape(len(rows), -1)
    return {_label(value): row.tolist() for value, row in zip(found.index, rows, strict=True)}


def _by_code(
    fit: Fitted, encoder: Fitted, own: object, codes: dict[Any, float], to: Importer
) -> _Lookup:
    """The values of a category by the code that its ordinal encoder gives it."""
    unknown, gap = (_number(encoder, name, to) for name in ("handle_unknown", "handle_missing"))

    def code(value: object) -> float:
        found = codes.get(_label(value), _UNKNOWN if unknown is None else unknown)
        return gap if found == _MISSING and gap is not None else found

    if fit is encoder:
        refuses = fit.handle_unknown == "error"
        return lambda value: None if refuses and _label(value) not in codes else [code(value)]
    rows = _table(own)
    width = len(next(iter(rows.values()), ()))
    rank = type(fit).__name__ == "RankHotEncoder"
    none = [0.0 if rank and fit.handle_unknown in ("value", "error") else np.nan] * width
    hot = type(fit).__name__ == "OneHotEncoder"

    def answer(value: object) -> _Row:
        found = code(value)
        if fit.handle_unknown == "error" and found == _UNKNOWN:
            return None
        if found != found:  # noqa: PLR0124 (the definition of NaN)
            if rank:
                return none if fit.handle_missing in ("value", "ignore") else [np.nan] * width
            found = _MISSING if hot else found
        return rows.get(found, none)

    return answer


def _number(encoder: Fitted, setting: str, to: Importer) -> float | None:
    """The number that stands for unknown or missing values; None: the code of such."""
    how = getattr(encoder, setting)
    if how == "value":
        return None
    if isinstance(how, str) or "feature_dtypes_in_" not in vars(encoder):  # numbers: since 2.11
        return np.nan if setting == "handle_unknown" or how == "return_nan" else None
    to.need(isinstance(how, int | float), f"{setting} is a function", f"give {setting} a number")
    return float(how)


_BY_MEAN = ("LeaveOneOutEncoder", "CatBoostEncoder")


def _means(fit: Fitted, found: dict[Any, list[float]], to: Importer) -> _Lookup:
    """The mean of the target by category; that of all where a category was there once."""
    mean, weight = float(fit._mean), float(getattr(fit, "a", 0.0))
    told = _GAP not in found or fit.handle_missing == "return_nan"
    told = told or not any(isinstance(value, str) for value in found)
    to.need(told, "its answers for missing strings depend on the other rows of the call", _MEANS)

    def answer(value: object) -> _Row:
        gap = value is _GAP or value is None
        how = fit.handle_missing if gap else "" if value in found else fit.handle_unknown
        if how == "return_nan":
            return [np.nan]
        if value not in found:
            return None if how == "error" else [mean]
        total, count = found[value]
        return [(total + mean * weight) / (count + weight) if count > 1 else mean]

    return answer


def _counts(fit: Fitted, name: str, found: dict[Any, list[float]]) -> _Lookup:
    """The number of times that a category was there."""
    unknown, missing = fit._handle_unknown[name], fit._handle_missing[name]
    zero = unknown == "value" and missing != "return_nan" and "_handle_missing" in vars(fit)

    def answer(value: object) -> _Row:
        row = found.get(_label(value), [np.nan])
        if not np.isnan(row[0]):
            return row
        if unknown == "error":
            return None
        return [0.0] if zero else row if isinstance(unknown, str) else [float(unknown)]

    return answer


def _column_types(fit: Fitted) -> list[Type] | None:
    """The types of the columns that an encoder was fitted on."""
    if type(fit).__name__ not in _ENCODERS.values():
        return None
    fit = vars(fit).get("base_n_encoder", fit)
    columns = {name: _column(fit, name, Importer()) for name in map(str, fit.cols)}
    owners = {made: name for name, each in columns.items() for made in each.names}
    texts = {
        name
        for name, each in columns.items()
        if any(isinstance(value, str) for value in each.categories)
    }
    return [Scalar("string" if name in texts else "float64") for name in _inputs(fit, owners)]


for _module in _ENCODERS:
    knows_columns(f"category_encoders.{_module}")(_column_types)
