"""Models of libraries around scikit-learn, fitted here: in memory, and in a pickle."""

from __future__ import annotations

import pickle
from importlib.util import find_spec

import pytest

import flour
from flour.sklearn.file import read_as_data
from tests.flour.other_libraries import make
from tests.flour.test_other_libraries import DATA, NAMES, ROWS, SAMPLED, answer, check, reads

LIBRARIES = ("feature_engine", "imblearn", "statsmodels")
pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore"),  # training is short on purpose
    pytest.mark.skipif(not all(map(find_spec, LIBRARIES)), reason=f"without {LIBRARIES}"),
]


@pytest.mark.parametrize("name", NAMES)
def test_memory_and_pickle_make_one_program_that_answers_as_the_library(name: str) -> None:
    fitted = make.models()[name](DATA, make.target(DATA))
    sample = DATA if name in SAMPLED else None
    program = flour.from_sklearn(fitted, sample)
    assert flour.from_sklearn(read_as_data(pickle.dumps(fitted)), sample).digest == program.digest
    for kind, some in ROWS.items():
        made = answer(program.reference, reads(program, some))
        check(made, make.answers(fitted, some), f"{name}, {kind}")
