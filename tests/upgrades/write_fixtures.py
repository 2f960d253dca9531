"""Writes one file of each format that outlives a process, with the answers that belong to it.

    git worktree add ../old COMMIT
    PYTHONPATH=../old python tests/upgrades/write_fixtures.py tests/upgrades/COMMIT
    git worktree remove ../old

It uses nothing but the product of that commit. A format whose number rises gets a new folder, and
the old ones stay: `test_upgrades.py` reads all of them.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import flour
import objectstore.layout
import oven
from flour.language import graph_file
from flour.language.graph_file import save_graph
from objectstore import Blob, FileStore, Strings
from oven.plans import manifest
from runtime import Runtime
from runtime.bulk import journal as bulk_journal
from runtime.bulk.journal import Journal
from runtime.repository.repository import Repository

TASK = {"plan": "abc", "rows": "rows.csv", "outputs": ["score"]}
WORDS = ["alpha", "beta", "gamma", "Stra\u00dfe"]


def linear(factor: float) -> flour.Flow:
    row = flour.record(user=float, amount=float)
    return flour.outputs(score=row["amount"] * factor + 1.0)


def texts() -> flour.Flow:
    counts = flour.text("document").tokenize().word_ngrams(WORDS, 1, 1)
    return flour.outputs(score=counts.linear([[1.0, 2.0, 4.0, 8.0]], [0.5]))


def trees() -> flour.Flow:
    """A forest of scikit-learn, as its importer writes it."""
    from sklearn.datasets import load_iris
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    features, labels = load_iris(return_X_y=True)
    forest = RandomForestClassifier(5, max_depth=4, random_state=0)
    fitted: Any = make_pipeline(StandardScaler(), forest).fit(features, labels)
    return flour.from_sklearn(fitted)


def plans(into: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    rows: dict[str, tuple[flour.Flow, Any]] = {
        "linear": (linear(2.0), {"user": [1.0, 2.0], "amount": [3.0, float("nan")]}),
        "texts": (texts(), ["alpha beta", "stra\u00dfe", "", "gamma gamma"]),
        "trees": (trees(), rng.uniform(0, 7, (20, 4)).round(2).tolist()),
    }
    told: dict[str, Any] = {}
    for name, (flow, data) in rows.items():
        plan = oven.bake(flow)
        plan.save(into / f"{name}.pretzel", training={"rows": 150})
        block = np.asarray(data) if name == "trees" else data
        answers = {key: np.asarray(value).tolist() for key, value in plan.run(block).items()}
        told[name] = {"rows": data, "answers": answers, "digest": plan.digest}
    return told


def graph(into: Path) -> None:
    row = flour.record(user=float, amount=float)
    asked = flour.model("m")(row)
    save_graph(flour.outputs(score=asked["score"] * 10.0), into / "decide.graph")


def store(into: Path) -> list[str]:
    with FileStore(into / "store") as made:
        items: list[Blob | Strings] = [Blob.of(np.arange(12.0).reshape(3, 4)), Strings.of(WORDS)]
        made.hold("fraud@1", items)
        return [made.put(each) for each in items]


def journal(into: Path) -> None:
    made = Journal(into / "answers.journal", TASK)
    list(made.batches())
    for start in (0, 3):
        made.append(pa.record_batch([pa.array([start + 0.5, start + 1.5])], names=["score"]))
    made.close()


def endpoint(into: Path) -> dict[str, Any]:
    """A folder whose endpoint is at the second step of a rollout, and answers that are kept."""
    folder = into / "models"
    for version in (1, 2):
        path = folder / "m" / str(version) / "model.pretzel"
        path.parent.mkdir(parents=True)
        oven.bake(linear(float(version))).save(path)
    now = [1000.0]
    with (
        Runtime(executors=1) as runtime,
        Repository(folder, runtime, quiet_seconds=0) as repository,
    ):
        repository.load_all()
        runtime.route("m", "m@1", tenants={"acme": "m@2"}, who="ann")
        made = runtime.rollout(
            *("m", "m@2"),
            steps=(20, 50, 100),
            dwell=60.0,
            header="user",
            least=5,
            who="ann",
            require=("errors < 1 %", "p99 < 500 ms"),
            clock=lambda: now[0],
            watch=False,
        )
        for user in range(200):
            headers = {"user": f"u{user}"}
            runtime.predict("m", {"user": float(user), "amount": 1.0}, headers=headers)
        now[0] += 61
        made.look()
        made.pause("overnight")
        keeper = runtime.keep("m", into / "kept")
        answer: Any = runtime.predict("m", {"user": 1.0, "amount": 2.0}, tenant="acme")
        keeper.close()
    (into / "kept" / "lock").unlink()
    return {"kept": answer.id, "step": made.step, "state": made.state}


def cluster(into: Path) -> None:
    """The state of a cluster in which two models were unloaded by name."""
    try:
        from runtime.cluster.serving.state import ClusterState
    except ImportError:  # at 0b3fa668
        from runtime.cluster.serving import membership

        Withdrawn: Any = membership.Withdrawn  # type: ignore[attr-defined]  # of that commit

        before = Withdrawn(into / "withdrawn.json", None)
        for name in ("fraud", "churn"):
            before.note(name, away=True)
        return
    state = ClusterState(into / "cluster.json")
    state.take_over()
    state.change(wanted=3)
    for name in ("fraud", "churn"):
        state.note(name, away=True)
    state.allow(7, "node/7/key")


def main(into: Path) -> None:
    random.seed(0)
    into.mkdir(parents=True)
    told: dict[str, Any] = {
        "formats": {
            "objectstore.layout.VERSION": objectstore.layout.VERSION,
            "oven.plans.manifest.FORMAT": manifest.FORMAT,
            "flour.language.graph_file.FORMAT": graph_file.FORMAT,
            "runtime.bulk.journal.FORMAT": getattr(bulk_journal, "FORMAT", 1),
        },
        "plans": plans(into),
        "store": store(into),
        "endpoint": endpoint(into),
    }
    for write in (graph, journal, cluster):
        write(into)
    (into / "told.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
