"""Recipes: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pretzel.training import Recipe, candidate, gate, step
from runtime.errors import BadRecipe
from tests.runtime.training.recipes import recipe

ENDS = """
@candidate
def linear(rows): ...
@training.gate(at_least=1)
def score(model, rows): ...
"""


def test_decorators_leave_functions_as_they_are() -> None:
    def function() -> int:
        return 1

    assert step(function) is step(max_age="1 d")(function) is candidate(function) is function
    assert gate(at_least=1.0)(function) is function


def test_steps_come_after_what_they_read(tmp_path: Path) -> None:
    made = recipe(tmp_path)
    assert [*made.steps].index("rows") < [*made.steps].index("weak")
    assert made.gate == "sureness"
    assert made.steps["strong"].reads == ["rows", "rows"]
    assert made.steps["rows"].values["data"] == tmp_path / "data.txt"
    assert made.steps["rows"].options == {"max_age": 100}


def test_times_have_units(tmp_path: Path) -> None:
    source = '@step(max_age="2 min")\ndef rows(*, at=("a", 1)): ...' + ENDS
    assert Recipe(tmp_path / "r.py", source).steps["rows"].options == {"max_age": 120.0}


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def (", "this is not Python"),
        ("", "a recipe has candidates, and one gate"),
        (
            "@step\ndef rows(): ..." + ENDS.replace("gate(at_least=1)", "gate"),
            "and one gate with a bound",
        ),
        ("@step\ndef row(): ..." + ENDS, "reads 'rows', which is neither a step"),
        ("@step\ndef rows(linear): ..." + ENDS, "these steps read one another"),
        ("@step\ndef rows(n=1 + len('a')): ..." + ENDS, "a default of a step is a literal"),
        ("@step(max_age='often')\ndef rows(): ..." + ENDS, "@step takes no max_age='often'"),
        ("@step(sample='a')\ndef rows(): ..." + ENDS, "@step takes no sample='a'"),
    ],
)
def test_what_cannot_be_a_recipe_is_refused(tmp_path: Path, source: str, told: str) -> None:
    with pytest.raises(BadRecipe, match=told.replace("(", r"\(")):
        Recipe(tmp_path / "r.py", source)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"wieght": "1"}, "no step has a parameter 'wieght'"),
        ({"rows__wait": "1"}, "no step has a parameter 'rows.wait'"),
        ({"number": "many"}, "number is of another type"),
        ({"number": "1.5"}, "number is of another type"),
    ],
)
def test_settings_that_fit_no_parameter_are_refused(
    tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    with pytest.raises(BadRecipe, match=told):
        recipe(tmp_path, **settings)


def test_a_setting_has_its_defaults_type(tmp_path: Path) -> None:
    made = recipe(tmp_path, weak__weight="2", data=str(tmp_path / "other"))
    assert made.steps["weak"].values == {"weight": 2}
    assert made.steps["strong"].values == {"weight": 3.0}
    assert made.steps["rows"].values["data"] == tmp_path / "other"
