"""ONNX's own backend tests, through `from_onnx`.

All cases without onnxruntime's help run by the operators' definitions here; one case of every
operator runs compiled. Under the marker `conformance` all of them do.
"""

from __future__ import annotations

import sys

import pytest

from flour.core.modules import load_onnx
from flour.onnx.registry import ADAPTERS
from flour.sessions.guards import guard
from tests.house import ROOT
from tests.onnx_cases import OnnxCase, cases, imported, problem, refusal

sys.path.insert(0, str(ROOT / "scripts"))

import onnx_coverage_page

#: Compiled cases are run in so many tests, so that several workers can share them.
PARTS = 4
#: Uses of operators of our set that no program of rows has: they run on onnxruntime.
NOT_NATIVE = (
    ("BatchNormalization", "statistics of the batch"),
    ("StringNormalizer", "stop words drop strings"),
    ("TfIdfVectorizer", "n-grams of numbers, or of strings"),
)


def native() -> list[OnnxCase]:
    """Every case that is native code throughout."""
    return [case for case in cases() if not refusal(case)]


def wrong(chosen: list[OnnxCase], *, compiled: bool) -> dict[str, str]:
    """What is wrong with the answers of these cases, by name."""
    found = {case.name: problem(case, imported(case), native=compiled) for case in chosen}
    return {name: said for name, said in found.items() if said}


def test_definitions_answer_as_the_suite_wants() -> None:
    chosen = native()
    assert len(chosen) > 900
    assert wrong(chosen, compiled=False) == {}


def test_one_case_of_every_operator_compiled() -> None:
    chosen: dict[str, OnnxCase] = {}
    for case in native():
        if len(case.operators) == 1 and case.sets:
            chosen.setdefault(case.operators[0], case)
    assert len(chosen) > 100
    assert wrong(list(chosen.values()), compiled=True) == {}


@pytest.mark.conformance
@pytest.mark.parametrize("part", range(PARTS))
def test_compiled_code_answers_as_the_suite_wants(part: int) -> None:
    assert wrong(native()[part::PARTS], compiled=True) == {}


def test_only_these_uses_of_our_operators_are_not_native() -> None:
    load_onnx("")
    ours = {f"{domain}::{name}".removeprefix("::") for domain, name in ADAPTERS}
    refused: dict[str, str] = {}
    for case in cases():
        said = refusal(case)
        about = set(case.operators)
        if said and about <= ours and onnx_coverage_page.reason(said) == onnx_coverage_page.OTHER:
            refused.setdefault(said, case.name)
    odd = {
        said: name
        for said, name in refused.items()
        if not any(f"{operator} " in said and why in said for operator, why in NOT_NATIVE)
    }
    assert odd == {}


def test_guards_let_every_case_pass() -> None:
    for case in cases():
        guard(case.model, case.name)


def test_the_page_is_current() -> None:
    path = ROOT / "docs" / "reference" / "coverage-onnx.md"
    text = path.read_text(encoding="utf-8")
    if not onnx_coverage_page.current(text):
        pytest.skip("docs/reference/coverage-onnx.md was made with another version of ONNX")
    assert text == onnx_coverage_page.page()
