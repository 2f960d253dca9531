"""Models of libraries around scikit-learn, in pickles that those wrote, answer as they did there.

The suite does without the libraries: `tests/flour/other_libraries/make.py` kept files and answers.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour.core.errors import FlourError, ImportRefused, UnsupportedSetting
from flour.core.types import Record
from flour.sklearn.file import read_as_data
from tests.flour.other_libraries.make import FOLDER, columns, frame, rows
from tests.flour.other_libraries.make_skops import PLACE, contents
from tests.house import run_python

with tarfile.open(FOLDER / "models.tar.xz") as _archive:
    _files = {one.name: _archive.extractfile(one) for one in _archive}
    FILES = {name: file.read() for name, file in _files.items() if file}
KEPT: dict[str, dict[str, Any]] = json.loads(FILES.pop("answers.json"))
REFUSED = ("formula_of_words",)
NAMES = [name for name in KEPT if name not in REFUSED]
DATA = frame()
ROWS = rows(DATA)
#: Models that know what their columns hold.
SAMPLED = [name for name in KEPT if not name.startswith("pipeline")]
OUTPUTS = {
    "predict": ("label", "value", "probabilities"),
    "predict_proba": ("probabilities",),
    "decision_function": ("scores",),
    "transform": ("features",),
}
CODE = """
import json, sys
for name in ("sklearn", "scipy", "joblib", "pandas", "feature_engine", "imblearn", "statsmodels"):
    sys.modules[name] = None
import flour
from pathlib import Path
from flour.sklearn.file import read_as_data
program = flour.from_sklearn(read_as_data(Path(sys.argv[1]).read_bytes()))
made = program.reference(json.loads(sys.argv[2]))
print(json.dumps({name: values.tolist() for name, values in made.items()}))
"""


def program(name: str) -> flour.Flow:
    found = read_as_data(FILES[f"{name}.pkl"])
    return flour.from_sklearn(found, DATA if name in SAMPLED else None)


def answer(run: Callable[[Any], Any], some: Any) -> dict[str, Any] | None:
    """The outputs, or None where the rows are refused."""
    try:
        return dict(run(some))
    except FlourError:
        return None


def check(made: dict[str, Any] | None, kept: dict[str, Any] | None, who: str) -> None:
    """Hold outputs against those of the library, by method."""
    assert (made is None) == (kept is None), f"{who}: {made} for {kept}"
    for method, want in (kept or {}).items():
        output = next(each for each in OUTPUTS[method] if each in (made or {}))
        got = columns((made or {})[output])
        assert [len(each) for each in got] == [len(each) for each in want], f"{who}: {method}"
        for one, other in zip(chain(*got), chain(*want), strict=True):
            if one != other:  # strings and what is missing are equal
                assert abs(one - other) <= 1e-12 * max(1.0, abs(other)), f"{who}: {method}"


def reads(made: flour.Flow, some: Any) -> Any:
    """The rows as a program's input has them: named columns, or an array of two."""
    kind = made.inputs()["X"]
    return some[[*kind.names]] if isinstance(kind, Record) else some[["unit", "plus"]].to_numpy()


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_those_of_the_library(name: str) -> None:
    made = program(name)
    plan = oven.bake(made)
    for kind, some in ROWS.items():
        for run in (made.reference, plan.run):
            check(answer(run, reads(made, some)), KEPT[name][kind], f"{name}, {kind}")
    none = plan.run(reads(made, DATA[:0]))
    assert {len(each) for each in none.values() if not isinstance(each, dict)} <= {0}


def test_a_pipeline_of_imbalanced_learn_in_a_file_of_skops() -> None:
    made = flour.from_skops(contents(PLACE)["smote.skops"])
    for kind, some in ROWS.items():
        check(answer(made.reference, reads(made, some)), KEPT["smote"][kind], kind)


def test_the_kept_answers_tell_models_apart() -> None:
    """A comparison that could not fail would show nothing."""
    assert len(KEPT) > 50
    assert any(answers is None for kept in KEPT.values() for answers in kept.values())
    with pytest.raises(AssertionError, match="median, known"):
        check(program("mean").reference(ROWS["known"]), KEPT["median"]["known"], "median, known")


def test_a_pipeline_is_native() -> None:
    plan = oven.bake(program("pipeline"))
    assert [stage.kind for stage in plan.program.stages if not stage.native] == []


def test_no_library_is_imported(tmp_path: Any) -> None:
    (tmp_path / "m.pkl").write_bytes(FILES["pipeline.pkl"])
    known = json.dumps(ROWS["known"].to_dict("list"))
    made = json.loads(run_python(CODE, str(tmp_path / "m.pkl"), known))
    check(made, KEPT["pipeline"]["known"], "pipeline")


def test_formulas_that_are_no_sums_of_columns_are_refused() -> None:
    with pytest.raises(UnsupportedSetting, match=r"'score ~ town' is no sum of columns"):
        program("formula_of_words")


def test_a_model_without_its_data_takes_columns_by_their_places() -> None:
    found = read_as_data(FILES["ols.pkl"])
    found._results.model.data.orig_exog = None  # as `remove_data` leaves it
    made = flour.from_sklearn(found).reference(ROWS["known"][["unit", "plus"]].to_numpy())
    check(made, KEPT["ols"]["known"], "ols")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("imputation.drop_missing_data.DropMissingData", "it drops rows"),
        ("imputation.random_sample.RandomSampleImputer", "at random"),
        ("datetime.datetime.DatetimeFeatures", "it reads dates"),
    ],
)
def test_what_has_no_answer_for_every_row_is_refused(kind: str, reason: str) -> None:
    module, _, name = kind.rpartition(".")
    fit = {"fit": None, "n_features_in_": 1, "feature_names_in_": ["a"]}
    made = type(name, (), {"__module__": f"feature_engine.{module}", **fit})
    with pytest.raises(ImportRefused, match=reason):
        flour.from_sklearn(made())


@pytest.mark.parametrize(
    ("name", "attribute", "value", "reason"),
    [
        ("width", "return_boundaries", True, "named by their boundaries"),
        ("rare", "missing_values", "ignore", "missing_values='ignore'"),
        ("rare", "replace_with", 0, "value of another kind"),
        ("missing", "imputer_dict_", {"town": 0}, "value of another kind"),
    ],
)
def test_settings_without_a_translation_are_refused(
    name: str, attribute: str, value: object, reason: str
) -> None:
    found = read_as_data(FILES[f"{name}.pkl"])
    setattr(found, attribute, value)
    with pytest.raises(ImportRefused, match=reason):
        flour.from_sklearn(found, DATA)


def test_rows_with_numpy_floats_of_32_bits() -> None:
    """Numbers are compared with edges of 64 bits: bins are those of the float32 itself."""
    narrow = DATA.astype({"plus": np.float32, "unit": np.float32})[:8]
    found = read_as_data(FILES["own_bins.pkl"])
    made = flour.from_sklearn(found, narrow)
    edges, values = np.array(found.binner_dict_["plus"]), narrow["plus"].to_numpy(np.float64)
    place = edges.searchsorted(values) - 1.0
    place[(place < 0) | (place >= len(edges) - 1)] = np.nan
    for run in (made.reference, oven.bake(made).run):
        np.testing.assert_array_equal(run(narrow)["features"]["x0"], place)
