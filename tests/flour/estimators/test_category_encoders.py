"""category_encoders' encoders in pickles answer as the version that wrote them, without any of it.

`tests/flour/category_encoders/make.py` kept the files, and each version's own answers by row.
"""

from __future__ import annotations

import json
import re
import tarfile
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import flour
import oven
from flour.core.errors import FlourError, ImportRefused, InputError, UnsupportedSetting
from flour.pickles.standins import Damaged
from flour.sklearn.file import read_as_data
from flour.sklearn.frame_stand_ins import FrameStandIn, plain
from tests.flour.category_encoders.make import FOLDER
from tests.flour.category_encoders.make import rows as made_rows
from tests.flour.other_libraries.make_skops import PLACE, contents
from tests.house import run_python

#: Made once for each kind of data: 158 models are asked about them.
rows = cache(made_rows)
VERSIONS = sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))
CODE = """
import sys
for name in ("sklearn", "scipy", "joblib", "pandas", "category_encoders"):
    sys.modules[name] = None
import flour
made = flour.from_sklearn(sys.argv[1])
row = {"town": ["x"], "number": [0.5], "kind": ["new"], "code": [10.0]}
print(made.reference(row)["features"][0, -1])
"""


@cache
def kept(version: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    with tarfile.open(FOLDER / f"{version}.tar.xz") as archive:
        files = {one.name: file.read() for one in archive if (file := archive.extractfile(one))}
    answers = json.loads(files.pop("answers.json"))
    answers.pop("versions")
    return files, answers


def one(name: str, version: str = "2.8.1") -> Any:
    return read_as_data(kept(version)[0][f"{name}.pkl"])


def answered(run: Any, some: Any) -> list[list[float] | None]:
    """The answer for each row; None where it is refused."""
    with suppress(InputError):
        return list(run(some)["features"].tolist())
    found: list[list[float] | None] = []
    for place in range(len(some)):
        try:
            found.append(run(some[place : place + 1])["features"][0].tolist())
        except InputError:
            found.append(None)
    return found


def same(got: list[Any], want: list[Any], who: str) -> None:
    assert [row is None for row in got] == [row is None for row in want], who
    pairs = [(a, b) for a, b in zip(got, want, strict=True) if a is not None]
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, np.array(theirs, float), 1e-12, 1e-12, err_msg=who)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_those_of_the_version(version: str) -> None:
    answers, refused = kept(version)[1], list[str]()
    former = version == "2.2.2"
    for name, want in answers.items():
        some = rows(gaps=name.endswith("_gaps"))
        try:
            made = flour.from_sklearn(one(name, version), some if former else None)
        except UnsupportedSetting as problem:  # their state does not tell what they answer
            refused.append(problem.what)
            continue
        same(answered(made.reference, some), want, name)
    assert all(re.search("before 2.5|depend on the other rows", each) for each in refused)
    assert len(refused) < (0.7 if former else 0.05) * len(answers)


def test_files_of_skops() -> None:
    """It writes series of pandas 1.5, and leaves the values of frames out."""
    files = contents(PLACE)
    for name in ("Target_0_gaps", "WOE_0"):
        made = flour.from_skops(files[f"{name}.skops"])
        same(
            answered(made.reference, rows(gaps=name.endswith("_gaps"))),
            kept("2.6.3")[1][name],
            name,
        )
    with pytest.raises(ImportRefused, match="lacks the values of a frame of pandas"):
        flour.from_skops(files["OneHot_0.skops"])


@pytest.mark.parametrize("name", ["Target_2", "OneHot_0_gaps", "Sum_0", "CatBoost_1", "Count_0"])
def test_plans_answer_as_programs(name: str) -> None:
    plan, some = oven.bake(flour.from_sklearn(one(name))), rows(gaps=name.endswith("_gaps"))
    same(answered(plan.run, some), kept("2.8.1")[1][name], name)
    assert [stage.kind for stage in plan.program.stages if not stage.native] == []


def test_no_library_is_imported(tmp_path: Any) -> None:
    (tmp_path / "m.pkl").write_bytes(kept("2.8.1")[0]["Ordinal_0.pkl"])
    assert run_python(CODE, str(tmp_path / "m.pkl")).split() == ["3.0"]


@pytest.mark.parametrize(
    ("name", "attribute", "value", "reason"),
    [
        ("Target_0", "hierarchy", {"town": {}}, "reads a hierarchy"),
        ("Target_0", "composite_cols", [("town", "kind")], "joins columns"),
        ("Target_0", "handle_missing", "error", r"refuses missing values in column 'town'"),
        ("CatBoost_0", "a", 3, "versions before 2.5 differ"),
        ("Count_0", "verbose", 1, "versions before 2.5 differ"),
        ("LeaveOneOut_1_gaps", "handle_missing", "value", "depend on the other rows"),
        ("Ordinal_0", "mapping", None, "it is not fitted"),
        ("Ordinal_0", "cols", ["code"], "column 'town' stays strings"),
    ],
)
def test_settings_without_a_translation_are_refused(
    name: str, attribute: str, value: object, reason: str
) -> None:
    found = one(name)
    setattr(found, attribute, value)
    if name in ("CatBoost_0", "Count_0"):
        found.feature_dtypes_in_ = found.feature_names = found.feature_names_out_
        del found.feature_names_out_, found.invariant_cols
    with pytest.raises(UnsupportedSetting, match=reason):
        flour.from_sklearn(found, rows(gaps=False))


def test_other_encoders_are_refused_in_words() -> None:
    for name, module, reason in (
        ("HashingEncoder", "hashing", "hashes every value"),
        ("SummaryEncoder", "quantile_encoder", "several encoders in one"),
    ):
        made = {"__module__": f"category_encoders.{module}", "fit": None, "n_features_in_": 1}
        with pytest.raises(FlourError, match=reason):
            flour.from_sklearn(type(name, (), made)(), rows(gaps=False))


STRINGS = ["Łódź", "", "b" * 70, np.nan, "東京"]


@pytest.mark.parametrize("storage", ["python", "pyarrow"])
@pytest.mark.parametrize("cut", [slice(None), slice(1, 4), slice(2, 2)])
def test_indexes_of_strings_are_read(storage: str, cut: slice) -> None:
    if storage == "pyarrow":
        pytest.importorskip("pyarrow")
    values = pd.array(STRINGS, dtype=pd.StringDtype(storage, na_value=np.nan))[cut]
    found = read(pd.Series(np.arange(float(len(values))), index=pd.Index(values)))
    assert str(found.index) == str(STRINGS[cut])
    assert found.to_numpy().tolist() == [*map(float, range(len(values)))]


def test_frames_are_read() -> None:
    frame = pd.DataFrame({"a": [1.5, 2.5], "b": [1, 2], "c": [3.5, 4.5]})
    found = read(frame)
    assert (found.columns, found.index) == (["a", "b", "c"], [0, 1])
    np.testing.assert_array_equal(found.to_numpy(), frame)
    some = frame.set_index(pd.CategoricalIndex(["x", "y"]))["b"]
    assert read(some).index == ["x", "y"]
    with pytest.raises(Damaged, match="no array of pandas"):
        plain(object())


def read(value: Any) -> FrameStandIn:
    import pickle

    found = read_as_data(pickle.dumps(value))
    assert isinstance(found, FrameStandIn)
    return found
