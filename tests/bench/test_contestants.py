"""Contestants of this environment answer what scikit-learn answers; the rest says why not."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from bench import environments
from bench.contestant import Model, number_block, number_row
from bench.contestants import NAMES, find
from bench.contestants.pretzel import Pretzel
from bench.crew import Member
from bench.experiments import everywhere
from bench.workload import CHECKED
from tests.bench.conftest import COUNTS, Small
from tests.onnx_models import has_locale

#: Ours for other processors: what compiles for them does so in a process of its own.
AIMED = [name for name in NAMES if issubclass(find(name), Pretzel) and name != Pretzel.name]
HERE = [name for name in NAMES if find(name).environment == "main" and name not in AIMED]
#: onnxruntime counts some n-grams otherwise; float32 moves a row across a threshold now and then.
LOOSE = {"onnxruntime", "onnxruntime_default"}
PAIRS = [(who, load) for who in HERE for load in find(who).workloads if load in COUNTS]


@pytest.mark.apart
@pytest.mark.parametrize(("who", "load"), PAIRS)
def test_answers_are_the_librarys(who: str, load: str, small: Small) -> None:
    if who == "handwritten_c" and shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    if who in LOOSE and load == "sa" and not has_locale():
        pytest.skip("onnxruntime needs the locale en_US.UTF-8 for text (apt: locales)")
    workload, me = small(load), find(who)()
    me.start()
    try:
        for pipeline in workload.pipelines():
            me.prepare(pipeline, workload)
            model = me.load(pipeline, workload)
            expected = pipeline.expected()
            block = model.scores(model.batch(model.block(workload.inputs, 0, CHECKED)))
            alone = [model.first(model.one(model.row(workload.inputs, n))) for n in range(3)]
            off = np.abs(np.asarray(block).reshape(-1) - expected) / np.maximum(1, abs(expected))
            assert np.median(off) < 1e-2 if who in LOOSE else off.max() < 1e-6
            np.testing.assert_allclose(alone, np.asarray(block).reshape(-1)[:3], rtol=1e-5)
    finally:
        me.close()


@pytest.mark.apart
@pytest.mark.parametrize("who", AIMED)
@pytest.mark.parametrize("load", ["gbt", "tab"])
def test_ours_answers_as_the_library_where_it_is_compiled_for_lesser_processors(
    who: str, load: str, small: Small
) -> None:
    workload = small(load)
    folder, count = str(workload.folder), workload.count
    with Member(who) as member:
        assert member.ask("prepare", folder=folder, count=count) == {"refused": {}}
        member.ask("load", folder=folder, numbers=list(range(count)), count=count)
        assert member.ask("check")["wrong"] == 0
        assert member.ask("throughput", batch=5000, seconds=0.01, callers=1)["rows"] >= 5000


def test_our_runtime_has_the_executors_of_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, object] = {}
    monkeypatch.setattr("runtime.Runtime", lambda **given: settings.update(given))
    Pretzel(1, {"executors": 3}).start()
    assert settings == {"executors": 3}


def test_others_answer_with_the_threads_of_the_options() -> None:
    other = find("onnxruntime")(1, {"executors": 3})
    try:
        model = Model(len, _which_thread, number_row, number_block, len, len)
        names = {other.submit(model, 0.02).result() for _ in range(20)}
        asked = [other.submit(model, 0.02) for _ in range(20)]
        names |= {each.result() for each in asked}
        assert len(names) == 3
    finally:
        other.close()


def _which_thread(seconds: float) -> int:
    time.sleep(seconds)
    return threading.get_ident()


@pytest.mark.parametrize("name", NAMES)
def test_everybody_says_what_it_is(name: str) -> None:
    kind = find(name)
    assert kind.name == name
    assert kind.title
    assert kind.settings
    assert kind.packages
    assert kind.environment in environments.ENVIRONMENTS
    assert set(kind.workloads) <= {*COUNTS, "cat"}


def test_models_of_catboost_need_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRETZEL_BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(environments, "PLACE", tmp_path)
    assert list(everywhere.measured(["cat"])) == []
    assert (
        "left out, make it with: python -m bench environments catboost" in capsys.readouterr().out
    )


def test_nobody_unknown() -> None:
    with pytest.raises(LookupError, match="there are pretzel"):
        find("nobody")
