"""Rows that are chosen, labels that come late, and estimates beside those of scikit-learn."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    brier_score_loss,
    log_loss,
    mean_absolute_error,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import flour
import pretzel
from flour.core.errors import FlourError, InputError
from runtime import Runtime
from runtime.feedback import Feedback, FeedbackFolder, FeedbackReport
from runtime.feedback.estimates import auc, share
from runtime.feedback.selection import Selection
from tests.house import until
from tests.runtime.conftest import Clock

RNG = np.random.default_rng(3)
ROWS = 400
X = pd.DataFrame({
    "amount": RNG.normal(size=ROWS),
    "city": RNG.choice(["Oslo", "Rome"], ROWS),
    "ssn": np.where(np.arange(ROWS) % 2, "mk7cat-a", "mk7cat-b"),
})  # fmt: skip
TRUE = (X["amount"] + RNG.normal(size=ROWS) > 0).to_numpy()
LABELS = np.where(TRUE, "yes", "no")


def model(strength: float = 1.0) -> Any:
    """Return a program of the table; another `strength` has other probabilities."""
    hot = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer((hot, ["city", "ssn"]), remainder="passthrough")
    fit = make_pipeline(columns, LogisticRegression(C=strength)).fit(X, LABELS)
    return flour.from_sklearn(fit, sample=X)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime(executors=1) as made:
        made.register("m", model(), background=False)
        yield made


def ask(runtime: Runtime, rows: pd.DataFrame) -> list[str]:
    """Predict each row alone, and return the ids."""
    return [runtime.predict("m", row).id for row in rows.to_dict("records")]  # type: ignore[attr-defined]  # it is kept


def read(folder: Path) -> pd.DataFrame:
    """Return all rows of a folder."""
    return pd.concat([pq.read_table(path).to_pandas() for path in sorted(folder.glob("*.parquet"))])


def own(report: FeedbackReport) -> Any:
    """Return the estimates of all rows."""
    return report.estimates[()]


def test_estimates_are_those_of_scikit_learn(runtime: Runtime, tmp_path: Path) -> None:
    """All rows were chosen, and all have a label; by segment as well."""
    with Feedback(runtime, "m", tmp_path, sample=1.0) as feedback:
        ids = ask(runtime, X)
        feedback.flush()
        feedback.labels(pd.DataFrame({"id": ids, "label": LABELS}))
        report = feedback.report(segments=("city",))
    answers = runtime.predict("m", X)
    P = np.asarray(answers["probabilities"])
    assert (report.chosen, report.labels, report.unknown) == (ROWS, ROWS, 0)
    for name in ((), ("Oslo",), ("Rome",)):
        at = np.ones(ROWS, bool) if not name else (X["city"] == name[0]).to_numpy()
        found = report.estimates[name]
        want = {
            "accuracy": accuracy_score(LABELS[at], answers["label"][at]),
            "auc": roc_auc_score(TRUE[at], P[at, 1]),
            "log_loss": log_loss(LABELS[at], P[at], labels=["no", "yes"]),
            "brier": brier_score_loss(TRUE[at], P[at, 1]),
            "bias": float(P[at, 1].mean() - TRUE[at].mean()),
        }
        assert found.keys() == want.keys()
        for what, value in want.items():
            assert found[what].value == pytest.approx(value, rel=1e-9), what
            assert found[what].low < value < found[what].high
        assert report.rows[name] == at.sum()
    told = json.loads(json.dumps(report.to_dict()))
    assert [each["segment"] for each in told["segments"]] == [[], ["Oslo"], ["Rome"]]
    assert "Oslo" in str(report)
    table = feedback.table().to_pandas()
    assert [*table.columns] == ["amount", "city", "ssn", "@weight", "@label"]
    assert sorted(table["@label"]) == sorted(LABELS)
    assert np.allclose(np.sort(table["amount"]), np.sort(X["amount"]))


def test_numbers_have_errors(tmp_path: Path) -> None:
    """Labels may come as texts; those that are no numbers count as none."""
    rows = RNG.normal(size=(60, 2))
    true = rows @ [2.0, 1.0] + RNG.normal(size=60)
    with Runtime(executors=1) as runtime:
        fit = LinearRegression().fit(rows, true)
        runtime.register("m", flour.from_sklearn(fit, sample=rows), background=False)
        with Feedback(runtime, "m", tmp_path, sample=1.0) as feedback:
            answer = runtime.predict("m", rows)
            late = answer.id  # type: ignore[attr-defined]  # it is kept
        file = tmp_path.parent / "labels.csv"
        named = {"id": [f"{late}/{at}" for at in range(60)], "label": true}
        pd.DataFrame(named).to_csv(file, index=False)
        feedback.labels(file)
        feedback.labels({f"{late}/3": "unknown"})
        found, at = own(feedback.report()), np.arange(60) != 3
    assert found["mae"].value == pytest.approx(mean_absolute_error(true[at], fit.predict(rows)[at]))
    rmse = root_mean_squared_error(true[at], fit.predict(rows)[at])
    assert found["rmse"].value == pytest.approx(rmse)
    assert found["rmse"].low < rmse < found["rmse"].high
    assert feedback.table()["0"].to_pylist() == pytest.approx(rows[at, 0])


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_conformal_answers_have_coverage_by_segment(tmp_path: Path, kind: str) -> None:
    """Rows outside of intervals or sets in one segment are seen there, and nowhere else."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=900), "far": np.repeat([0.0, 1.0], 450)})
    y = X["a"] + rng.normal(0, 0.1 + X["far"])
    fit: Any = LinearRegression().fit(X[:300], y[:300])
    truth: Any = y
    if kind == "classes":
        truth = pd.Series(np.digitize(y, [-0.5, 0.5]))
        fit = LogisticRegression().fit(X[:300], truth[:300])
    made = pretzel.compile(fit, sample=X[:5]).conformal(X[200:450], truth[200:450], coverage=0.9)
    with Runtime() as runtime:
        runtime.register("m", made.plan, background=False)
        with Feedback(runtime, "m", tmp_path, sample=1.0) as feedback:
            answer: Any = runtime.predict("m", X)
            feedback.flush()
            feedback.labels({f"{answer.id}/{at}": each for at, each in enumerate(truth)})
            report = feedback.report(segments=("far",))
    held = made.run(X)
    inside = (held["lower"] <= y) & (y <= held["upper"]) if kind == "numbers" else None
    inside = held["set"][np.arange(900), truth] if inside is None else inside.to_numpy()
    assert report.estimates[()]["coverage"].value == pytest.approx(inside.mean())
    near, far = (report.estimates[name]["coverage"] for name in report.estimates if name)
    assert near.value == pytest.approx(inside[:450].mean())
    assert near.low < 0.9 < near.high
    assert far.high < 0.9
    assert len(report.below("coverage", 0.9)) == 2, "of one segment, and of all rows"
    assert "coverage" in str(report)


def test_several_classes_have_losses(tmp_path: Path) -> None:
    """Labels are compared as texts, so that a file of integers fits."""
    rows = RNG.normal(size=(90, 2))
    true = np.digitize(rows[:, 0] + RNG.normal(size=90), [-0.5, 0.5])
    fit = LogisticRegression().fit(rows, true)
    with Runtime(executors=1) as runtime:
        runtime.register("m", flour.from_sklearn(fit, sample=rows), background=False)
        with Feedback(runtime, "m", tmp_path, sample=1.0) as feedback:
            late = runtime.predict("m", rows).id  # type: ignore[attr-defined]  # it is kept
        feedback.labels({f"{late}/{at}": str(label) for at, label in enumerate(true)})
        found = own(feedback.report(segments=()))
    assert found.keys() == {"accuracy", "log_loss", "brier"}
    assert found["accuracy"].value == accuracy_score(true, fit.predict(rows))
    assert found["log_loss"].value == pytest.approx(log_loss(true, fit.predict_proba(rows)))
    hot = np.eye(3)[true]
    brier = ((fit.predict_proba(rows) - hot) ** 2).sum(axis=1).mean()
    assert found["brier"].value == pytest.approx(brier)
    assert feedback.table()["@label"].to_pylist() == true.tolist()


@pytest.mark.parametrize(
    ("classes", "odd"),
    [((False, True), ["maybe", 7, "yes"]), ((1, 2), ["1 ", 7]), (("no", "yes"), ["No", True])],
)
def test_labels_keep_the_kind_of_the_classes(
    tmp_path: Path, classes: tuple[Any, Any], odd: list[Any]
) -> None:
    """Those of unknown classes are told by name, and are in no table and no estimate."""
    rows = RNG.normal(size=(12, 2))
    true = np.array([classes[number % 2] for number in range(12)])
    fit = LogisticRegression().fit(rows, true)
    with Runtime(executors=1) as runtime:
        runtime.register("m", flour.from_sklearn(fit, sample=rows), background=False)
        with Feedback(runtime, "m", tmp_path, sample=1.0) as feedback:
            late: Any = runtime.predict("m", rows)
        given = [*true.tolist()[: 12 - len(odd)], *odd]
        feedback.labels({f"{late.id}/{at}": label for at, label in enumerate(given)})
        report, table = feedback.report(segments=()), feedback.table().to_pandas()
    assert table["@label"].tolist() == given[: -len(odd)]
    assert LogisticRegression().fit(table[["0", "1"]], table["@label"]).classes_.tolist() == [
        *classes
    ]
    assert report.unfit == dict.fromkeys(map(str, odd), 1) == report.to_dict()["unfit"]
    assert f"{len(odd)} labels are no answer of the model: {str(odd[0])!r} (1)" in str(report)
    assert report.rows[()] == 12 - len(odd)
    assert all(each.low >= 0 for name, each in own(report).items() if name != "bias")


def test_versions_with_other_classes_have_one_table(tmp_path: Path) -> None:
    """Labels of several kinds are texts."""
    rows = RNG.normal(size=(4, 2))
    with Runtime(executors=1) as runtime:
        ids = []
        for true in ([0, 1, 0, 1], ["a", "b", "a", "b"]):
            fit = LogisticRegression().fit(rows, true)
            runtime.register("m", flour.from_sklearn(fit, sample=rows), background=False)
            with Feedback(runtime, "m", tmp_path, sample=1.0) as feedback:
                late: Any = runtime.predict("m", rows)
            ids.append(late.id)
        feedback.labels({f"{ids[0]}/0": "1", f"{ids[1]}/0": "b"})
        assert feedback.table()["@label"].to_pylist() == ["1", "b"]


@pytest.mark.parametrize(
    ("name", "label", "said"),
    [
        ("a-1/-1", "yes", "no id of an answer"),
        ("a-1/one", "yes", "no id of an answer"),
        ("", "yes", "no id of an answer"),
        (17, "yes", "no id of an answer"),
        ("a-1", "", "this is no label"),
        ("a-1", ["yes"], "this is no label"),
        ("a-1", 10**400, "this is no label"),
        pytest.param("a-1", 10**5000, "this is no label", id="long"),
    ],
)
def test_ids_and_labels_that_cannot_be_are_refused(
    tmp_path: Path, name: Any, label: Any, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        FeedbackFolder(tmp_path).labels({"a-1/0": "yes", name: label})
    assert not [*tmp_path.iterdir()], "nothing is noted"


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "dict"])
def test_labels_that_are_not_known_yet_are_left_out(tmp_path: Path, kind: str) -> None:
    """Others of the same file are noted."""
    missing = ["", *[None, math.nan, pd.NA, pd.NaT, np.datetime64("NaT")][: 5 * (kind != "csv")]]
    if kind == "parquet":
        missing = ["", None]
    given: Any = pd.DataFrame({
        "id": [f"a-{number}" for number in range(len(missing) + 2)],
        "label": pd.Series(["yes", *missing, "no"], dtype=object),
    })  # fmt: skip
    if kind == "dict":
        given = dict(zip(given["id"][1:], ["yes", *missing[1:], "no"], strict=True))
    elif kind != "frame":
        frame, given = given, tmp_path / f"labels.{kind}"
        (frame.to_csv if kind == "csv" else frame.to_parquet)(given, index=False)
    assert FeedbackFolder(tmp_path).labels(given) == 2


def test_a_large_label_in_a_file_leaves_the_report(tmp_path: Path) -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("m", flour.outputs(value=flour.vector("x", 2).sum()), background=False)
        with Feedback(runtime, "m", tmp_path, sample=1.0) as feedback:
            names = [runtime.predict("m", [1.0, 2.0]).id for _ in range(2)]  # type: ignore[attr-defined]  # it is kept
        feedback.labels({names[0]: 3.5})
        (file,) = tmp_path.glob("labels-*")
        line = {"id": names[1], "label": 10**400, "when": 1.0}
        file.write_text(f"{file.read_text()}\n{json.dumps(line)}")
        report = feedback.report()
    assert report.rows[()] == 1
    assert sum((report.unfit or {}).values()) == 1
    assert feedback.table()["@label"].to_pylist() == [3.5]


# --- labels --------------------------------------------------------------------------------------


def test_labels_come_late_twice_and_for_others(runtime: Runtime, tmp_path: Path) -> None:
    """The last one counts; those of rows that were not chosen are told apart."""
    clock = Clock(0.0)
    with Feedback(runtime, "m", tmp_path, sample=1.0, clock=clock) as feedback:
        ids = ask(runtime, X[:4])
        feedback.labels({ids[0]: "no"})  # before its row is written
        feedback.fold()
        assert not [*tmp_path.glob("*.parquet")]
        clock.now += 61
        feedback.fold()
        assert len(read(tmp_path)) == 4
        feedback.labels({ids[0]: LABELS[0], ids[1]: LABELS[1], "nobody-1": "yes", ids[2]: None})
        report = feedback.report()
    assert (report.chosen, report.labels, report.unknown) == (4, 3, 1)
    assert report.rows[()] == 2
    assert FeedbackFolder(tmp_path).table()["@label"].to_pylist() == [*LABELS[:2]]


def test_a_label_belongs_to_the_version_that_answered(runtime: Runtime, tmp_path: Path) -> None:
    """Also where another one answers by now."""
    with Feedback(runtime, "m", tmp_path, sample=1.0) as feedback:
        former = ask(runtime, X[:50])
        runtime.register("m", model(1e-4), background=False)
        new = ask(runtime, X[:50])
        runtime.unregister("m", 1)
    feedback.labels(dict(zip([*former, *new], [*LABELS[:50]] * 2, strict=True)))
    report = feedback.report()
    assert {name: report.rows[name] for name in report.rows} == {
        (): 100,
        ("m@1",): 50,
        ("m@2",): 50,
    }
    assert report.estimates["m@1",]["log_loss"].value < report.estimates["m@2",]["log_loss"].value


def test_answers_that_are_kept_have_one_id(runtime: Runtime, tmp_path: Path) -> None:
    """`why` and labels know an answer by the same."""
    for first in (True, False):
        with (
            (
                runtime.keep("m", tmp_path / f"a{first}")
                if first
                else Feedback(runtime, "m", tmp_path / f"b{first}", sample=1.0)
            ),
            (
                Feedback(runtime, "m", tmp_path / f"b{first}", sample=1.0)
                if first
                else runtime.keep("m", tmp_path / f"a{first}")
            ),
        ):
            (name,) = ask(runtime, X[:1])
            assert runtime.why(name).id == name
        assert read(tmp_path / f"b{first}")["@id"].tolist() == [name]
    assert not hasattr(runtime.predict("m", X[:1]), "id")


# --- choosing ------------------------------------------------------------------------------------


def test_shares_are_exact_enough(runtime: Runtime, tmp_path: Path) -> None:
    """Of 20,000 rows a tenth, within four standard errors; each stands for ten."""
    with Feedback(runtime, "m", tmp_path, sample=0.1, seed=1) as feedback:
        for _ in range(50):
            runtime.predict("m", X)
            feedback.fold()
    found = read(tmp_path)
    count = 50 * ROWS
    assert abs(len(found) - count / 10) < 4 * math.sqrt(count * 0.09)
    assert set(found["@weight"]) == {10.0}
    assert set(found["@reason"]) == {"uniform"}


def test_the_least_certain_rows_are_chosen(runtime: Runtime, tmp_path: Path) -> None:
    """In each period so many, for sure."""
    clock = Clock(0.0)
    P = np.asarray(runtime.predict("m", X)["probabilities"])
    with Feedback(runtime, "m", tmp_path, sample=0.0, uncertain=7, clock=clock) as feedback:
        for part in (X[:200], X[200:]):
            ask(runtime, part[:50])
            runtime.predict("m", part[50:])
            clock.now += 60
            feedback.fold()
    found = read(tmp_path)
    assert set(found["@reason"]) == {"uncertain"}
    assert set(found["@weight"]) == {1.0}
    for half, rows in ((P[:200], found[:7]), (P[200:], found[7:])):
        margins = np.sort(np.abs(half[:, 1] - half[:, 0]))[:7]
        chosen = sorted(abs(row[1] - row[0]) for row in rows["@score"])
        assert chosen == pytest.approx([*margins])


def test_rows_on_which_versions_disagree_are_chosen(runtime: Runtime, tmp_path: Path) -> None:
    """Those, and no others: the answers of the shadow are nobody's."""
    runtime.register("m", model(1e-3), 2, activate=False, background=False)
    runtime.route("m", "m@1", shadow="m@2")
    labels = [runtime.predict(f"m@{version}", X)["label"] for version in (1, 2)]
    with Feedback(runtime, "m", tmp_path, sample=0.0, disagreement=1.0) as feedback:
        runtime.predict("m", X)
        until(lambda: any(each.asked for each in runtime.routes.shadow_stats()))
        feedback.fold()
    found = read(tmp_path)
    apart = labels[0] != labels[1]
    assert apart.any()
    assert sorted(found["amount"]) == pytest.approx(sorted(X["amount"][apart]))
    assert set(found["@reason"]) == {"disagreement"}


def test_rows_of_what_drifted_are_chosen(runtime: Runtime, tmp_path: Path) -> None:
    """Cities that nobody knew, and amounts that were rare."""
    moved = pd.concat([X] * 3, ignore_index=True)
    moved.loc[::2, "city"] = "Graz"
    with (
        runtime.watch("m", reference=X) as watch,
        Feedback(runtime, "m", tmp_path, sample=0.0, drifted=1.0, watch=watch) as feedback,
    ):
        runtime.predict("m", moved)
        watch.fold()
        assert any(each.alarms for each in watch.drift())
        feedback.fold()
    found = read(tmp_path)
    assert set(found["city"]) == {"Graz"}
    assert len(found) == (moved["city"] == "Graz").sum()
    assert set(found["@reason"]) == {"drifted"}


def test_weights_make_estimates_unbiased() -> None:
    """Over many samples with too little room and uneven chances, the mean of sums is the sum."""
    rng = np.random.default_rng(0)
    values = rng.gamma(2.0, size=500)
    chances = np.where(values > 3, 0.9, 0.2)
    margins, reasons = rng.random(500), np.full(500, "uniform", object)
    sums = []
    for seed in range(400):
        chosen = Selection(40, 5, np.random.default_rng(seed))
        for at in range(0, 500, 100):
            part, made = slice(at, at + 100), [{"at": place} for place in range(at, at + 100)]
            chosen.add(chances[part], reasons[part], margins[part], made.__getitem__)
        rows = chosen.take()
        assert 40 <= len(rows) <= 45
        sums.append(sum(row["@weight"] * values[row["at"]] for row in rows))
    assert abs(np.mean(sums) - values.sum()) < 4 * np.std(sums) / math.sqrt(len(sums))


def test_intervals_cover() -> None:
    """About as often as they say."""
    rng, z = np.random.default_rng(1), 1.959964
    shares = [share((rng.random(80) < 0.2).astype(float), np.ones(80), z) for _ in range(600)]
    assert 0.92 < np.mean([each.low <= 0.2 <= each.high for each in shares]) < 0.98
    covered = []
    for _ in range(400):
        positive = np.arange(120) < 50
        found = auc(rng.normal(size=120) + positive, positive, np.ones(120), z)
        covered.append(found.low <= 0.76025 <= found.high)  # Phi(1 / sqrt 2)
    assert 0.91 < np.mean(covered) < 0.99


# --- what must not happen ------------------------------------------------------------------------


def test_private_columns_are_in_no_file(tmp_path: Path) -> None:
    """Nor those that become private before the rows are written."""
    with Runtime(executors=1) as runtime:
        runtime.register("m", model(), 1, notes={"private": ("ssn",)}, background=False)
        with Feedback(runtime, "m", tmp_path, sample=1.0) as feedback:
            ids = ask(runtime, X[:20])
            feedback.fold()
            notes = {"private": ("ssn", "city")}
            runtime.register("m", model(), 2, notes=notes, background=False)
            ids += ask(runtime, X[:20])
        feedback.labels(dict(zip(ids, [*LABELS[:20]] * 2, strict=True)))
        assert [*feedback.table().column_names] == ["amount", "@weight", "@label"]
        with pytest.raises(FlourError, match="no column 'city'"):
            feedback.report(segments=("city",))
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        if path.suffix == ".parquet":
            content += str(pq.read_table(path).to_pydict()).encode()
        assert not any(word in content for word in (b"mk7cat", b"Oslo", b"Rome"))


def test_a_full_disk_is_counted_and_answers_go_on(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Feedback(runtime, "m", tmp_path, sample=1.0) as feedback:
        with monkeypatch.context() as patched:
            patched.setattr("runtime.feedback.folder.write_file", no_room)
            ask(runtime, X[:3])
            feedback.fold()
            feedback.flush()
        assert feedback.failed == 3
        ask(runtime, X[:2])
    assert len(read(tmp_path)) == 2


def test_files_of_a_killed_process_are_read(tmp_path: Path) -> None:
    """Periods that were over are there, as are labels; a line that was cut off is skipped."""
    code = f"""
import os, signal
import flour
from runtime import Runtime
from runtime.feedback import Feedback

runtime = Runtime(executors=1)
runtime.register("m", flour.outputs(value=flour.vector("x", 2).sum()), background=False)
feedback = Feedback(runtime, "m", {str(tmp_path)!r}, sample=1.0)
for _ in range(3):
    late = runtime.predict("m", [1.0, 2.0]).id
    feedback.fold()
    feedback.flush()
    feedback.labels({{late: 3.5}})
runtime.predict("m", [1.0, 2.0])
feedback.fold()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=120, check=False)
    assert done.returncode == -9
    (labels,) = tmp_path.glob("labels-*.jsonl")
    labels.write_bytes(labels.read_bytes() + b'\n{"id": "x-1", "lab')
    (tmp_path / f"answers-{0:015}-zz-000001.parquet").write_bytes(b"PAR1 cut off")
    folder = FeedbackFolder(tmp_path)
    report = folder.report()
    assert (report.chosen, report.labels, report.unknown) == (3, 3, 0)
    assert own(report)["mae"].value == 0.5
    folder.labels({"x-2": 1})
    assert folder.report().labels == 4


def test_the_oldest_files_go_and_memory_is_bounded(runtime: Runtime, tmp_path: Path) -> None:
    """Of files by their bytes; of a period by the number of rows."""
    clock = Clock(0.0)
    options: dict[str, Any] = {"sample": 1.0, "most_rows": 10, "most_bytes": 20_000}
    with Feedback(runtime, "m", tmp_path, clock=clock, **options) as feedback:
        for _ in range(12):
            runtime.predict("m", X)
            clock.now += 60
            feedback.fold()
            feedback.labels({"x": 1})
        sizes = [path.stat().st_size for path in tmp_path.iterdir()]
        assert 15_000 < sum(sizes) <= 20_000
        assert all(len(pq.read_table(path)) == 10 for path in tmp_path.glob("*.parquet"))
        assert read(tmp_path)["@weight"].mean() == pytest.approx(ROWS / 10, rel=0.4)


def test_rows_beyond_the_queue_are_dropped(runtime: Runtime, tmp_path: Path) -> None:
    """Answers do not wait for what is chosen."""
    with Feedback(runtime, "m", tmp_path, sample=1.0) as feedback:
        many = pd.concat([X] * 200, ignore_index=True)
        assert len(runtime.predict("m", many)["label"]) == len(many)
        assert feedback.dropped == len(many)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sample": 2}, "sample: from 0 to 1"),
        ({"uncertain": -1}, "uncertain"),
        ({"period": 0}, "period"),
        ({"drifted": 0.5}, "watch"),
    ],
)
def test_errors_say_what_is_wrong(
    runtime: Runtime, tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(FlourError) as refused:
        Feedback(runtime, "m", tmp_path, **options)
    assert said in str(refused.value.hint)


def test_no_feedback_twice_and_of_no_answer(runtime: Runtime, tmp_path: Path) -> None:
    with Feedback(runtime, "m", tmp_path), pytest.raises(FlourError, match="feedback already"):
        Feedback(runtime, "m", tmp_path)
    runtime.register("wide", flour.vector("x", 2))
    with pytest.raises(FlourError, match="no output is a label"):
        Feedback(runtime, "wide", tmp_path)
    with pytest.raises(FlourError, match="these are no labels"):
        FeedbackFolder(tmp_path).labels(pd.DataFrame({"ids": []}))
    with pytest.raises(FlourError, match="no rows were written"):
        FeedbackFolder(tmp_path).table()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("short.csv", b"id,label\na-1\n"),
        ("latin.csv", b"id,label\na-1,caf\xe9,\xff\n"),
        ("junk.parquet", b"PAR1 no"),
    ],
)
def test_files_that_hold_no_labels_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=r"this is no file of labels[\s\S]*\"id\" and \"label\""):
        FeedbackFolder(tmp_path / "folder").labels(tmp_path / name)
