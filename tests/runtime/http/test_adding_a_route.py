"""docs/contributing/adding-a-route.md, done for real in a copy of the tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tree_copy import blocks, copied, insert, put, run, run_tests

pytestmark = [pytest.mark.once, pytest.mark.apart]

FILE, ROW = blocks("contributing/adding-a-route.md")

USE = """
import json
from urllib.error import HTTPError
from urllib.request import urlopen

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings

with Runtime() as runtime:
    runtime.register("wide", flour.vector("x", 5).sum())
    with Server(runtime, ServerSettings(port=0)) as server:
        models = f"http://127.0.0.1:{server.port}/v2/models"
        with urlopen(f"{models}/wide/columns") as answer:
            assert json.load(answer) == {"columns": {"x": 5}}
        try:
            urlopen(f"{models}/nothing/columns")
        except HTTPError as problem:
            assert problem.code == 404, problem.code
            problem.close()
        else:
            raise AssertionError("there is no such model")
"""


def test_one_file_and_one_row_are_enough(tmp_path: Path) -> None:
    tree = copied(tmp_path / "tree")
    put(tree, "runtime/http/answer/columns.py", FILE)
    table = "runtime/http/table.py"
    insert(
        tree,
        table,
        "from runtime.http.answer.inference import",
        "from runtime.http.answer.columns import InputWidths, columns\n",
    )
    insert(tree, table, '    *_models("/ready"', ROW)
    assert run_tests(tree, "-k", "columns or listed", "tests/runtime/http/test_openapi.py") >= 2
    run(tree, "-c", USE)
