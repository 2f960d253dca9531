"""Without the libraries that compile, everything answers, from the operators' definitions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.house import run_python

pytestmark = pytest.mark.once

#: A new process in which these libraries cannot be imported, and no pack is found.
_START = """
import json, sys, warnings
from pathlib import Path

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Blocker())
said = []
warnings.showwarning = lambda message, *_: said.append(str(message))
warnings.simplefilter("default")
import numpy as np
import flour
import oven
from oven.compiler import cache
from oven.explain import explain
cache.RELEASED = Path("nowhere")
"""

_EVERYWHERE = """
from urllib.request import urlopen
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from runtime import Runtime
from pretzel import Model
from runtime.http import Server, ServerSettings

X = np.random.default_rng(0).normal(size=(50, 3))
y = (X[:, 0] > 0).astype(int)
docs = ["good day", "bad day"] * 25
models = {
    "linear": (LogisticRegression().fit(X, y), X),
    "trees": (RandomForestClassifier(3, max_depth=3).fit(X, y), X),
    "text": (make_pipeline(CountVectorizer(), LogisticRegression()).fit(docs, y), docs),
}
tiers = {}
with Runtime(executors=1) as runtime, Server(runtime, ServerSettings(port=0)) as server:
    for name, (model, rows) in models.items():
        plan = oven.bake(flour.from_sklearn(model))
        plan.save(Path(sys.argv[2]) / f"{name}.plan")
        plan = oven.load(Path(sys.argv[2]) / f"{name}.plan")
        runtime.register(name, plan)
        want = model.predict(rows).tolist()
        assert plan.run(rows)["label"].tolist() == want
        assert plan.wait(120).ready
        tiers[name] = plan.code.tier
        assert plan.run(rows)["label"].tolist() == want
        assert plan.entry()(rows)[0].tolist() == want
        assert plan.entry()(rows[0])[0] == want[0]
        assert runtime.predict(name, rows)["label"].tolist() == want
        assert runtime.predict(name, rows[0])["label"] == want[0]
        assert runtime.predict(name, rows, engine="batch")["label"].tolist() == want
        body = json.dumps(rows[0] if name == "text" else rows[0].tolist()).encode()
        assert json.load(urlopen(f"{server.url}/predict/{name}", data=body))["label"] == want[0]
        assert f"tier {plan.code.tier}" in explain(plan) and explain(plan, "source")
    runtime.wait(60)
    assert Model(oven.bake(flour.from_sklearn(models["linear"][0]))).predict(X).tolist() == (
        models["linear"][0].predict(X).tolist()
    )
    narrow = runtime.predict("linear", X.astype(np.float32))["label"]
    assert narrow.tolist() == models["linear"][0].predict(X.astype(np.float32)).tolist()
    while not server.service.ready().ready:
        pass
print(json.dumps([tiers, sorted(set(said)), sorted(BLOCKED & set(sys.modules))]))
"""


def said(blocked: str, code: str, folder: Path) -> list[object]:
    environment = {"PRETZEL_CACHE": str(folder / "code")}
    answer = run_python(_START + code, blocked, str(folder), environment=environment, timeout=300)
    made: list[object] = json.loads(answer.splitlines()[-1])
    return made


def test_without_numba_all_of_ours_is_native(tmp_path: Path) -> None:
    tiers, warned, imported = said("numba", _EVERYWHERE, tmp_path)
    assert (tiers, warned, imported) == ({"linear": 1, "trees": 1, "text": 1}, [], [])


def test_without_a_compiler_definitions_answer_and_one_line_says_so(tmp_path: Path) -> None:
    tiers, warned, imported = said("numba,llvmlite", _EVERYWHERE, tmp_path)
    assert (tiers, imported) == ({"linear": 0, "trees": 0, "text": 0}, [])
    line = "code is not compiled, as llvmlite cannot be imported: definitions in numpy answer, "
    assert warned == [line + "more slowly; pip install llvmlite"]


_HALVES = """
from flour.ops.bases import FloatElementwise

class Halves(FloatElementwise):
    \"\"\"How many halves there are in a number, by a division that our lowering refuses.\"\"\"

    def compute(self, x):
        return x // 0.5

    def element(self, e, j, x):
        return f"({x.expr} // 0.5)"

plan = oven.bake(Halves()(flour.vector("x", 2)))
answers = [plan.run([[1.0, 2.0]])["output"].tolist()]
plan.wait(120)
answers += [plan.run([[1.0, 2.0]])["output"].tolist(), [plan.entry()([1.0, 2.0])[0].tolist()]]
print(json.dumps([plan.code.tier, answers, said]))
"""


def test_code_that_only_numba_compiles_is_left_to_its_definition(tmp_path: Path) -> None:
    tier, answers, warned = said("numba", _HALVES, tmp_path)
    assert (tier, answers) == (0, [[[2.0, 4.0]]] * 3)
    assert isinstance(warned, list)
    (line,) = warned
    assert "as numba cannot be imported (line " in line
    assert "\n" not in line
