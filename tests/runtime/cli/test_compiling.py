"""What commands say of tiers: while code is compiled, and before any is."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path

import pytest

import oven
from objectstore import Archive
from oven.compiler import cache
from oven.plans import background, carried
from runtime import Runtime
from runtime.cli import compiling
from runtime.cli.output import CommandOutput
from runtime.service.version import Compiling
from tests.house import until
from tests.oven.plans.test_background import ByHand, unseen
from tests.runtime.cli.conftest import Place, Pretzel

#: Of programs that no other test has.
_LENGTHS = itertools.count(21)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ByHand:
    """Compiles when the test says so, into an empty cache."""
    hand = ByHand()
    monkeypatch.setattr(background, "BY_DEFAULT", [True])
    monkeypatch.setattr(background, "shared", lambda: hand)
    monkeypatch.setattr(compiling, "EVERY", 0.01)
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path / "code"))
    return hand


def told(
    later: ByHand, monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, *, as_json: bool = False
) -> str:
    """What a command says on standard error while two plans are compiled."""
    monkeypatch.setattr("sys.stderr", stream)
    with Runtime(executors=1) as runtime:
        for number in (1, 2):
            runtime.register(f"m{number}", unseen(next(_LENGTHS)))

        unknown = itertools.repeat(None, 3)  # at first nobody says it in time

        def look() -> Compiling | None:
            return next(unknown, Compiling.of(runtime.endpoints.versions().values()))

        thread = compiling.follow(look, CommandOutput(as_json=as_json))
        if stream.isatty() and not as_json:
            until(lambda: "1 of 2 plans" in stream.getvalue())
        later.work()
        thread.join(60)
        assert not thread.is_alive()
        compiling.follow(look, CommandOutput()).join(60)  # and now there is nothing to tell
    return stream.getvalue()


def test_a_terminal_has_one_line_that_is_redrawn(
    later: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told(later, monkeypatch, Terminal())
    assert "\rcompiling: 1 of 2 plans, about 1 s left" in said
    line, end = said.split("\n")
    assert (line[-2:], end) == (" s", "")
    assert "\rpretzel: compiled the code of 2 plans in " in line


def test_elsewhere_there_is_one_line_at_the_end(
    later: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told(later, monkeypatch, io.StringIO())
    assert said.startswith("pretzel: compiled the code of 2 plans in ")
    assert said.count("\n") == 1


def test_as_json_it_is_an_event(later: ByHand, monkeypatch: pytest.MonkeyPatch) -> None:
    event = json.loads(told(later, monkeypatch, Terminal(), as_json=True))
    assert (event["kind"], event["reason"]) == ("compiled", "2 plans")
    assert event["seconds"] > 0


def test_the_last_plan_is_about_a_second_away_at_least() -> None:
    assert compiling.progress_text(1, 1, 0.01) == "1 of 1 plan, about 1 s left"
    assert compiling.progress_text(3, 2000, 4.4) == "3 of 2,000 plans, about 4 s left"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of two plans, of which one has its code in the cache."""
    folder = tmp_path / "models"
    folder.mkdir()
    oven.bake(unseen(31)).save(folder / "known.pretzel")
    oven.bake(unseen(32), background=background.NEVER).save(folder / "new.pretzel")
    return folder


def test_plans_are_listed_with_what_would_answer(pretzel: Pretzel, models: Path) -> None:
    before = cache.counters.compiled
    known, new = pretzel("ls", models, "--tiers", "--json").data["models"]
    assert (known["tier"], known["compile_seconds"]) == (1, 0.0)
    assert new["tier"] == 0
    assert new["compile_seconds"] > 0
    text = pretzel("ls", models, "--tiers").out
    assert "1: native code" in text
    assert "0: definitions, until native code is there, about " in text
    assert "tier" not in pretzel("ls", models, "--json").data["models"][0]
    (models / "broken.pretzel").write_bytes((models / "known.pretzel").read_bytes()[:-9])
    said = pretzel("ls", models, "--tiers").out
    assert "the file does not have the length its header states" in said
    facts = pretzel("inspect", models / "new.pretzel", "--json").data
    assert (facts["tier"], facts["code"]) == (0, [])
    assert "about " in pretzel("inspect", models / "new.pretzel").out
    assert cache.counters.compiled == before, "looking compiles nothing"


def test_an_imported_model_carries_code_if_asked(
    pretzel: Pretzel, place: Place, tmp_path: Path
) -> None:
    path, booster = tmp_path / "b.pretzel", place.root / "booster.ubj"
    ran = pretzel("import", booster, "--output", path, "--cpu", "host,x86-64-v2", "--json")
    assert ran.code == 0
    assert ran.data["code"][-1] == "x86-64-v2"
    with Archive.open(path) as archive:
        assert set(carried.level_names(archive.manifest)) == set(ran.data["code"])
    facts = pretzel("inspect", path, "--json").data
    assert sorted(facts["code"]) == sorted(ran.data["code"])
    refused = pretzel("import", booster, "--output", path, "--force", "--cpu", "z80")
    assert refused.code == 1
    assert "no such level of processors" in refused.err
    assert "x86-64-v3" in refused.err
