"""Feedback of a server: its notes ask for it, labels come over HTTP, the command line reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import flour
import oven
from flour.core.errors import InputError
from runtime import Runtime
from runtime.cli.program import run
from runtime.feedback import Feedback, FeedbackFolder
from runtime.http import Server, ServerSettings
from runtime.watch import training_of
from tests.runtime.http.client import Client

PROGRAM = flour.outputs(value=flour.vector("x", 2).sum())


@pytest.mark.parametrize("drifted", [False, True])
def test_a_label_comes_over_http(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, drifted: bool
) -> None:
    """By the id in the header of the answer; `pretzel feedback` tells what it says of the model."""
    notes: dict[str, Any] = {"feedback": {"sample": 1.0}}
    if drifted:
        notes["feedback"] |= {"drifted": 0.5}
        training = training_of(oven.bake(PROGRAM), np.random.default_rng(0).normal(size=(600, 2)))
        notes |= {"watch": {"drift": True}, "training": training}
    with Runtime(executors=1) as runtime:
        runtime.register("m", PROGRAM, notes=notes, background=False)
        runtime.register("other", PROGRAM, background=False)
        with Server(runtime, ServerSettings(port=0, answers=tmp_path)) as server:
            client = Client(server.port)
            made = [client.post("/predict/m", [float(n), 1.0]) for n in range(5)]
            ids = [reply.headers["x-answer-id"] for reply in made]
            labels = {"labels": {name: n + 1.5 for n, name in enumerate(ids)} | {"nobody": 1}}
            assert client.post("/v2/models/m/labels", labels).json == {"labels": 6}
            assert client.post("/v2/models/other/labels", labels).status == 404
            for wrong in ({"a": list[str]()}, {"a": ""}, {"a/-1": 1}):
                assert client.post("/v2/models/m/labels", {"labels": wrong}).status == 400
            feedback = runtime.routes.keeper("m", "feedback")
            assert isinstance(feedback, Feedback)
            feedback.fold()
            feedback.flush()
    folder = tmp_path / "m-feedback"
    more = folder.parent / "more.csv"
    more.write_text(f"id,label\n{ids[0]},3.0\n")
    table = folder.parent / "table.parquet"
    assert not run(
        ["feedback", str(folder), "--labels", str(more), "--table", str(table), "--json"]
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["chosen"], told["labels"], told["unknown"]) == (5, 6, 1)
    assert [each["segment"] for each in told["segments"]] == [[], ["m@1"]]
    assert told["segments"][0]["mae"]["value"] == pytest.approx((2.0 + 4 * 0.5) / 5)
    assert pq.read_table(table)["@label"].to_pylist() == [3.0, 2.5, 3.5, 4.5, 5.5]
    assert not run(["feedback", str(folder), "--segment", "0 // 2"])
    assert "0, 2 rows: mae" in capsys.readouterr().out
    assert run(["feedback", str(folder / "none")]) == 5
    assert run(["feedback", str(tmp_path.parent), "--labels", str(more)]) == 5
    assert "no rows were chosen into this folder yet" in capsys.readouterr().err
    assert not [*tmp_path.parent.glob("labels-*")]


def test_files_with_other_columns_name_them(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("answer,truth\na-1,yes\n")
    with pytest.raises(InputError, match="answer, truth"):
        FeedbackFolder(tmp_path / "folder").labels(tmp_path / "other.csv")
