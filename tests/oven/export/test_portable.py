"""Portable code answers as the reference does, for every operator that has it."""

from __future__ import annotations

import re

import pytest

import oven
from flour.core.sparse import densify
from oven.errors import NotExportable
from oven.export.image import portable_plan
from tests.cases import Case
from tests.columns import assert_close
from tests.oven.test_cases import RUNNABLE, program, run_both

pytestmark = [pytest.mark.once, pytest.mark.apart]

#: Functions of ours are within a few units in the last place.
_CLOSE = 2e-14
#: Functions without a portable form yet.
_WITHOUT = re.compile("`a?(sin|cos|tan)h?`|`erf`")


@pytest.mark.parametrize("case", [each for each in RUNNABLE if each.native], ids=lambda c: c.name)
def test_portable_code_answers_as_the_reference(case: Case) -> None:
    plan = oven.bake(program(case), background=False)
    try:
        portable = portable_plan(plan)
    except NotExportable as refused:
        if _WITHOUT.search(str(refused)):
            return
        raise
    for rows in (1, 300):
        found, wanted = run_both(portable, case, rows, odd=case.odd)
        assert_close(densify(found), densify(wanted), max(case.tolerance, _CLOSE), case.name)
