"""The table of docs/contributing/rules.md: what rules preserve, before and after."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from oven.optimise.passes import PASSES  # noqa: E402 (the checkout comes first)

HEAD = "| rule | preserves | before: after |\n|---|---|---|\n"


def page() -> str:
    """The page with its table written anew, in the order of the passes."""
    rules = {rule.name: rule for each in PASSES for rule in each.rules}
    lines = [
        f"| `{name}` | {rule.preserves.name} | {_headline(rule.doc)} |\n"
        for name, rule in rules.items()
    ]
    text = (ROOT / "docs" / "contributing" / "rules.md").read_text(encoding="utf-8")
    table = re.compile(re.escape(HEAD) + r"(\|[^\n]*\n)*")
    made, tables = table.subn(lambda _: HEAD + "".join(lines), text)
    assert tables == 1, "the page has one table with this head"
    return made


def _headline(doc: str) -> str:
    return " ".join(doc.splitlines()[0].split()).replace("|", "\\|")
