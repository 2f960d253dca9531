"""How long compiling will take, as learnt from what it took."""

from __future__ import annotations

import pytest

from oven.compiler import estimate
from oven.entry.forms import records_entry
from oven.entry.generator import entry_code

NUMBERS = "def rows(params, io, n, scratch):\n" + "    a = ld_float64(io, 0)\n" * 40
TEXTS = "def rows(params, io, n, scratch):\n" + "    a = text_lower(io, 0)\n" * 40


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was measured yet."""
    monkeypatch.setattr(estimate, "_expected", [estimate.GUESS_SECONDS])
    monkeypatch.setattr(estimate, "_taken", [estimate.GUESS_SECONDS])


def test_longer_source_and_texts_take_longer() -> None:
    assert estimate.seconds([]) == 0
    assert estimate.seconds([NUMBERS, NUMBERS]) == 2 * estimate.seconds([NUMBERS])
    assert estimate.seconds([TEXTS]) > 4 * estimate.seconds([NUMBERS])


def test_an_entry_takes_less_than_its_length_says() -> None:
    code = entry_code(records_entry)
    assert code is not None
    assert estimate.seconds([code.text]) == pytest.approx(len(code.text) * estimate.ENTRIES)


def test_a_slow_machine_is_found_out() -> None:
    first = estimate.seconds([NUMBERS])
    for _ in range(1000):
        estimate.learn(NUMBERS, 3 * first)
    assert 2.5 * first < estimate.seconds([NUMBERS]) <= 3 * first
