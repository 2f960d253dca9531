"""Which modules are imported when: by name, and all of them where the index does not know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import flour
from flour.core import modules_index
from flour.core.modules import load_adapter, load_onnx
from flour.core.op import REGISTRY, operator
from flour.language.adapters import ADAPTERS, adapts
from flour.onnx import registry
from flour.sklearn.validation import PICKS
from oven.optimise.rules import RULES
from oven.optimise.rules_index import NEEDS
from oven.plans.plan import CARRYING, COMPARING
from tests.house import run_python

pytestmark = pytest.mark.once

HINT = "run scripts/generate.py, which writes the indexes"

#: In a process of its own for each module, as modules import one another.
EACH_MODULE = """
import json, os, sys
import flour
from flour.core.modules import imported
from flour.core.op import REGISTRY
from flour.language.adapters import ADAPTERS
from flour.core.modules_index import ADAPTERS as OF_ADAPTERS, ONNX, OPERATORS
missing = []
for module in sorted({*OPERATORS.values(), *OF_ADAPTERS.values(), *ONNX.values()}):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        imported(module)
        from flour.onnx import registry
        onnx = {":".join(key) for key in registry.ADAPTERS}
        wanted = ((OPERATORS, REGISTRY), (OF_ADAPTERS, ADAPTERS), (ONNX, onnx))
        names = [(n, found) for index, found in wanted for n, m in index.items() if m == module]
        lost = [name for name, found in names if name not in found]
        os.write(write, json.dumps(lost).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        missing += json.load(answer)
    os.waitpid(child, 0)
print(json.dumps(missing))
"""
ONE_ESTIMATOR = """
import sys
import numpy as np
from sklearn.linear_model import LogisticRegression
import flour, oven
X = np.random.default_rng(0).normal(size=(30, 3))
plan = oven.bake(flour.from_sklearn(LogisticRegression().fit(X, X[:, 0] > 0)))
plan.run(X)
print(*sys.modules)
"""
STALE = """
import sys
import flour.core.modules_index as index
how = sys.argv[1]
for table in (index.OPERATORS, index.ADAPTERS, index.ONNX):
    if how == "empty":
        table.clear()
    else:
        table.update(dict.fromkeys(table, how))
import numpy as np
from sklearn.linear_model import Ridge
import flour
X = np.random.default_rng(0).normal(size=(30, 3))
fit = Ridge().fit(X, X[:, 0])
np.testing.assert_allclose(flour.from_sklearn(fit).reference(X)["value"], fit.predict(X))
model = flour.vector("x", 3).softmax()
again = flour.from_onnx(flour.to_onnx(model))
np.testing.assert_allclose(again.reference(X)["output"], model.reference(X)["output"])
print(model.reference(X)["output"].sum())
"""
ONE_SESSION = """
import sys
from pathlib import Path
from runtime import InferenceSession
session = InferenceSession(Path(sys.argv[1]).read_bytes())
session.run(None, {"x": [[1.0, 2.0, 3.0]]})
print(*sys.modules)
import onnx
assert type(onnx.load(sys.argv[1])) is onnx.ModelProto
onnx.checker.check_model(onnx.load(sys.argv[1]))
assert InferenceSession(onnx.load(sys.argv[1])).run(None, {"x": [[1.0, 2.0, 3.0]]})
"""


def test_the_indexes_have_every_operator_adapter_and_rule() -> None:
    load_adapter("")
    load_onnx("")
    onnx = {":".join(key): known[0][1] for key, known in registry.ADAPTERS.items()}
    assert _modules(onnx) == modules_index.ONNX, HINT
    assert _modules(REGISTRY) == modules_index.OPERATORS, HINT
    assert _modules(ADAPTERS) == modules_index.ADAPTERS, HINT
    needs = {name: tuple(rule.needs) for name, rule in RULES.items() if not rule.passes}
    assert needs == NEEDS, HINT


def _modules(known: Mapping[str, object]) -> dict[str, str]:
    """The modules of what is ours."""
    found = {name: made.__module__ for name, made in known.items()}
    return {name: module for name, module in found.items() if module.startswith("flour.")}


def test_importing_the_module_of_a_name_is_enough() -> None:
    assert json.loads(run_python(EACH_MODULE)) == [], HINT


def test_operators_that_are_told_by_name_are_there() -> None:
    told = CARRYING | COMPARING | PICKS | {"Narrow", "Bundle", "Impute", "Clip"}
    assert sorted(told - set(modules_index.OPERATORS)) == []


def test_one_estimator_needs_few_modules() -> None:
    loaded = set(run_python(ONE_ESTIMATOR).split())
    families = {name for name in loaded if name.startswith("flour.ops.")}
    assert {"flour.ops.linear", "flour.ops.link"} <= families
    assert len(families) < 20, sorted(families)
    assert not loaded & {"flour.ops.spline", "flour.boosters.lightgbm", "flour.ops.text"}


def test_a_session_needs_few_modules(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(flour.to_onnx(flour.vector("x", 3).linear([[1.0, 2.0, 3.0]], [0.5])))
    loaded = set(run_python(ONE_SESSION, str(path)).split())
    assert not loaded & {"onnx", "onnx.checker", "flour.onnx.control", "flour.onnx.text_ngrams"}


@pytest.mark.parametrize("how", ["empty", "flour.ops.no_such_module", "flour.ops.spline"])
def test_an_index_that_is_out_of_date_costs_time_only(how: str) -> None:
    assert float(run_python(STALE, how)) == pytest.approx(30.0)


def test_a_name_that_nothing_has_is_none() -> None:
    assert operator("NoSuchOperator") is None


def test_an_adapter_from_outside_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "sklearn.linear_model.Ridge"
    load_adapter("")
    ours = ADAPTERS[name]
    monkeypatch.setitem(ADAPTERS, name, ours)

    def theirs(*_: object) -> object:
        return None

    adapts(name)(theirs)
    assert ADAPTERS[name] is theirs
    adapts(name)(ours)
    assert ADAPTERS[name] is theirs


def test_an_import_leaves_the_collector_as_it_was() -> None:
    code = (
        "import gc, flour\n"
        "from flour.core.modules import imported\n"
        "imported('flour.ops.spline'); assert gc.isenabled()\n"
        "gc.disable(); imported('flour.ops.svm'); assert not gc.isenabled()\n"
    )
    run_python(code)
