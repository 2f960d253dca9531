"""`pretzel train`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runtime.cli.errors import Exit
from runtime.cli.program import run
from tests.runtime.training.recipes import ran, recipe

Captured = pytest.CaptureFixture[str]


def test_a_recipe_is_trained_into_a_folder(tmp_path: Path, capfd: Captured) -> None:
    recipe(tmp_path, ('note("weak")', 'note("weak"); print("said by a step")'))
    command = ["train", str(tmp_path / "tiny_recipe.py"), "--into", str(tmp_path / "models")]
    assert run([*command, "--json", "--jobs", "2", "--name", "m"]) == Exit.OK
    output, _ = capfd.readouterr()
    assert json.loads(output)["served"] == ["strong", "weak"], "and nothing that a step said"
    assert (tmp_path / ".pretzel-training" / "steps").is_dir()
    former = [*(tmp_path / "models" / "m").iterdir()]
    (tmp_path / "log").write_text("")
    assert run([*command, "--name", "m"]) == Exit.OK
    output, told = capfd.readouterr()
    assert output.endswith("strong and weak; 0 steps computed\n")
    assert "strong: sureness 0.9526, passed, stored" in told
    assert ran(tmp_path) == []
    assert [*(tmp_path / "models" / "m").iterdir()] == former


def test_arguments_that_cannot_be_are_refused(tmp_path: Path, capfd: Captured) -> None:
    recipe(tmp_path)
    path = str(tmp_path / "tiny_recipe.py")
    assert run(["train", path, "--set", "weight"]) == Exit.USAGE
    assert run(["train", path, "--every", "often"]) == Exit.USAGE
    assert run(["train", path, "--set", "wieght=1"]) == Exit.REFUSED
    assert run(["train", str(tmp_path / "other.py")]) == Exit.FILES
    assert "no step has a parameter 'wieght'" in capfd.readouterr().err


def test_a_candidate_that_fails_is_told_last(tmp_path: Path, capfd: Captured) -> None:
    """The others are served, and the exit code says that it is not well."""
    recipe(tmp_path, ('note("weak")', "return [][1]"))
    command = ["train", str(tmp_path / "tiny_recipe.py"), "--into", str(tmp_path / "models")]
    assert run(command) == Exit.REFUSED
    output, _ = capfd.readouterr()
    assert output == "tiny_recipe@1 strong; 5 steps computed; failed: weak\n"


def test_a_budget_and_a_gate_that_nothing_passes(tmp_path: Path) -> None:
    recipe(tmp_path, ("at_least=0.5", "at_least=2.0"))
    command = ["train", str(tmp_path / "tiny_recipe.py"), "--cache", str(tmp_path / "cache")]
    assert run([*command, "--cache-bytes", "0"]) == Exit.REFUSED
    results = tmp_path / "cache" / "results"
    assert [*results.iterdir()]  # it is in use until the end
    assert run([*command, "--cache-bytes", "1G"]) == Exit.REFUSED
    assert len(ran(tmp_path)) == 6


def test_it_is_trained_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        raise KeyboardInterrupt

    recipe(tmp_path, ("at_least=0.5", "at_least=2.0"))
    command = ["train", str(tmp_path / "tiny_recipe.py"), "--every", "2 h"]
    with monkeypatch.context() as patched:
        patched.setattr("runtime.cli.training.PAUSE", wait)
        assert run(command) == Exit.INTERRUPTED
    assert waits == [7200.0]
