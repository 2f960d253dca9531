"""The debug ladder: each level shows what it says, and the deepest one shows all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import flour
import oven
from flour import Flow
from flour.core.errors import ParameterError
from oven import debug
from tests.oven.programs import PROGRAMS

MARKS = {1: "== stages", 2: "fired in", 3: "hits / tries", 4: "== source", 5: "== asm"}


def program() -> Flow:
    """Something that a rule applies to."""
    x = flour.vector("x", 4).subtract([1.0, 2.0, 3.0, 4.0]).divide([2.0])
    return x.linear([[1.0, 2.0, 3.0, 4.0]], [0.5]).sigmoid()


def said(level: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PRETZEL_DEBUG", str(level))
    with debug.captured() as lines:
        oven.bake(program())
    return "\n".join(lines)


@pytest.mark.rules
@pytest.mark.parametrize("level", [0, 1, 2, 3, 4, 5])
def test_a_level_shows_its_own_and_all_below(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = said(level, monkeypatch)
    assert [mark in text for mark in MARKS.values()] == [at <= level for at in MARKS]


# The deepest levels compile everything once more, so not all of them.
@pytest.mark.once
@pytest.mark.parametrize("name", ["worded_logistic", "several_inputs", "nothing_to_do"])
def test_level_99_works(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PRETZEL_DEBUG", "99")
    monkeypatch.setenv("PRETZEL_DUMP", str(tmp_path))
    flow, data = PROGRAMS[name]()
    with debug.captured() as lines:
        plan = oven.bake(flow)
        plan.run(data)
        plan.save(tmp_path / "a.plan")
        oven.load(tmp_path / "a.plan")
    assert "== asm" in "\n".join(lines)
    assert len(list(tmp_path.glob("plan-*"))) >= 2


def test_level_1_tells_where_code_came_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path / "code"))
    monkeypatch.setattr("oven.compiler.cache._addresses", {})
    first = said(1, monkeypatch)
    assert re.search(r"compiled fused_rows_[0-9a-f]{32} in \d+ ms", first)
    monkeypatch.setattr("oven.compiler.cache._addresses", {})
    again = said(1, monkeypatch)
    assert re.search(r"loaded fused_rows_[0-9a-f]{32} from the cache", again)
    assert "compiled" not in again


@pytest.mark.rules
def test_level_3_names_rule_file_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = said(3, monkeypatch)
    assert re.search(r"oven/optimise/rules/\w+\.py:\d+", text)
    assert "(unchanged)" in text


def test_it_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRETZEL_DEBUG", "1")
    oven.bake(program())
    out, err = capsys.readouterr()
    assert out == ""
    assert "== stages" in err


def test_silence_is_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PRETZEL_DEBUG", raising=False)
    monkeypatch.delenv("PRETZEL_DUMP", raising=False)
    oven.bake(program())
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("level", ["high", "-1", "1.5", "0x1"])
def test_a_level_is_a_number(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRETZEL_DEBUG", level)
    with pytest.raises(ParameterError, match="PRETZEL_DEBUG"):
        oven.bake(program())


def dumped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("PRETZEL_DUMP", str(folder))
    before = set(folder.glob("plan-*")) if folder.exists() else set()
    oven.bake(program())
    (made,) = set(folder.glob("plan-*")) - before
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(made.iterdir())}


def test_a_dump_is_one_file_a_step_in_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = dumped(tmp_path / "new", monkeypatch)
    names = list(files)
    assert [name[:3] for name in names] == [f"{place:02}-" for place in range(len(names))]
    assert names[0] == "00-logical.txt"
    assert [name[3:] for name in names[-4:]] == ["stages.txt", "source.txt", "llvm.txt", "asm.txt"]
    assert all(text.endswith("\n") for text in files.values())


def test_two_dumps_of_one_program_are_equal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = (dumped(tmp_path, monkeypatch) for _ in range(2))
    for name in first:
        assert first[name] == second[name]
    assert list(first) == list(second)
