"""docs/contributing/operators-from-outside.md: a module of another package defines an operator."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour.core.errors import ParameterError
from flour.core.op import REGISTRY
from oven.errors import DamagedPlan
from tests.house import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(name="module", params=["", "from __future__ import annotations\n"])
def _module(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's module, imported; its operator is forgotten afterwards."""
    found = BLOCK.search((ROOT / "docs/contributing/operators-from-outside.md").read_text())
    assert found is not None
    (tmp_path / "shop_operators.py").write_text(request.param + found[1])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(importlib.sys.modules, "shop_operators", raising=False)  # type: ignore[attr-defined]  # it has
    REGISTRY.pop("Softcap", None)
    yield importlib.import_module("shop_operators")
    REGISTRY.pop("Softcap", None)


def test_its_plan_is_saved_and_loaded(module: Any, tmp_path: Path) -> None:
    assert module.Softcap.signature() == "Softcap(limit)"
    module.plan.save(tmp_path / "a.pretzel")
    answers = oven.load(tmp_path / "a.pretzel").run(module.rows)["output"]
    np.testing.assert_array_equal(answers, module.plan.run(module.rows)["output"])


def test_a_plan_whose_module_is_not_imported_names_it(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.plan.save(tmp_path / "a.pretzel")
    monkeypatch.delitem(REGISTRY, "Softcap")
    with pytest.raises(DamagedPlan, match="Softcap is not known here") as caught:
        assert oven.load(tmp_path / "a.pretzel").flow.outputs
    assert "shop_operators, which is not imported" in str(caught.value)
    assert "import shop_operators" in str(caught.value)


def test_a_typo_in_a_parameter_is_named(module: Any) -> None:
    with pytest.raises(ParameterError, match="did you mean 'limit'"):
        module.Softcap(limit=[1.0], limits=[2.0])
    assert isinstance(module.program, flour.Flow)
