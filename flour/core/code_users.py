"""Callers that compile more for plans than the plans ask for: the runtime that serves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

#: Called with plans whose code is compiled ahead of time, to compile what serving them needs beyond
#: it. Another process imports these functions by their names.
code_users: list[Callable[[Sequence[Any]], object]] = []
