"""Models in the layouts of other servers answer as those servers' libraries do."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import zipfile
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from runtime import Runtime
from runtime.repository import Repository, formats
from runtime.repository.errors import UnsupportedModel
from runtime.repository.files import Folder
from tests.runtime.repository.folders import THREE, TWO, X, fil, lgb, mlserver, save_plan, xgb


def loaded(folder: Path, runtime: Runtime, **facts: Any) -> Repository:
    """The repository of a folder, with everything in it loaded."""
    made = Repository(folder, runtime, **facts)
    made.load_all()
    made.close()
    return made


def reason(repository: Repository) -> str:
    (line,) = repository.index()
    assert line.state == "UNAVAILABLE"
    return line.reason


# --- Triton's FIL backend ------------------------------------------------------------------------

#: The shares of three classes go through an exponential, whose last bit is its library's.
_LAST_BIT = 3e-7
FILES = {"xgboost_json": "xgboost.json", "xgboost_ubj": "xgboost.ubj"}


@pytest.mark.parametrize("model_type", FILES)
@pytest.mark.parametrize(
    ("kind", "columns", "parameters"),
    [
        ("two", 1, {"is_classifier": "true"}),
        ("two", 1, {"output_class": "true", "threshold": "0.8"}),
        ("two", 2, {"is_classifier": "true", "predict_proba": "true"}),
        ("two", 1, {"predict_proba": "true"}),
        ("two", 1, {"is_classifier": "false"}),
        ("three", 1, {"is_classifier": "true"}),
        ("three", 3, {"is_classifier": "true", "predict_proba": "true"}),
        ("number", 1, {}),
    ],
)
def test_fil_answers_as_xgboost_does(
    tmp_path: Path,
    runtime: Runtime,
    model_type: str,
    kind: str,
    columns: int,
    parameters: dict[str, str],
) -> None:
    fil(tmp_path / "m", model_type, columns, **parameters)
    (tmp_path / "m" / "1").mkdir()
    xgb(kind).save_model(tmp_path / "m" / "1" / FILES[model_type])
    loaded(tmp_path, runtime)
    made = runtime.predict("m", X)
    assert list(made) == ["output__0"]
    answer = made["output__0"]
    assert answer.dtype == np.float32
    # The backend leaves dimensions of one out.
    assert answer.shape == ((len(X),) if columns == 1 else (len(X), columns))
    assert np.allclose(answer, _fil_truth(kind, columns, parameters), rtol=_LAST_BIT, atol=0)


def _fil_truth(kind: str, columns: int, parameters: dict[str, str]) -> Any:
    model = xgb(kind)
    if kind == "number":
        return model.predict(X)
    shares = model.predict_proba(X)
    if parameters.get("predict_proba") == "true":
        return shares if columns > 1 else shares[:, 1]
    if kind == "three":
        return shares.argmax(axis=1)
    if "true" in (parameters.get("is_classifier"), parameters.get("output_class")):
        return shares[:, 1] > float(parameters.get("threshold", 0.5))
    return shares[:, 1]


@pytest.mark.parametrize("kind", ["two", "three", "number"])
def test_fil_answers_as_lightgbm_does(tmp_path: Path, runtime: Runtime, kind: str) -> None:
    columns = {"two": 1, "three": 3, "number": 1}[kind]
    fil(tmp_path / "m", "lightgbm", columns, predict_proba=str(kind != "number").lower())
    (tmp_path / "m" / "1").mkdir()
    lgb(kind).save_model(tmp_path / "m" / "1" / "model.txt")
    loaded(tmp_path, runtime)
    wanted = lgb(kind).predict(X.astype(np.float64)).astype(np.float32)
    assert np.allclose(runtime.predict("m", X)["output__0"], wanted, rtol=1e-6)


def test_versions_that_are_served(tmp_path: Path, runtime: Runtime) -> None:
    place = tmp_path / "m"
    fil(place, "xgboost_json", 1)
    for version in ("1", "2", "10", "03", "draft"):
        (place / version).mkdir()
        xgb("number").save_model(place / version / "xgboost.json")
    loaded(tmp_path, runtime)
    assert next(iter(runtime.endpoints)).versions == ("10",)
    with (place / "config.pbtxt").open("a", encoding="utf-8") as file:
        file.write("version_policy { all {} }\n")
    loaded(tmp_path, second := Runtime())
    assert set(next(iter(second.endpoints)).versions) == {"1", "2", "10"}
    assert next(iter(second.endpoints)).current == "10"
    with (place / "config.pbtxt").open("a", encoding="utf-8") as file:
        file.write("version_policy: { specific: { versions: [1, 2, 7] } }\n")
    loaded(tmp_path, third := Runtime())
    assert set(next(iter(third.endpoints)).versions) == {"1", "2"}
    second.close()
    third.close()
    fil(place, "xgboost_json", 1)
    with (place / "config.pbtxt").open("a", encoding="utf-8") as file:
        file.write("version_policy: { latest: { num_versions: 1.5 } }\n")
    with Runtime() as fourth:
        assert "num_versions is an integer" in reason(loaded(tmp_path, fourth))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ('backend: "python"', "backend 'python' is not supported"),
        ('platform: "ensemble"', "backend 'ensemble' is not supported"),
        ('backend: "fil" parameters { key: "model_type" value { string_value: "treelite" } }',
         "'treelite' is not supported"),
        ('backend: "fil" name: "other"', "name must be that of its folder"),
        ('backend: "fil" input [{ name: "x" dims: [4] }]', "input is called 'input__0'"),
        ('backend: "fil" default_model_filename: "../../secret"', "must not contain folders"),
        ("backend: {", "should stand here"),
        ('backend: "fil" parameters [{ key: "predict_proba" value { string_value: "maybe" } }]',
         "predict_proba is true or false"),
    ],
)  # fmt: skip
def test_configurations_that_are_refused(
    tmp_path: Path, runtime: Runtime, config: str, why: str
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(config, encoding="utf-8")
    assert why in reason(loaded(tmp_path, runtime))


def test_promises_that_the_model_does_not_keep(tmp_path: Path, runtime: Runtime) -> None:
    fil(tmp_path / "m", "xgboost_json", 7, predict_proba="true")
    (tmp_path / "m" / "1").mkdir()
    xgb("three").save_model(tmp_path / "m" / "1" / "xgboost.json")
    assert "promises 7 columns of output__0" in reason(loaded(tmp_path, runtime))


def test_a_model_file_that_is_not_there(tmp_path: Path, runtime: Runtime) -> None:
    fil(tmp_path / "m", "xgboost_ubj", 1)
    (tmp_path / "m" / "1").mkdir()
    assert "no such model file" in reason(loaded(tmp_path, runtime))


# --- MLServer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["two", "three", "number"])
@pytest.mark.parametrize("file", ["model.bst", "model.json", "other.ubj"])
def test_mlserver_answers_as_xgboost_does(
    tmp_path: Path, runtime: Runtime, kind: str, file: str
) -> None:
    place = tmp_path / "deep" / "m"
    facts = {"parameters": {"uri": f"./{file}", "version": "v0.1.0"}}
    mlserver(place, "mlserver_xgboost.XGBoostModel", **facts)
    model = xgb(kind)
    suffix = ".json" if file.endswith("json") else ".ubj"
    model.save_model(place / f"x{suffix}")
    (place / f"x{suffix}").rename(place / file)
    loaded(tmp_path, runtime)
    made = runtime.predict("m@v0.1.0", X)
    assert np.array_equal(made["predict"][:, 0], model.predict(X))
    assert made["predict"].dtype == model.predict(X).dtype
    if kind != "number":
        assert np.allclose(made["predict_proba"], model.predict_proba(X), rtol=_LAST_BIT, atol=0)


def test_mlserver_takes_a_raw_booster_for_a_regressor(tmp_path: Path, runtime: Runtime) -> None:
    import xgboost

    mlserver(tmp_path / "m", "mlserver_xgboost.XGBoostModel")
    xgb("two").get_booster().set_attr(scikit_learn=None)
    booster = xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(X, TWO), 4)
    booster.save_model(tmp_path / "m" / "model.json")
    loaded(tmp_path, runtime)
    made = runtime.predict("m", X)
    assert list(made) == ["predict"]
    assert np.array_equal(made["predict"][:, 0], booster.predict(xgboost.DMatrix(X)))


@pytest.mark.parametrize("kind", ["two", "three", "number"])
def test_mlserver_answers_as_lightgbm_does(tmp_path: Path, runtime: Runtime, kind: str) -> None:
    mlserver(tmp_path / "m", "mlserver_lightgbm.LightGBMModel")
    lgb(kind).save_model(tmp_path / "m" / "model.bst")
    loaded(tmp_path, runtime)
    rows = X.astype(np.float64)
    wanted = lgb(kind).predict(rows)
    made = runtime.predict("m", rows)["predict"]
    assert np.allclose(made, wanted.reshape(made.shape), rtol=1e-12)
    assert made.ndim == 2


def test_mlserver_answers_as_sklearn_does(tmp_path: Path, runtime: Runtime) -> None:
    rows = np.nan_to_num(X.astype(np.float64))
    names = np.array(["no", "yes"])[TWO]
    for name, model in (
        ("labels", LogisticRegression().fit(rows, names)),
        ("values", LinearRegression().fit(rows, THREE)),
    ):
        mlserver(tmp_path / name, "mlserver_sklearn.SKLearnModel")
        joblib.dump(model, tmp_path / name / "model.joblib")
    loaded(tmp_path, runtime)
    labels = runtime.predict("labels", rows)
    model = LogisticRegression().fit(rows, names)
    assert labels["predict"].reshape(-1).tolist() == model.predict(rows).tolist()
    assert np.allclose(labels["predict_proba"], model.predict_proba(rows), rtol=1e-12)
    assert list(runtime.predict("values", rows)) == ["predict"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("{", "not JSON"),
        ("[" * 10_000, "not JSON"),
        ("[]", "the settings must be a JSON object"),
        ('{"name": 3}', "name is a string"),
        ('{"implementation": "models.MyModel"}', "'models.MyModel' is not supported"),
        ('{"implementation": "mlserver_xgboost.XGBoostModel"}', "model file is missing"),
        ('{"implementation": "x.XGBoostModel", "parameters": {"uri": "s3://b/x"}}', "outside"),
        ('{"implementation": "x.XGBoostModel", "parameters": {"uri": "/etc/passwd"}}', "leads out"),
        ('{"implementation": "x.XGBoostModel", "parameters": {"uri": "../../x"}}', "leads out"),
        ('{"name": "a b", "implementation": "x.XGBoostModel", "parameters": {"uri": "x.json"}}',
         "no name of an endpoint"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(
    tmp_path: Path, runtime: Runtime, settings: str, why: str
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "x.json").write_text("{}", encoding="utf-8")
    (tmp_path / "m" / "model-settings.json").write_text(settings, encoding="utf-8")
    assert why in reason(loaded(tmp_path, runtime))


# --- our own -------------------------------------------------------------------------------------


def test_folders_of_plain_files(tmp_path: Path, runtime: Runtime) -> None:
    save_plan(tmp_path / "one.pretzel", 1.0)
    save_plan(tmp_path / "two@7.plan", 2.0)
    save_plan(tmp_path / "three" / "9" / "x.pretzel", 3.0)
    save_plan(tmp_path / "three" / "10" / "x.pretzel", 4.0)
    save_plan(tmp_path / "four" / "model.pretzel", 5.0)
    lgb("number").save_model(tmp_path / "trees.txt")
    xgb("number").save_model(tmp_path / "boost.ubj")
    (tmp_path / "README.md").write_text("no model", encoding="utf-8")
    (tmp_path / "settings.json").write_text("{}", encoding="utf-8")
    repository = loaded(tmp_path, runtime)
    assert {(line.name, line.version) for line in repository.index()} == {
        *(("one", "1"), ("two", "7"), ("three", "9"), ("three", "10"), ("four", "1")),
        *(("trees", "1"), ("boost", "1")),
    }
    row = np.zeros(4)
    offsets = {name: runtime.predict(name, row)["top"] for name in ("one", "two", "three", "four")}
    assert offsets == {"one": 1.0, "two": 2.0, "three": 4.0, "four": 5.0}
    assert runtime.predict("three@9", row)["top"] == 3.0
    rows = X.astype(np.float64)
    assert np.allclose(runtime.predict("trees", rows)["value"], lgb("number").predict(rows))


def test_two_models_of_one_name(tmp_path: Path, runtime: Runtime) -> None:
    save_plan(tmp_path / "a" / "model.pretzel", 1.0)
    save_plan(tmp_path / "a.pretzel", 2.0)
    save_plan(tmp_path / "b" / "1" / "x.pretzel", 2.0)
    save_plan(tmp_path / "b" / "1" / "y.pretzel", 2.0)
    repository = Repository(tmp_path, runtime)
    events = repository.load_all()
    assert [event.kind for event in events if event.name == "a"] == ["loaded", "refused"]
    assert "one model file" in next(event.reason for event in events if event.name == "b")
    assert runtime.predict("a", np.zeros(4))["top"] == 1.0


def test_rows_that_stand_beside_a_model_are_checked(tmp_path: Path, runtime: Runtime) -> None:
    save_plan(tmp_path / "good" / "1" / "m.pretzel", 1.0)
    save_plan(tmp_path / "bad@2.pretzel", 1.0)
    save_plan(tmp_path / "odd.pretzel", 1.0)
    line = {"input": [0.0, 1.0, 2.0, 3.0], "outputs": {"top": 4.0, "moved": [1, 2, 3, 4]}}
    rows = json.dumps(line) + "\n"
    (tmp_path / "good" / "1" / "verify.jsonl").write_text(rows, encoding="utf-8")
    (tmp_path / "bad@2.verify.jsonl").write_text(rows.replace("4.0", "4.1"), encoding="utf-8")
    (tmp_path / "odd.verify.jsonl").write_text("{}\n", encoding="utf-8")
    states = {line.name: line for line in loaded(tmp_path, runtime).index()}
    assert states["good"].state == "READY"
    assert "answers differ from those" in states["bad"].reason
    assert "wanted 4.1" in states["bad"].reason
    assert "a line is" in states["odd"].reason


# --- compressed pickles, and models of others ----------------------------------------------------

PACKED = ("joblib.gz", "joblib.z", "pkl.gz", "pickle.bz2", "pkl.xz", "joblib.lzma", "PKL.GZ")


@pytest.mark.parametrize("ending", PACKED)
def test_compressed_pickles_are_models(tmp_path: Path, runtime: Runtime, ending: str) -> None:
    model = LogisticRegression().fit(np.nan_to_num(X), TWO)
    pack: Any = {"gz": gzip, "xz": lzma, "bz2": bz2, "lzma": lzma}.get(ending.rpartition(".")[2])
    for path in (tmp_path / f"a@3.{ending}", tmp_path / "b" / f"any.{ending}"):
        path.parent.mkdir(exist_ok=True)
        if ending.startswith("joblib") or pack is None:
            method = {"z": "zlib", "gz": "gzip"}.get(ending[7:], ending[7:] or "gzip")
            joblib.dump(model, path, compress=(method if ending != "PKL.GZ" else "gzip", 3))
        else:
            path.write_bytes(pack.compress(pickle.dumps(model)))
    (tmp_path / "a@3.notes.toml").write_text("cache_bytes = 4096\n")
    repository = loaded(tmp_path, runtime)
    states = {(line.name, line.version): line.state for line in repository.index()}
    assert states == {("a", "3"): "READY", ("b", "1"): "READY"}
    rows = np.nan_to_num(X)
    assert (runtime.predict("a", rows)["label"] == model.predict(rows)).all()


def test_steps_that_stay_python_are_refused_by_name(tmp_path: Path, runtime: Runtime) -> None:
    model = make_pipeline(FunctionTransformer(np.nan_to_num), LogisticRegression()).fit(X, TWO)
    joblib.dump(model, tmp_path / "m.pkl.gz", compress=3)
    told = reason(loaded(tmp_path, runtime))
    assert "step 'functiontransformer'" in told
    assert "numpy.nan_to_num" in told


@pytest.mark.parametrize(
    ("name", "advice"), [("m.pmml", "exported from"), ("m.mojo", "convert_h2o")]
)
def test_models_without_an_importer_are_refused_with_advice(
    tmp_path: Path, runtime: Runtime, name: str, advice: str
) -> None:
    (tmp_path / name).write_bytes(b"x")
    assert advice in reason(loaded(tmp_path, runtime))


def archived(*names: str) -> bytes:
    """An archive of files of these names."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return raw.getvalue()


PMML = b'<?xml version="1.0"?>\n<PMML xmlns="http://www.dmg.org/PMML-4_4" version="4.4"><Header/>'
FOREIGN = {
    "PMML": (PMML, "exported from"),
    "MOJO": (archived("experimental/x.json", "model.ini", "trees/t00_000.bin"), "convert_h2o"),
    "Keras": (archived("metadata.json", "config.json", "model.weights.h5"), "format='onnx'"),
    "HDF5": (b"\x89HDF\r\n\x1a\n\0\0", "from_keras"),
    "PyTorch": (archived("m/data.pkl", "m/version", "m/data/0"), "torch.onnx.export"),
    "of PyTorch": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "torch.onnx"),
    "Core ML": (b"\x08\x04\x12\xb5\x01\n\x08\n\x01a", "converted from"),
}


@pytest.mark.parametrize("name", ["m.pkl", "m.joblib", "m.json", "m.model", "m.bin", "m.skops"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_formats_without_an_importer_are_told_by_what_is_in_a_file(
    tmp_path: Path, kind: str, name: str
) -> None:
    raw, advice = FOREIGN[kind]
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(UnsupportedModel, match=rf"this is .*{kind}") as caught:
        formats.of(Folder(tmp_path), tmp_path / name)
    assert advice in (caught.value.hint or "")


def test_what_has_an_importer_is_not_taken_for_another_format(tmp_path: Path) -> None:
    joblib.dump(LinearRegression(), tmp_path / "m.pkl")
    (tmp_path / "m.skops").write_bytes(archived("schema.json", "1.npy"))
    (tmp_path / "m.onnx").write_bytes(b"\x08\x07\x12\x08\nskl2onnx")
    for name, form in (("m.pkl", "sklearn"), ("m.skops", "skops"), ("m.onnx", "onnx")):
        assert formats.of(Folder(tmp_path), tmp_path / name) == form


@pytest.mark.parametrize("name", ["m.mojo", "m.h5", "m.onnx.gz", "m.ubj.xz", "m.SAV"])
def test_models_that_cannot_be_read_are_told_of(
    tmp_path: Path, runtime: Runtime, name: str
) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        for each in (folder / name, folder / "n" / name):
            each.parent.mkdir(parents=True, exist_ok=True)
            each.write_bytes(b"x")
    save_plan(tmp_path / "b" / "n" / "n.pretzel", 1.0)
    for file in ("rows.csv.gz", "notes.md", "data.parquet"):
        (tmp_path / "a" / file).write_bytes(b"x")
    told = loaded(tmp_path / "a", runtime).index()
    assert [line.name for line in told] == ["m", "n"]
    assert all("not a model in a supported format" in line.reason for line in told)
    assert Path(name).suffix in told[0].reason
    beside = {line.name: line.state for line in loaded(tmp_path / "b", runtime).index()}
    assert beside == {"m": "UNAVAILABLE", "n": "READY"}, "a model beside it is served"
