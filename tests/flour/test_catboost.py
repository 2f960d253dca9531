"""CatBoost's models: files that its own library wrote, and the answers that it gave for them."""

from __future__ import annotations

import json
import random
import struct
import tarfile
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
from flour.boosters.catboost_binary import FlatBuffer
from flour.core.errors import DamagedProgram, FlourError, UnsupportedSetting
from flour.core.model_formats import FORMATS, that_begins
from flour.core.types import Category, Record
from flour.ops.city_hash import CityHash, city_hash
from flour.sklearn.file import read_as_data

HERE = Path(__file__).parent / "catboost_files"
KEPT = json.loads((HERE / "answers.json").read_text())
ROWS = np.array(KEPT["rows"], np.float32)


TABLE = pd.DataFrame(KEPT["table"])
FILES = sorted(each.name for each in HERE.iterdir() if each.suffix in (".cbm", ".json"))
FILES.remove("answers.json")
FILES.remove("several.json")


def file(name: str) -> bytes:
    return (HERE / f"{name}.json").read_bytes()


@pytest.mark.parametrize("path", FILES)
def test_answers_are_those_of_the_library(path: str) -> None:
    program, name = flour.from_catboost(HERE / path), path.partition(".")[0]
    plan = oven.bake(program)
    answers = KEPT["answers"].get(name) or KEPT["of_tables"][name]
    given: Any = ROWS if name in KEPT["answers"] else TABLE
    many = np.tile(ROWS, (5, 1)) if given is ROWS else pd.concat([TABLE] * 5)
    for rows in (given, given[:1], many):
        for got in (plan.run(rows), program.reference(rows)):
            assert [*got] == [*answers]
            for output, kept in answers.items():
                want = np.resize(np.array(kept), (len(rows), *np.shape(kept)[1:]))
                if output in ("label", "scores"):
                    assert np.asarray(got[output]).tolist() == want.tolist()
                else:
                    np.testing.assert_allclose(got[output], want, rtol=0, atol=2e-15)


@pytest.mark.parametrize("text", KEPT["hashes"])
def test_hashes_of_strings(text: str) -> None:
    assert city_hash(text) % 2**32 == KEPT["hashes"][text] % 2**32


def test_native_hashes() -> None:
    texts = np.array([*KEPT["hashes"]], object)
    program = flour.outputs(hash=CityHash()(flour.scalar("x", "string")))
    got = oven.bake(program).run(texts)["hash"]
    assert (got % 2**32).tolist() == [code % 2**32 for code in KEPT["hashes"].values()]


def test_categories_in_every_form() -> None:
    plan = oven.bake(flour.from_catboost(HERE / "combined.cbm"))
    want = KEPT["of_tables"]["combined"]["value"]
    digits = TABLE.astype({"place": str, "flag": int}).astype({"flag": object, "word": "category"})
    rows = TABLE.to_dict("records")
    dtypes = {"place": "Int16", "flag": "boolean", "letter": "string"}
    backwards = TABLE[TABLE.columns[::-1]]
    for given in (digits, rows, TABLE.to_dict("list"), TABLE.astype(dtypes), backwards):
        assert plan.run(given)["value"].tolist() == want
    call = plan.entry()
    assert [call(row)[0] for row in rows] == want
    texts = {"word": "a", "letter": "q"}
    assert call({**rows[0], **texts, "place": 10**30}) == call({**rows[0], **texts, "place": "99"})
    kind = plan.inputs["X"]
    assert isinstance(kind, Record)
    assert dict(kind.fields)["place"] == Category(digits=True)


@pytest.mark.parametrize("bad", [None, np.nan, 1.5, b"a", "\ud800"])
def test_a_category_that_catboost_refuses(bad: object) -> None:
    program = flour.from_catboost(HERE / "combined.cbm")
    rows = TABLE[:2].assign(word=pd.Series(["a", bad], dtype=object))
    for run in (program.reference, oven.bake(program).run):
        with pytest.raises(FlourError):
            run(rows)


def test_json_that_lacks_the_statistics_of_some_targets_is_refused() -> None:
    with pytest.raises(UnsupportedSetting, match="several"):
        flour.from_catboost(HERE / "several.json")


def changed(rng: random.Random, raw: bytes) -> bytes:
    """A file with a few numbers of it others, cut off, or moved."""
    made, kind = bytearray(raw), rng.randrange(4)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(4, len(made) - 4)
        if kind == 0:
            made[at] = rng.randrange(256)
        elif kind == 1:
            made[at : at + 4] = rng.choice((b"\xff" * 4, bytes(4), raw[4:8], rng.randbytes(4)))
        elif kind == 2:
            del made[at : at + rng.randrange(1, 50)]
        else:
            made[at : at + 4] = made[rng.randrange(4, len(made) - 4) :][:4]
    return bytes(made)


@pytest.mark.parametrize("name", ["uncertain", "lossguide", "combined"])
def test_changed_binary_files_are_read_or_refused(name: str) -> None:
    raw, rng, refused = (HERE / f"{name}.cbm").read_bytes(), random.Random(3), 0
    for _ in range(120):
        started = process_time()
        try:
            flour.from_catboost(changed(rng, raw))
        except FlourError:
            refused += 1
        assert process_time() - started < 1.0
    assert refused > 30


def test_tables_of_a_binary_file_that_are_one_again_and_again() -> None:
    count = size = 10_000
    at = 24 + 4 * count  # where the one table is
    offsets = [at - 24 - 4 * i for i in range(count)]
    head = struct.pack("<I4H2iI", 12, 6, 8, 4, 0, 8, 4, count)
    one = struct.pack("<2iI", at - 4, 4, size) + bytes(size)
    made = FlatBuffer(head + struct.pack(f"<{count}I", *offsets) + one).root().tables(0)
    assert len(made[0].array(0, np.uint8)) == size
    with pytest.raises(ValueError, match=f"{size} bytes"):
        [table.array(0, np.uint8) for table in made]


#: The models of five versions whose answers were others then, without the files saying so.
CHANGED = {"0.14.2": {"poisson", "one_vs_all"}, "0.20.2": {"poisson"}}

WITH_WORDS = {"names", "counted", "combined", "exact", "grown"}


@pytest.mark.parametrize("version", ["0.14.2", "0.20.2", "0.24.4", "1.0.6", "1.2.10"])
def test_files_answer_as_the_version_that_wrote_them(version: str) -> None:
    with tarfile.open(HERE / "versions.tar.xz") as archive:
        files = {
            Path(each.name).name: archive.extractfile(each).read()  # type: ignore[union-attr]  # files
            for each in archive.getmembers()
            if each.isfile() and each.name.startswith(f"{version}/")
        }
    kept, refused = json.loads(files.pop("answers.json")), set()
    table = pd.DataFrame(kept["rows"]).astype({"size": np.float32, "gaps": np.float32})
    for file, raw in files.items():
        name, _, kind = file.partition(".")
        read = flour.from_sklearn if kind == "pkl" else flour.from_catboost
        try:
            program = read(read_as_data(raw) if kind == "pkl" else raw)
        except UnsupportedSetting:
            refused.add(name)
            continue
        got = program.reference(table if name in WITH_WORDS else table[["size", "gaps"]])
        for output, want in kept["answers"][name].items():
            if output == "label":
                assert np.asarray(got[output]).tolist() == want, (version, file)
            else:
                np.testing.assert_allclose(got[output], want, rtol=0, atol=2e-15)
    assert refused == CHANGED.get(version, set())
    assert len(files) >= 27


def test_the_first_bytes_tell_catboost_from_xgboost() -> None:
    possible = [FORMATS["xgboost"], FORMATS["catboost"]]
    assert that_begins(possible, file("numbers")[:16]).name == "catboost"
    assert that_begins(possible, b'{"learner":{"att').name == "xgboost"


class Wrapper(BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """Stands for CatBoost's classes, which write their model down."""

    def __init__(self, name: str) -> None:
        self.name = name

    def save_model(self, path: str, format: str) -> None:  # noqa: A002 (its own name)
        assert format == "cbm"
        Path(path).write_bytes((HERE / f"{self.name}.cbm").read_bytes())

    def fit(self, x: Any, y: Any = None) -> Any:
        self.n_features_in_ = x.shape[1]
        return self


@pytest.mark.parametrize(
    ("kind", "name", "given"),
    [
        ("CatBoostClassifier", "classes", ["label", "probabilities"]),
        ("CatBoostRegressor", "poisson", ["value"]),
        ("CatBoost", "binary", ["value"]),
    ],
)
def test_a_fitted_object_at_the_end_of_a_pipeline(kind: str, name: str, given: list[str]) -> None:
    estimator = type(kind, (Wrapper,), {"__module__": "catboost.core"})(name)
    fitted = make_pipeline(StandardScaler(with_mean=False, with_std=False), estimator).fit(ROWS)
    got = flour.from_sklearn(fitted).reference(ROWS)
    assert [*got] == given
    want = KEPT["answers"][name]
    for output in given:
        expected = want["scores"] if kind == "CatBoost" else want[output]
        np.testing.assert_allclose(np.asarray(got[output], float), expected, atol=1e-12)


SPLIT = [{"split_type": "FloatFeature", "float_feature_index": 0, "border": 0.0}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["oblivious_trees"][0]["leaf_values"].pop(), "a value for each output"),
        (lambda d: d["oblivious_trees"][0]["splits"][0].pop("border"), "border"),
        (lambda d: d["oblivious_trees"][0]["splits"][0].update(float_feature_index=99), "range"),
        (lambda d: d["oblivious_trees"][0]["splits"][0].update(split_type="Odd"), "Odd"),
        (lambda d: d["features_info"]["float_features"].clear(), "max"),
        (lambda d: d.update(oblivious_trees=[]), ""),
        (lambda d: d["oblivious_trees"][0].update(splits=SPLIT * 17), "17 levels"),
        (lambda d: d["model_info"].pop("params"), "params"),
        (lambda d: d.update(scale_and_bias=[1, [0, 0, 0]]), "bias"),
    ],
)
def test_a_damaged_file_is_refused(change: Any, said: str) -> None:
    data = json.loads(file("numbers"))
    change(data)
    with pytest.raises(DamagedProgram, match=f"(?s)CatBoost model.*{said}"):
        flour.from_catboost(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.pop("ctr_data"), "ctr_data"),
        (lambda d: d["features_info"]["ctrs"][0].update(ctr_type="Odd"), "Odd"),
        (lambda d: d["features_info"]["ctrs"][0]["elements"][0].clear(), "combination_element"),
        (lambda d: [each["hash_map"].pop() for each in d["ctr_data"].values()], ""),
        (lambda d: d["features_info"].pop("ctrs"), "range"),
        (
            lambda d: d["features_info"].update(
                ctrs=[
                    {**d["features_info"]["ctrs"][0], "prior_numerator": prior}
                    for prior in range(999)
                ]
            ),
            "999",
        ),
        (
            lambda d: d["oblivious_trees"][0].update(
                splits=[
                    {"split_type": "OneHotFeature", "cat_feature_index": 0, "value": value}
                    for value in range(2000)
                ]
            ),
            "2000",
        ),
        (lambda d: d["features_info"]["categorical_features"].pop(), ""),
    ],
)
def test_damaged_statistics_are_refused(change: Any, said: str) -> None:
    data = json.loads(file("combined"))
    change(data)
    with pytest.raises(DamagedProgram, match=f"(?s)CatBoost model.*{said}"):
        flour.from_catboost(json.dumps(data))


def test_a_hostile_asymmetric_tree() -> None:
    data = json.loads(file("lossguide"))
    deep = '{"split": %s, "left": {"value": 1}, "right": ' % json.dumps(  # noqa: UP031 (braces)
        data["trees"][0]["split"]
    )
    data["trees"] = ["here"]
    text = json.dumps(data).replace('"here"', deep * 5000 + '{"value": 2}' + "}" * 5000)
    with pytest.raises(FlourError):
        flour.from_catboost(text)


def test_other_features_are_refused_with_advice() -> None:
    with pytest.raises(UnsupportedSetting, match="not a CatBoost model"):
        flour.from_catboost(3)
    data = json.loads(file("numbers"))
    data["features_info"]["text_features"] = [{}]
    with pytest.raises(UnsupportedSetting, match="with text features"):
        flour.from_catboost(json.dumps(data))
