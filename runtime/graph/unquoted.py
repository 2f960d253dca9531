"""Errors about fetched data, without the data."""

from __future__ import annotations

import re

from flour.core.errors import FlourError, InputError

_QUOTED = re.compile(r"""b?'(?:[^'\\]|\\.)*'|b?"(?:[^"\\]|\\.)*\"""")


def unquoted(problem: FlourError) -> FlourError:
    """An error about data without the values that it quotes, as they may have been fetched.

    Values of a column that the caller has sent, which the place names, stay.
    """
    said = problem.what, problem.found
    if isinstance(problem, InputError) and not str(problem.where).startswith("$."):
        problem.what = _QUOTED.sub("'…'", problem.what)
        problem.found = problem.found if str(problem.found).isalpha() else None
    if said != (problem.what, problem.found):
        problem.hint = "; ".join([*filter(None, [problem.hint]), "fetched values are not shown"])
        problem.args = (problem.what,)
    return problem
