"""The characters of a plan: those of a version of Unicode, which a saved plan states.

What is a letter, what a small one, what an accent is asked of the running Python, as scikit-learn
does, and made into tables when a plan is baked or loaded. So a plan answers as its library would
here. Another Python may know more characters: where a plan was saved elsewhere, a warning says so,
and who would rather not load it makes an error of that warning.
"""

from __future__ import annotations

import unicodedata
import warnings

from flour.language.flow import Flow
from oven.errors import OtherUnicode

VERSION = unicodedata.unidata_version
"""Of Unicode, as the running Python has it."""


def version(*programs: Flow) -> str | None:
    """The Unicode whose characters these programs know; None if they look at none."""
    nodes = (item for program in programs for item in program.nodes())
    return VERSION if any(item.op.reads_characters for item in nodes) else None


def compare(saved: str | None, where: str) -> None:
    """Warn if a plan in this place was saved where Python knew other characters."""
    if saved not in (None, VERSION):
        problem = OtherUnicode(
            "this plan was saved where Python knew other characters",
            where=where,
            found=f"Unicode {saved}; this Python has {VERSION}",
            hint="characters that only one of them knows may be cut or lowered otherwise, as "
            "scikit-learn would here; verify the plan, and save it again",
        )
        warnings.warn(problem, stacklevel=4)


__all__ = ["VERSION", "compare", "version"]
