"""feature_engine's transformers: columns of a frame are changed, added or dropped by their names.

A transformer keeps the names of its columns in the order of the frame it was fitted on, so columns
go by number here. What it has learnt is data: numbers and tables by the name of the column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.types import LARGEST, Scalar, Type, Vector
from flour.language.adapters import Fitted, Importer, adapts, declines, knows_columns
from flour.language.flow import Flow
from flour.ops.categories import Coding, codes_of, pick, text_columns
from flour.ops.categorise import flatten
from flour.ops.impute import EITHER, ImputeText, IsMissingText
from flour.ops.require import RequireFinite, RequirePresent, above
from flour.ops.structure import TakeText
from flour.sklearn.estimators.compose import beside

#: Some columns of one kind, and their names.
_Change = Callable[[Flow, list[str]], Flow]


def _modules(package: str, **classes: str) -> list[str]:
    """The dotted names of the classes in these modules of a package."""
    named = ((module, name) for module, names in classes.items() for name in names.split())
    return [f"feature_engine.{package}.{module}.{name}" for module, name in named]


_IMPUTERS = _modules(
    "imputation",
    mean_median="MeanMedianImputer",
    arbitrary_number="ArbitraryNumberImputer",
    end_tail="EndTailImputer",
    categorical="CategoricalImputer",
)
_ENCODERS = _modules(
    "encoding",
    ordinal="OrdinalEncoder",
    count_frequency="CountFrequencyEncoder",
    mean_encoding="MeanEncoder",
    woe="WoEEncoder",
    decision_tree="DecisionTreeEncoder",
)
_BINS = _modules(
    "discretisation",
    equal_width="EqualWidthDiscretiser",
    equal_frequency="EqualFrequencyDiscretiser",
    geometric_width="GeometricWidthDiscretiser",
    arbitrary="ArbitraryDiscretiser",
)
_CAPPERS = _modules("outliers", winsorizer="Winsorizer", artbitrary="ArbitraryOutlierCapper")
_FUNCTIONS = _modules(
    "transformation",
    arcsin="ArcsinTransformer",
    arcsinh="ArcSinhTransformer",
    boxcox="BoxCoxTransformer",
    log="LogTransformer LogCpTransformer",
    power="PowerTransformer",
    reciprocal="ReciprocalTransformer",
    yeojohnson="YeoJohnsonTransformer",
)
_SELECTORS = _modules(
    "selection",
    drop_constant_features="DropConstantFeatures",
    drop_correlated_features="DropCorrelatedFeatures",
    drop_duplicate_features="DropDuplicateFeatures",
    drop_features="DropFeatures",
    drop_psi_features="DropHighPSIFeatures",
    information_value="SelectByInformationValue",
    mrmr="MRMR",
    probe_feature_selection="ProbeFeatureSelection",
    recursive_feature_addition="RecursiveFeatureAddition",
    recursive_feature_elimination="RecursiveFeatureElimination",
    shuffle_features="SelectByShuffling",
    single_feature_performance="SelectBySingleFeaturePerformance",
    smart_correlation_selection="SmartCorrelatedSelection",
    target_mean_selection="SelectByTargetMeanPerformance",
)
declines(
    "refused: it drops rows, and every row gets an answer",
    *_modules("imputation", drop_missing_data="DropMissingData"),
    *_modules("outliers", trimmer="OutlierTrimmer"),
)
declines(
    "refused: it fills gaps at random, by the other rows of the call",
    *_modules("imputation", random_sample="RandomSampleImputer"),
)
declines(
    "refused: it reads dates, which no column of a program holds",
    *_modules("datetime", datetime="DatetimeFeatures", datetime_subtraction="DatetimeSubtraction"),
    *_modules("datetime", datetime_ordinal="DatetimeOrdinal"),
)


# --- columns by name ------------------------------------------------------------------------------


def _numbers(fit: Fitted, names: Iterable[object]) -> list[int]:
    """The numbers of columns by their names."""
    every = [str(name) for name in fit.feature_names_in_]
    return [every.index(str(name)) for name in names]


def _runs(fit: Fitted, x: Flow, numbers: Sequence[int]) -> list[tuple[Flow, list[str]]]:
    """These columns in their order, with their names: numbers beside numbers, each string alone.

    So an encoder finds what an imputer, or another encoder, made of its very column.
    """
    texts, names = text_columns(x), fit.feature_names_in_
    runs = [list(run) for _, run in groupby(numbers, key=lambda j: j if texts[j] else -1)]
    parts = [pick(x, run) for run in runs]
    vectors = [part if isinstance(part.type, Vector) else part.as_vector() for part in parts]
    return [(part, [str(names[j]) for j in run]) for part, run in zip(vectors, runs, strict=True)]


def _changed(fit: Fitted, x: Flow, names: Iterable[object], change: _Change) -> list[Flow]:
    """Every column, those of these names changed."""
    wanted, parts = {*_numbers(fit, names)}, []
    for chosen, run in groupby(range(len(fit.feature_names_in_)), key=wanted.__contains__):
        for part, labels in _runs(fit, x, [*run]):
            parts.append(change(part, labels) if chosen else part)
    return parts


def _without(fit: Fitted, x: Flow, names: Iterable[object]) -> list[Flow]:
    """The columns of other names."""
    dropped = {*_numbers(fit, names)}
    others = [j for j in range(len(fit.feature_names_in_)) if j not in dropped]
    return [part for part, _ in _runs(fit, x, others)]


def _is_text(x: Flow) -> bool:
    return getattr(x.type, "dtype", "") == "string"


def _by_name(values: dict[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in values.items()}


def _present(fit: Fitted, x: Flow, largest: float = np.inf) -> Flow:
    """Columns in which missing values are refused, and numbers beyond `largest`."""
    step = type(fit).__name__
    if not _is_text(x):
        return RequireFinite([True], [largest], step, step)(x)
    filled = isinstance(x.node.op, ImputeText | TakeText)
    return x if filled else RequirePresent(none=True, step=step)(x)


def _finite(fit: Fitted, x: Flow) -> Flow:
    return _present(fit, x, LARGEST)


# --- missing values -------------------------------------------------------------------------------


@adapts(*_IMPUTERS)
def _imputer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    values = _by_name(fit.imputer_dict_)

    def filled(part: Flow, names: list[str]) -> Flow:
        found = [values[name] for name in names]
        fine = all(isinstance(value, str) == _is_text(part) for value in found)
        to.need(fine, "a column is filled with a value of another kind", "impute its own kind")
        if _is_text(part):
            return ImputeText(marker=EITHER, text=[], values=found)(part)
        return part.as_float().impute(np.nan, np.array(found, np.float64))

    return beside(_changed(fit, x, values, filled), x, to)


@adapts(*_modules("imputation", missing_indicator="AddMissingIndicator"))
def _missing_indicator(fit: Fitted, x: Flow, to: Importer) -> Flow:
    parts = _without(fit, x, ())
    for part, _ in _runs(fit, x, _numbers(fit, fit.variables_)):
        flags = IsMissingText(EITHER, [])(part) if _is_text(part) else part.is_missing(np.nan)
        parts.append(flags.cast("int64"))
    return beside(parts, x, to)


# --- categories -----------------------------------------------------------------------------------


@adapts(*_ENCODERS)
def _encoder(fit: Fitted, x: Flow, to: Importer) -> Flow:
    unseen = getattr(fit, "unseen", None) or getattr(fit, "errors", "ignore")  # to 1.2
    other = float(fit._unseen) if unseen == "encode" else np.nan
    strict = unseen == "raise"
    tables = {
        name: {key: float(value) for key, value in table.items() if not np.isnan(value)}
        for name, table in _by_name(fit.encoder_dict_).items()
    }

    def encoded(part: Flow, names: list[str]) -> Flow:
        if getattr(fit, "missing_values", "raise") == "raise":
            part = _present(fit, part)
        known = [[*tables[name]] for name in names]
        codings = [Coding(np.arange(len(keys)), None if strict else -1) for keys in known]
        codes = codes_of(part, known, codings, to, strict=strict)
        flat, starts = flatten([[*tables[name].values()] for name in names], np.float64)
        return codes.look_up(flat, starts, np.full(len(names), other))

    return beside(_changed(fit, x, tables, encoded), x, to)


@adapts(*_modules("encoding", one_hot="OneHotEncoder"))
def _one_hot(fit: Fitted, x: Flow, to: Importer) -> Flow:
    tables, parts = _by_name(fit.encoder_dict_), _without(fit, x, fit.variables_)
    for part, names in _runs(fit, x, _numbers(fit, fit.variables_)):
        known = [tables[name] for name in names]
        codings = [Coding(np.arange(len(keys))) for keys in known]
        codes = codes_of(_present(fit, part), known, codings, to, strict=False)
        starts = np.cumsum([0, *map(len, known)]).astype(np.int64)
        parts.append(codes.one_hot_codes(starts).to_dense())
    return beside(parts, x, to)


@adapts(*_modules("encoding", rare_label="RareLabelEncoder"))
def _rare_label(fit: Fitted, x: Flow, to: Importer) -> Flow:
    fine = fit.missing_values == "raise"
    to.need(fine, "missing_values='ignore' of rare labels", "impute the column before")
    frequent = _by_name(fit.encoder_dict_)

    def labelled(part: Flow, names: list[str]) -> Flow:
        known = [frequent[name] for name in names]
        starts = np.cumsum([0, *map(len, known)])
        codings = [
            Coding(start + np.arange(len(keys)), int(starts[-1]))
            for start, keys in zip(starts[:-1], known, strict=True)
        ]
        table = [*(key for keys in known for key in keys), fit.replace_with]
        alike = all(isinstance(value, str) == _is_text(part) for value in table)
        to.need(alike, "rare labels are replaced by a value of another kind", "a label of its kind")
        codes = codes_of(_present(fit, part), known, codings, to, strict=False)
        return codes.take(np.array(table, object if _is_text(part) else np.float64))

    return beside(_changed(fit, x, fit.variables_, labelled), x, to)


# --- numbers --------------------------------------------------------------------------------------


@adapts(*_FUNCTIONS)
def _function(fit: Fitted, x: Flow, to: Importer) -> Flow:
    def computed(part: Flow, names: list[str]) -> Flow:
        return _FORMULAS[type(fit).__name__](fit, _finite(fit, to.doubles(part)), names)

    return beside(_changed(fit, x, fit.variables_, computed), x, to)


def _logarithm(fit: Fitted, x: Flow, _: list[str]) -> Flow:
    x = above(x, 0.0, type(fit).__name__, strict=True)
    return x.log() if fit.base == "e" else x.log10()


def _shifted_logarithm(fit: Fitted, x: Flow, names: list[str]) -> Flow:
    shifts = fit.C_
    values = [_by_name(shifts)[name] for name in names] if hasattr(shifts, "items") else [shifts]
    return _logarithm(fit, x.add(np.array(values, np.float64)), names)


def _powers(fit: Fitted, names: list[str]) -> NDArray[np.float64]:
    powers = _by_name(fit.lambda_dict_)
    return np.array([powers[name] for name in names], np.float64)


#: Numbers without a value are checked behind a function: the library refuses them.
_FORMULAS: dict[str, Callable[[Fitted, Flow, list[str]], Flow]] = {
    "ArcsinTransformer": lambda fit, x, _: _finite(fit, x.sqrt().asin()),
    "ArcSinhTransformer": lambda fit, x, _: x.subtract([fit.loc]).divide([fit.scale]).asinh(),
    "BoxCoxTransformer": lambda fit, x, names: above(
        x, 0.0, "BoxCoxTransformer", strict=True
    ).box_cox(_powers(fit, names)),
    "LogTransformer": _logarithm,
    "LogCpTransformer": _shifted_logarithm,
    "PowerTransformer": lambda fit, x, _: x.power(float(fit.exp)),
    "ReciprocalTransformer": lambda fit, x, _: _finite(fit, x.reciprocal()),
    "YeoJohnsonTransformer": lambda fit, x, names: x.yeo_johnson(_powers(fit, names)),
}


@adapts(*_BINS)
def _bins(fit: Fitted, x: Flow, to: Importer) -> Flow:
    to.need(not fit.return_boundaries, "bins named by their boundaries", "return_boundaries=False")
    return _binned(fit, x, to, errors=getattr(fit, "errors", "ignore"))


def _binned(fit: Fitted, x: Flow, to: Importer, errors: str = "ignore") -> Flow:
    """Numbers of bins that are closed on the right, the first also on the left; NaN outside."""
    bins = {name: np.array(edges, float) for name, edges in _by_name(fit.binner_dict_).items()}

    def binned(part: Flow, names: list[str]) -> Flow:
        every = [bins[name] for name in names]
        # An edge is reached by what is above it: by the next number.
        reached = [[edges[0], *np.nextafter(edges[1:], np.inf)] for edges in every]
        codes = _finite(fit, to.floats(part)).bins(*flatten(reached, np.float64))
        tables = [[np.nan, *range(len(edges) - 1), np.nan] for edges in every]
        found = codes.look_up(*flatten(tables, np.float64), np.full(len(names), np.nan))
        return _present(fit, found) if errors == "raise" else found

    return beside(_changed(fit, x, fit.variables_, binned), x, to)


@adapts(*_modules("discretisation", decision_tree="DecisionTreeDiscretiser"))
def _tree_bins(fit: Fitted, x: Flow, to: Importer) -> Flow:
    output = getattr(fit, "bin_output", "prediction")
    to.need(output != "boundaries", "bins named by their boundaries", "bin_output='bin_number'")
    if output != "prediction":
        return _binned(fit, x, to)
    trees, precision = _by_name(fit.binner_dict_), getattr(fit, "precision", None)

    def predicted(part: Flow, names: list[str]) -> Flow:
        values = []
        for j, name in enumerate(names):
            made = to.predict(trees[name], _finite(fit, part).select([j]), name)
            value = made["value"] if fit.regression else made["probabilities"].element(1)
            values.append(value if precision is None else value.rounded(precision))
        return beside(values, x, to)

    return beside(_changed(fit, x, fit.variables_, predicted), x, to)


@adapts(*_CAPPERS)
def _capper(fit: Fitted, x: Flow, to: Importer) -> Flow:
    high, low = _by_name(fit.right_tail_caps_), _by_name(fit.left_tail_caps_)

    def caps(names: list[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return (
            np.array([low.get(name, -np.inf) for name in names]),
            np.array([high.get(name, np.inf) for name in names]),
        )

    def capped(part: Flow, names: list[str]) -> Flow:
        checked = _finite(fit, to.floats(part)) if fit.missing_values == "raise" else part
        return to.floats(checked).clip(*caps(names))

    parts = _changed(fit, x, fit.variables_, capped)
    if getattr(fit, "add_indicators", False):
        names = [str(name) for name in fit.variables_]
        part = pick(x, _numbers(fit, names))
        least, most = caps(names)
        flags = part.less(least).concat(part.greater(most)).cast("float64")
        tails = [0, 1] if fit.tail == "both" else [int(fit.tail == "right")]
        parts.append(
            flags.select([tail * len(names) + j for j in range(len(names)) for tail in tails])
        )
    return beside(parts, x, to)


@adapts(*_modules("creation", cyclical_features="CyclicalFeatures"))
def _cycles(fit: Fitted, x: Flow, to: Importer) -> Flow:
    largest, names = _by_name(fit.max_values_), [str(name) for name in fit.variables_]
    parts = _without(fit, x, names if fit.drop_original else ())
    angles = _finite(fit, to.doubles(pick(x, _numbers(fit, names)))).multiply(
        np.array([2.0 * np.pi / largest[name] for name in names])
    )
    both = angles.sin().concat(angles.cos())
    order = [tail * len(names) + j for j in range(len(names)) for tail in (0, 1)]
    return beside([*parts, both.select(order)], x, to)


# --- which columns --------------------------------------------------------------------------------


@adapts(*_SELECTORS)
def _selector(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return beside(_without(fit, x, fit.features_to_drop_), x, to)


@adapts(*_modules("wrappers", wrappers="SklearnTransformerWrapper"))
def _wrapper(fit: Fitted, x: Flow, to: Importer) -> Flow:
    inner, numbers = fit.transformer_, _numbers(fit, fit.variables_)
    if hasattr(fit, "features_to_drop_"):
        return _selector(fit, x, to)
    made = to.transform(inner, beside([part for part, _ in _runs(fit, x, numbers)], x, to))
    if type(inner).__name__ in ("OneHotEncoder", "PolynomialFeatures"):
        return beside([*_without(fit, x, fit.variables_), made.to_dense()], x, to)
    places = dict(zip(numbers, range(len(numbers)), strict=True))
    parts = [
        pick(made, [places[j]]) if j in places else pick(x, [j])
        for j in range(len(fit.feature_names_in_))
    ]
    return beside(parts, x, to)


# --- the types of columns -------------------------------------------------------------------------


def _column_types(fit: Fitted) -> list[Type | None]:
    """The types of the columns, None for those that a transformer does not look at."""
    own = vars(fit)
    learnt = own.get("encoder_dict_") or own.get("imputer_dict_") or {}
    values = {name: [*v] if isinstance(v, dict | list) else [v] for name, v in learnt.items()}
    texts = {str(name) for name, v in values.items() if any(isinstance(each, str) for each in v)}
    known = texts | {str(name) for name in own.get("variables_", ())}
    return [
        Scalar("string" if name in texts else "float64") if name in known else None
        for name in map(str, fit.feature_names_in_)
    ]


_CATEGORIES = _modules("encoding", one_hot="OneHotEncoder", rare_label="RareLabelEncoder")
for _name in (*_IMPUTERS, *_ENCODERS, *_CATEGORIES, *_BINS, *_CAPPERS, *_FUNCTIONS):
    knows_columns(_name.rpartition(".")[0])(_column_types)
