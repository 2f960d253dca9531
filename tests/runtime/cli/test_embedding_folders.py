"""Folders of embeddings as the MODEL of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

import oven
from tests.house import ROOT
from tests.runtime.cli.conftest import Pretzel

STORED = ROOT / "tests" / "flour" / "embeddings"


def test_a_folder_becomes_a_plan(
    pretzel: Pretzel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(STORED)  # a folder is named as it is, not by the path that leads to it
    found = pretzel("inspect", "softmax", "--json").data
    (step,) = found["steps"]
    assert found["format"] == "embedding"
    assert step["parameters"]["tokenizer"] == "WordPiece"
    assert step["parameters"]["head"] == "head.safetensors"
    assert found["black_stages"] == 0
    made = pretzel("import", "softmax", "--into", tmp_path, "--json").data
    plan = oven.load(made["file"])
    assert plan.run(["yes"])["label"][0] in ("no", "perhaps", "yes")


def test_a_refused_folder_says_what_is_in_it(pretzel: Pretzel, tmp_path: Path) -> None:
    for each in (STORED / "plain").iterdir():
        text = each.read_bytes().replace(b'"BertNormalizer"', b'"Nmt"')
        (tmp_path / each.name).write_bytes(text)
    said = pretzel("inspect", tmp_path, "--json").data
    assert "Nmt" in said["refused"]["found"]
    assert said["steps"][0]["parameters"]["head"] == "none"
    (tmp_path / "model.safetensors").unlink()
    ended = pretzel("import", tmp_path, "--output", tmp_path / "x.pretzel")
    assert ended.code != 0
    assert "static embedding" in ended.err
