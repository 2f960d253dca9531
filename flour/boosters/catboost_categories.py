"""The columns that CatBoost makes of categories: answers to `==`, and statistics of the target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.boosters.catboost_binary import EMPTY
from flour.core.errors import UnsupportedSetting
from flour.core.types import Category, Record, Scalar, Type
from flour.language.adapters import Importer
from flour.language.flow import Flow
from flour.ops.categorise import flatten
from flour.ops.city_hash import CityHash
from flour.ops.combinations import ABOVE, EQUAL, NOT_BELOW, VALUE, CombinationTables, combination

Data = Mapping[str, Any]

#: CatBoost asks about 255 values of a category at the most, and has three priors of its own.
_MOST_EXACT, _MOST_PRIORS = 1 << 10, 64
_COUNTERS = ("Counter", "FeatureFreq")
#: Losses of several targets.
_OF_TARGETS = ("MultiRMSE", "MultiRMSEWithMissingValues", "MultiLogloss", "MultiCrossEntropy")


class Categories(NamedTuple):
    """The columns that follow those of numbers."""

    #: The column of each category that is read, in order.
    columns: Sequence[int]
    tables: CombinationTables
    #: The place of each question `category == value`, and of each of the statistics.
    exact: Mapping[tuple[int, int], int]
    statistics: Sequence[int]


class _Table(NamedTuple):
    """A table: its elements, a key for each row of numbers, and the row of all other keys."""

    elements: Sequence[Sequence[float]]
    keys: Any
    values: Any
    other: Any


def categories(data: Data, above: NDArray[np.uint8]) -> Categories:
    """The columns of categories; `above` says of each number if NaN is above every border."""
    features = data["features_info"]
    flat = {
        int(each["feature_index"]): int(each["flat_feature_index"])
        for each in features["categorical_features"]
    }
    # The values of each category that any question of the trees is about.
    found: dict[int, dict[int, None]] = {}
    waiting = [*data.get("trees", ())]
    splits = [s for tree in data.get("oblivious_trees", ()) for s in tree.get("splits") or ()]
    while waiting:
        node = waiting.pop()
        if "split" in node:
            splits.append(node["split"])
            waiting += [node["left"], node["right"]]
    for split in splits:
        if split["split_type"] == "OneHotFeature":
            found.setdefault(int(split["cat_feature_index"]), {})[int(split["value"])] = None
    ctrs, asked = features.get("ctrs") or (), found
    elements = [each for ctr in ctrs for each in ctr["elements"] if "cat_feature_index" in each]
    used = sorted({*asked, *(int(each["cat_feature_index"]) for each in elements)})
    places = {feature: len(above) + place for place, feature in enumerate(used)}
    tables, exact, statistics, wide = [], {}, [0] * len(ctrs), 0
    for feature, values in asked.items():
        exact.update({(feature, value): wide + place for place, value in enumerate(values)})
        tables.append(_equal(places[feature], [*values]))
        wide += len(values)
    for numbers, table in _statistics(data, ctrs, places, above):
        for place, number in enumerate(numbers):
            statistics[number] = wide + place
        tables.append(table)
        wide += len(numbers)
    return Categories([flat[each] for each in used], _op(tables), exact, statistics)


def _statistics(
    data: Data, ctrs: Sequence[Data], places: Mapping[int, int], above: NDArray[np.uint8]
) -> Iterator[tuple[list[int], _Table]]:
    """The tables of statistics, each with the numbers of those that are made of its counts."""
    named: dict[str, list[int]] = {}
    for number, ctr in enumerate(ctrs):
        named.setdefault(str(ctr["identifier"]), []).append(number)
    for name, numbers in named.items():
        counted, same = data["ctr_data"][name], [ctrs[number] for number in numbers]
        if "hash_map" in counted and _several(data, same):
            raise UnsupportedSetting(
                "CatBoost's JSON has the statistics of one target, and the model those of several",
                where=f"ctr_data, {name}"[:100],
                hint="save the model as .cbm",
            )
        elements = [_element(each, places, above) for each in same[0]["elements"]]
        keys, counts = _counts(counted)
        if len(same) > _MOST_PRIORS * counts.shape[1]:
            raise ValueError(f"{len(same)} statistics of the same counts")
        denominator = counted.get("counter_denominator", 0)
        # The last row is that of values never seen.
        counts = np.concatenate([counts, np.zeros((1, counts.shape[1]))])
        values = np.stack([_statistic(ctr, counts, denominator) for ctr in same], axis=1)
        yield numbers, _Table(elements, keys, values[:-1].reshape(-1), values[-1])


def _several(data: Data, ctrs: Sequence[Data]) -> bool:
    """True if statistics of one name may be of several targets, or by several borders."""
    loss = data["model_info"]["params"]["loss_function"]["type"]
    same = [(each["prior_numerator"], each["target_border_idx"]) for each in ctrs]
    counter = ctrs[0]["ctr_type"] in _COUNTERS
    return not counter and (loss in _OF_TARGETS or len({*same}) < len(same))


def _op(tables: Sequence[_Table]) -> CombinationTables:
    elements, keys, values, others = (
        flatten([table[place] for table in tables], dtype)
        for place, dtype in enumerate((np.float64, np.uint64, np.float32, np.float32))
    )
    return CombinationTables(
        elements=elements[0].reshape(-1, 3),
        element_starts=elements[1],
        keys=keys[0].view(np.int64),
        key_starts=keys[1],
        widths=np.array([len(table.other) for table in tables], np.int64),
        values=values[0],
        other=others[0],
    )


def _equal(place: int, values: Sequence[int]) -> _Table:
    """A one where a category is this value, for each of some values."""
    if len(values) > _MOST_EXACT:
        raise ValueError(f"{len(values)} questions about one category")
    ones = np.eye(len(values), dtype=np.float32)
    keys = combination(np.zeros(len(values), np.uint64), np.array(values, np.int64))
    return _Table([[place, VALUE, 0]], keys, ones.reshape(-1), np.zeros(len(values), np.float32))


def _element(each: Data, places: Mapping[int, int], above: NDArray[np.uint8]) -> list[float]:
    match each["combination_element"]:
        case "cat_feature_value":
            return [places[int(each["cat_feature_index"])], VALUE, 0]
        case "cat_feature_exact_value":
            return [places[int(each["cat_feature_index"])], EQUAL, int(each["value"])]
        case "float_feature":
            number = int(each["float_feature_index"])
            if number < 0:
                raise ValueError("a combination with no feature")
            kind = NOT_BELOW if above[number] else ABOVE
            return [number, kind, float(np.float32(each["border"]))]
    raise ValueError(f"a combination with {each['combination_element']!r}")


def _counts(counted: Data) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """The hashes of a table, and what was counted for each."""
    if "hashes" in counted:
        return counted["hashes"], counted["counts"].astype(np.float64)
    flat, stride = counted["hash_map"], int(counted["hash_stride"])
    keys = np.array([int(each) for each in flat[::stride]], np.uint64)
    counts = np.array([flat[place::stride] for place in range(1, stride)], np.float64).T
    kept = keys != np.uint64(EMPTY)
    return keys[kept], counts[kept]


def _statistic(ctr: Data, counts: NDArray[np.float64], denominator: int) -> NDArray[np.float32]:
    """A statistic of each row of counts, computed in float32 as CatBoost does."""
    kind, border = ctr["ctr_type"], int(ctr["target_border_idx"])
    prior, more, shift, scale = (
        np.float32(ctr[key]) for key in ("prior_numerator", "prior_denomerator", "shift", "scale")
    )
    if kind in ("BinarizedTargetMeanValue", "FloatTargetMeanValue"):
        good, total = counts[:, 0], counts[:, 1]
    elif kind in _COUNTERS:
        good, total = counts[:, 0], np.full(len(counts), float(denominator))
    elif kind == "Buckets":
        good, total = counts[:, border], counts.sum(axis=1)
    elif kind == "Borders":
        first = border + 1 if counts.shape[1] > 2 else 1
        good, total = counts[:, first:].sum(axis=1), counts.sum(axis=1)
    else:
        raise ValueError(f"statistics of the kind {kind!r}")
    found = (good.astype(np.float32) + prior) / (total.astype(np.float32) + more)
    made: NDArray[np.float32] = (found + shift) * scale
    return made


# --- columns -------------------------------------------------------------------------------------


def columns_of(width: int, categorical: Sequence[int]) -> list[Type]:
    """The type of each column."""
    texts = {*categorical}
    return [Category(digits=True) if j in texts else Scalar("float64") for j in range(width)]


def with_categories(x: Flow, numbers: Sequence[int], made: Categories, to: Importer) -> Flow:
    """The columns of numbers as float32, and behind them those that are made of categories."""
    kind = x.type
    to.need([*numbers, *made.columns], "a CatBoost model that reads no column")
    to.need(
        isinstance(kind, Record) and len(kind.fields) > max([*numbers, *made.columns]),
        "a CatBoost model with categories reads a table, and gets one vector",
        "let it be the first step, or hand categories on by name",
    )
    assert isinstance(kind, Record)
    names = kind.names
    parts = []
    if numbers:
        parts.append(to.matrix(x.columns([names[j] for j in numbers])).cast("float32"))
    if not made.columns:
        return parts[0]
    hashes = CityHash()(x.columns([names[j] for j in made.columns])).cast("float64")
    given = parts[0].cast("float64").concat(hashes) if parts else hashes
    derived = made.tables(given)
    return parts[0].concat(derived) if parts else derived
