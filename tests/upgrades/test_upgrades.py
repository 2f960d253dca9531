"""Files that former releases wrote are read, and mean what they meant then.

Each folder was written by `write_fixtures.py` with the code of the commit whose name it has. Where
a format changes so that it cannot be read, the error says so.
"""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oven
from flour.language.graph_file import load_graph
from objectstore import Archive, Blob, Explained, FileStore, Strings
from objectstore.archive import write
from objectstore.layout import MAGIC
from runtime import Runtime
from runtime.bulk.journal import FORMAT, Journal
from runtime.cluster.serving.state import ClusterState
from runtime.repository.repository import Repository
from tests.house import PACKAGES, files, parsed
from tests.upgrades.write_fixtures import TASK, WORDS

HERE = Path(__file__).parent
RELEASES = sorted(path.parent.name for path in HERE.glob("*/told.json"))
#: Numbers of formats of caches: what has another one is made again, and nothing is lost.
CACHES = {
    "oven.compiler.cache._FORMAT",
    "runtime.repository.staging._FORMAT",
    "runtime.training.job._FORMAT",
    "runtime.training.training._FORMAT",
}
#: Constants of these names that number no format of ours.
OTHERS = {"runtime.repository.listing.FIRST_VERSION", "oven.plans.characters.VERSION"}


@pytest.fixture(params=RELEASES)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The files of a former release, in a place where they may be written."""
    return Path(shutil.copytree(HERE / str(request.param), tmp_path / "old"))


def told(old: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((old / "told.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", ["linear", "texts", "trees"])
def test_plans_answer_as_they_did(old: Path, name: str) -> None:
    plan, expected = oven.load(old / f"{name}.pretzel"), told(old)["plans"][name]
    rows = np.asarray(expected["rows"]) if name == "trees" else expected["rows"]
    answers = {key: np.asarray(value).tolist() for key, value in plan.run(rows).items()}
    assert answers.keys() == expected["answers"].keys()
    for key, values in expected["answers"].items():
        np.testing.assert_array_equal(answers[key], values)
    assert plan.training() == {"rows": 150}
    assert plan.digest == expected["digest"]  # by which kept answers find it


def test_graphs_are_linked_and_answer(old: Path) -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("m", old / "models" / "m" / "2" / "model.pretzel")
        runtime.register("g", load_graph(old / "decide.graph"), background=False)
        assert runtime.predict("g", {"user": 1.0, "amount": 3.0})["score"] == 70.0


def test_stores_have_what_was_put(old: Path) -> None:
    with FileStore(old / "store") as store:
        numbers, words = told(old)["store"]
        blob, table = store.get(numbers), store.get(words)
        assert isinstance(blob, Blob)
        assert isinstance(table, Strings)
        assert blob.array.tolist() == np.arange(12.0).reshape(3, 4).tolist()
        assert list(table) == WORDS
        assert store.holdings() == {"fraud@1": frozenset({numbers, words})}
        assert not store.fsck().problems


def test_journals_are_gone_on_with(old: Path) -> None:
    """The answers of a former layout are computed again: it did not say which rows they are of."""
    with Journal(old / "answers.journal", TASK) as journal:
        kept = [batch.to_pydict()["score"] for batch in journal.batches()]
    is_former = told(old)["formats"].get("runtime.bulk.journal.FORMAT", 1) != FORMAT
    assert kept == ([] if is_former else [[0.5, 1.5], [3.5, 4.5]])


def test_kept_answers_are_explained(old: Path) -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("m", old / "models" / "m" / "1" / "model.pretzel", version=1)
        runtime.keep("m", old / "kept").close()
        with runtime.keep("m", old / "kept"):
            why = runtime.why(told(old)["endpoint"]["kept"])
            assert why.version == "2"
            assert why.answers == {"score": 5.0}
            assert why.agrees()


def test_an_endpoint_goes_on_with_its_rollout(old: Path) -> None:
    with (
        Runtime(executors=1) as runtime,
        Repository(old / "models", runtime, quiet_seconds=0) as repository,
    ):
        events = repository.load_all()
        assert not [each for each in events if each.kind == "refused"]
        made = runtime.rollout("m")
        assert (made.state, made.step) == ("paused", told(old)["endpoint"]["step"])
        assert made.terms.require == ("errors < 1 %", "p99 < 500 ms")
        route = runtime.routes.routed("m")
        assert route is not None
        assert (route.champion, dict(route.split)) == ("m@1", {"m@2": 50.0})
        assert dict(route.tenants) == {"acme": "m@2"}
        assert [each.action for each in runtime.routes.history("m")] == [
            "route",
            "rollout",
            "rollout",
        ]
        assert made.counts()["m@2"]["answers"].number > 5
        made.abort()
        assert runtime.routes.history("m")[-1].route == made.base


def test_a_cluster_remembers_what_was_unloaded(old: Path) -> None:
    state = ClusterState(old / "cluster.json")
    left = state.take_over()
    assert left.withdrawn == ["churn", "fraud"]
    state.note("fraud", away=False)
    assert ClusterState(old / "cluster.json").take_over().withdrawn == ["churn"]


# --- formats that come ----------------------------------------------------------------------------


def numbered() -> dict[str, object]:
    """The constants of the product that number formats, with their values."""
    found: dict[str, object] = {}
    for path in files(*PACKAGES):
        module = ".".join(
            path.with_suffix("").parts[-len(path.relative_to(HERE.parent.parent).parts) :]
        )
        for line in parsed(path).body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                name, value = line.target.id, line.value
            elif isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                name, value = line.targets[0].id, line.value
            else:
                continue
            if name.lstrip("_").split("_")[-1] in {"FORMAT", "VERSION"}:
                found[f"{module}.{name}"] = value.value if isinstance(value, ast.Constant) else None
    return found


def test_every_number_of_a_format_has_its_files() -> None:
    """A format that changes gets another number, and files of the former one stay here."""
    written = [told(HERE / release)["formats"] for release in RELEASES]
    for name, value in numbered().items():
        if name in CACHES | OTHERS or name.endswith("_LONG_VERSION"):
            continue
        assert value in [each.get(name) for each in written], (
            f"{name} = {value!r} has no files: run tests/upgrades/write_fixtures.py with it"
        )


@pytest.mark.parametrize("kind", ["plan", "graph", "container"])
def test_a_format_that_cannot_be_read_says_whose_it_is(tmp_path: Path, kind: str) -> None:
    """Of a release that comes: what is asked for is told, and nothing else is tried."""
    old = HERE / RELEASES[-1]
    source = old / ("decide.graph" if kind == "graph" else "linear.pretzel")
    path = tmp_path / source.name
    if kind == "container":
        data = bytearray(source.read_bytes())
        data[len(MAGIC)] += 1
        path.write_bytes(data)
    else:
        with Archive.open(source) as archive:
            manifest = {**archive.manifest, "format" if kind == "plan" else "graph": 99}
            write(path, manifest, {each: archive.get(each) for each in archive.digests()})
    with pytest.raises(Explained) as refused:
        (load_graph if kind == "graph" else oven.load)(path)
    said = str(refused.value)
    assert "this release reads " in said
    assert ("version 2" if kind == "container" else "format 99") in said
    assert refused.value.hint
