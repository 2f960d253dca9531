"""Models of several inputs, numbers and strings: sessions and a runtime answer as onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import flour
from runtime import InferenceSession, Runtime
from runtime.onnx import errors
from tests.onnx_models import needs_locale

onnxruntime = pytest.importorskip("onnxruntime")
skl2onnx = pytest.importorskip("skl2onnx")
pd = pytest.importorskip("pandas")
sklearn = pytest.importorskip("sklearn")

from skl2onnx.common import data_types  # noqa: E402 (after the skip)
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.ensemble import RandomForestClassifier  # noqa: E402
from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler  # noqa: E402

Arrays = dict[str, NDArray[Any]]
RNG = np.random.default_rng(7)
ROWS = 400
NUMBERS, CATEGORIES = ["n0", "n1", "n2"], ["city", "größe"]
DATA = pd.DataFrame(
    {
        **{name: RNG.normal(size=ROWS).astype(np.float32) for name in NUMBERS},
        "city": RNG.choice(["Graz", "Łódź", "", "Wien 🥨"], ROWS),
        "größe": RNG.choice(["klein", "groß"], ROWS),
        "text": [" ".join(RNG.choice(["good", "bad", "so", "été"], 6)) for _ in range(ROWS)],
    }
)
Y = np.where(DATA.n0 + (DATA.city == "Graz") > 0.2, "yes", "no")


def _columns() -> dict[str, Any]:
    text, number = data_types.StringTensorType, data_types.FloatTensorType
    kinds = dict.fromkeys(NUMBERS, number([None, 1]))
    return {**kinds, **dict.fromkeys(CATEGORIES, text([None, 1]))}


def _fitted(model: Any, encoder: Any, kinds: dict[str, Any], *more: Any, **options: Any) -> bytes:
    steps = [("n", StandardScaler(), NUMBERS), ("c", encoder, CATEGORIES), *more]
    whole = make_pipeline(ColumnTransformer(steps), model).fit(DATA, Y)
    given = {id(model): {"zipmap": False}, **options.get("options", {})}
    made = skl2onnx.to_onnx(whole, initial_types=list(kinds.items()), options=given)
    return bytes(made.SerializeToString())


def columns() -> bytes:
    """Scaled numbers, one-hot categories, logistic regression: an input for each column."""
    return _fitted(LogisticRegression(), OneHotEncoder(handle_unknown="ignore"), _columns())


def codes() -> bytes:
    """Trees over numbers and numbered categories."""
    return _fitted(RandomForestClassifier(7, max_depth=4), OrdinalEncoder(), _columns())


def documents() -> bytes:
    """The same with a column of documents."""
    kinds = {**_columns(), "text": data_types.StringTensorType([None, 1])}
    options = {TfidfVectorizer: {"tokenexp": "[a-z]+"}}
    text = ("t", TfidfVectorizer(lowercase=False, token_pattern="[a-z]+"), "text")
    encoder = OneHotEncoder(handle_unknown="ignore")
    return _fitted(LogisticRegression(), encoder, kinds, text, options=options)


def vectors() -> bytes:
    """An input for all numbers and one for all categories."""
    steps = [
        ("n", StandardScaler(), [0, 1, 2]),
        ("c", OneHotEncoder(handle_unknown="ignore"), [3, 4]),
    ]
    model = LogisticRegression()
    whole = make_pipeline(ColumnTransformer(steps), model)
    whole.fit(DATA[NUMBERS + CATEGORIES].to_numpy(object), Y)
    kinds = [
        ("numbers", data_types.FloatTensorType([None, 3])),
        ("categories", data_types.StringTensorType([None, 2])),
    ]
    made = skl2onnx.to_onnx(whole, initial_types=kinds, options={id(model): {"zipmap": False}})
    return bytes(made.SerializeToString())


def feed_of(names: list[str], rows: int) -> Arrays:
    """Arrays for these inputs."""
    data = DATA[:rows]
    if names == ["numbers", "categories"]:  # as pandas makes them, a column lies in one piece
        return {"numbers": data[NUMBERS].to_numpy(), "categories": data[CATEGORIES].to_numpy()}
    return {name: data[name].to_numpy().reshape(-1, 1) for name in names}


MODELS: dict[str, Callable[[], bytes]] = {
    "columns": columns,
    "codes": codes,
    "documents": documents,
    "vectors": vectors,
}


@needs_locale
@pytest.mark.rules
@pytest.mark.parametrize("name", MODELS)
def test_they_answer_the_same(name: str) -> None:
    data = MODELS[name]()
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    ours = InferenceSession(data, native_only=True)
    names = [item.name for item in ours.get_inputs()]
    assert all(stage.kind != "python" for stage in ours.plan.program.stages[:-1])
    assert type(ours._short).__name__ == "builtin_function_or_method"
    with Runtime(executors=2) as runtime:
        runtime.register("model", flour.from_onnx(data))
        for rows in (1, 3, ROWS):
            feed = feed_of(names, rows)
            want = theirs.run(None, feed)
            characters = {k: v.astype(str) if v.dtype == object else v for k, v in feed.items()}
            for given in (feed, characters):
                assert ours._short is not None
                assert ours._short(given) is not None
                same(ours.run(None, given), want)
                same([*runtime.predict("model", given).values()], want)
                same([*runtime.predict("model", given, engine="batch").values()], want)
                same([ours.run(["probabilities"], given)[0]], want[1:])


def same(got: list[Any], want: list[Any]) -> None:
    """Labels are equal, probabilities within a millionth."""
    for one, other in zip(got, want, strict=True):
        assert one.shape == other.shape
        if other.dtype == object:
            assert one.tolist() == other.tolist()
        else:
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def test_what_onnxruntime_refuses_is_refused() -> None:
    ours = InferenceSession(columns())
    feed = feed_of([*NUMBERS, *CATEGORIES], 2)
    wrong: list[Arrays] = [
        {k: v for k, v in feed.items() if k != "city"},
        {**feed, "more": feed["n0"]},
        {**feed, "n0": feed["n0"].astype(np.float64)},
        {**feed, "n0": feed["n0"][:, 0]},
        {**feed, "city": feed["city"][:, 0]},
        {**feed, "n0": np.zeros((2, 2), np.float32)},
        {**feed, "city": np.zeros((2, 1), np.float32)},
    ]
    for given in wrong:
        with pytest.raises(errors.InvalidArgument):
            ours.run(None, given)
    with Runtime() as runtime:
        runtime.register("model", flour.from_onnx(columns()))
        with pytest.raises(flour.core.errors.FlourError):
            runtime.predict("model", wrong[0])
        flat = {name: column[:, 0] for name, column in feed.items()}
        row = {name: column[0] for name, column in flat.items()}
        row = {k: v if isinstance(v, str) else float(v) for k, v in row.items()}
        want = runtime.predict("model", feed)
        for same in (flat, wrong[1]):  # a column that the model does not read is ignored
            np.testing.assert_array_equal(
                runtime.predict("model", same)["probabilities"], want["probabilities"]
            )
        assert runtime.predict("model", row)["label"] == want["label"][0]
