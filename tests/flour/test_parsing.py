"""Source is parsed from any thread: a count that another thread has spoilt is no failure."""

from __future__ import annotations

import ast

import pytest

from flour.core.parsing import parse_expression, parse_source
from oven.compiler.native import ir_text
from tests.house import PACKAGES, ROOT, files

_SPOILT = SystemError("AST constructor recursion depth mismatch (before=4, after=9)")


def _failing(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    parse, left = ast.parse, iter(range(times))

    def spoilt(*given: object, **more: object) -> ast.AST:
        if next(left, None) is not None:
            raise _SPOILT
        return parse(*given, **more)  # type: ignore[call-overload,no-any-return]  # as it came

    monkeypatch.setattr(ast, "parse", spoilt)


def test_it_is_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _failing(monkeypatch, 1)
    source = "def f(a, b, c, d):\n    return a\n"
    assert "define i64" in ir_text(source, "f")[1]
    _failing(monkeypatch, 5)
    assert ast.unparse(parse_expression("1+x")) == "1 + x"


def test_an_error_that_stays_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _failing(monkeypatch, 1000)
    with pytest.raises(SystemError, match="depth mismatch"):
        parse_source("x = 1")


def test_nothing_else_parses() -> None:
    found = [path for path in files(*PACKAGES) if "ast.parse(" in path.read_text("utf-8")]
    assert found == [ROOT / "flour/core/parsing.py"]
