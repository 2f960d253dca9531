"""Trainings: what is computed, and what is served when."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import r2_score

import flour
import oven
from objectstore.atomic import locked, sweep
from pretzel.training import Publisher, Recipe, train
from runtime import Runtime
from runtime.errors import BadCall
from runtime.repository import Repository
from runtime.training.job import MeanModel
from tests.house import until
from tests.runtime.conftest import Clock
from tests.runtime.training.recipes import Inline, cache, ran, recipe

ALL = ["rows", "gate", "gate", "gate", "strong", "unread", "weak"]
ROW = [1.0, 0.0]


def trained(
    folder: Path, *changes: tuple[str, str], clock: Clock | None = None, **settings: str
) -> Any:
    made = recipe(folder, *changes, **settings)
    with cache(folder, clock) as opened:
        return train(made, opened, None, Inline(clock))


def test_everything_is_computed_once(tmp_path: Path) -> None:
    outcome = trained(tmp_path)
    assert sorted(ran(tmp_path)) == sorted(ALL)
    assert outcome.served == ("strong", "weak")
    assert outcome.scores["strong"] > outcome.scores["weak"] > 0.5
    outcome = trained(tmp_path)
    assert ran(tmp_path) == outcome.ran == []
    assert outcome.served == ("strong", "weak")


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (("weight=1.0", "weight=1.5"), {"weak", "gate"}),
        (("SHIFT = 0.0", "SHIFT = 0.25"), {"weak", "strong", "gate"}),  # of a helper's helper
        (("at_least=0.5", "at_least=0.6"), set()),
        (("# A", "# Another"), set()),
        (('"""A number between 0.5 and 1; two are surer than one."""', '"""Another."""'), {"gate"}),
        (('    note("unread")', '    note("unread")\n    return 1'), {"unread"}),
        # Its result is the same, so what reads it is not computed again.
        (("float(data.read_text()))", "float(data.read_text())) + 0"), {"rows"}),
    ],
)
def test_only_what_has_changed_is_computed(
    tmp_path: Path, change: tuple[str, str], again: set[str]
) -> None:
    base = ("SHIFT = 0.0", "SHIFT = 0.0  # A") if change[0] == "# A" else ("note(", "note(")
    trained(tmp_path, base)
    trained(tmp_path, base, change)
    assert set(ran(tmp_path)) == again


def test_settings_are_parameters(tmp_path: Path) -> None:
    trained(tmp_path)
    trained(tmp_path, strong__weight="4")
    assert ran(tmp_path) == ["strong", "gate", "gate"]
    outcome = trained(tmp_path, weight="4")
    assert ran(tmp_path) == ["weak", "gate"]  # its model is the other one's; their mean is new
    assert outcome.scores["weak"] == outcome.scores["strong"]


def test_data_count_by_their_content(tmp_path: Path) -> None:
    trained(tmp_path)
    (tmp_path / "data.txt").touch()
    trained(tmp_path)
    assert ran(tmp_path) == []
    (tmp_path / "data.txt").write_text("2.0")
    trained(tmp_path)
    assert sorted(ran(tmp_path)) == sorted(ALL)


def test_a_result_counts_until_it_is_too_old(tmp_path: Path) -> None:
    clock = Clock(1_000_000.0)
    trained(tmp_path, clock=clock)
    clock.now += 99
    trained(tmp_path, clock=clock)
    assert ran(tmp_path) == []
    clock.now += 1
    trained(tmp_path, clock=clock)
    assert ran(tmp_path) == ["rows"]


def test_a_candidate_that_fails_leaves_the_others(tmp_path: Path) -> None:
    outcome = trained(tmp_path, ('note("weak")', "return [][1]"))
    assert outcome.served == ("strong",)
    assert outcome.failed["weak"].startswith("IndexError: list index out of range (tiny_recipe.py:")
    outcome = trained(tmp_path, ('note("rows")', "raise KeyError(1)"))
    assert outcome.failed["strong"] == "it reads rows, which has failed"
    assert outcome.served == ()


def test_what_is_served_stays_where_a_failed_training_has_nothing_better(tmp_path: Path) -> None:
    """By the same gate for the same data only; and where nothing has failed, the best is served."""
    broken, told = ('note("strong")', "return [][1]"), list[str]()
    with cache(tmp_path) as opened:
        publisher = Publisher("m", tmp_path / "models")

        def again(*changes: tuple[str, str], **settings: str) -> str:
            made = recipe(tmp_path, ("else 0.25", "else 0.0"), *changes, **settings)
            return train(made, opened, publisher, Inline(), on_progress=told.append).address

        assert again(strong__weight="3.0") == "m@1"
        assert again(broken, strong__weight="4.0") == ""
        assert any("which is better: it stays" in line for line in told)
        assert again(broken, weak__weight="9.0", strong__weight="4.0") == "m@2"
        assert again(weak__weight="1.0", strong__weight="1.0") == "m@3", "nothing has failed"
        assert again(broken, weak__weight="0.9", strong__weight="4.0") == ""
        (tmp_path / "data.txt").write_text("2.0")
        assert again(broken, weak__weight="0.5", strong__weight="4.0") == "m@4", "other data"


@pytest.mark.parametrize("case", ["more endpoints", "another runtime", "by hand", "a rollout"])
def test_what_is_served_is_known_by_its_plan(tmp_path: Path, case: str) -> None:
    """Not by the number of endpoints of its runtime, nor where another version answers by now."""
    broken, told = ('note("strong")', "return [][1]"), list[str]()
    terms = {"dwell": 1000, "header": "x-user"} if case == "a rollout" else None
    with cache(tmp_path) as opened, Runtime() as first, Runtime() as other:

        def again(runtime: Runtime, *changes: tuple[str, str]) -> str:
            made, publisher = recipe(tmp_path, *changes), Publisher("m", runtime, terms)
            return train(made, opened, publisher, Inline(), on_progress=told.append).address

        hand = oven.bake(flour.outputs(value=flour.vector("x", 2).sum()))
        if case == "a rollout":
            first.register("m", hand)
        again(first)
        runtime = other if case == "another runtime" else first
        if case != "a rollout":
            runtime.register("m" if case in {"by hand", "another runtime"} else "n", hand)
        stays = case in {"more endpoints", "a rollout"}
        assert bool(again(runtime, broken)) != stays
        assert any("it stays" in line for line in told) == stays


def test_a_version_put_by_hand_into_a_folder_is_replaced(tmp_path: Path) -> None:
    with cache(tmp_path) as opened:
        publisher = Publisher("m", tmp_path / "models")
        assert train(recipe(tmp_path), opened, publisher, Inline()).address
        (tmp_path / "hand").write_bytes(b"another model")
        publisher.publish(tmp_path / "hand")
        broken = recipe(tmp_path, ('note("strong")', "return [][1]"))
        assert train(broken, opened, publisher, Inline()).address.startswith("m@")


def test_a_model_that_is_no_model_fails(tmp_path: Path) -> None:
    outcome = trained(tmp_path, ('note("weak")', "return object()"))
    assert "AttributeError" in outcome.failed["weak"]


def test_a_recipe_is_not_called_like_another_module(tmp_path: Path) -> None:
    path = recipe(tmp_path).path.rename(tmp_path / "json.py")
    with cache(tmp_path) as opened:
        outcome = train(Recipe.read(path), opened, None, Inline())
    assert "its name, which another module has" in outcome.failed["rows"]


def test_only_what_passes_the_gate_is_served(tmp_path: Path) -> None:
    outcome = trained(tmp_path, ("at_least=0.5", "at_least=0.9"))
    assert outcome.served == ("strong",)
    assert outcome.scores["weak"] < 0.9
    outcome = trained(tmp_path, ("at_least=0.5", "at_most=0.9"))
    assert outcome.served == ("weak",)
    assert ran(tmp_path) == []
    assert trained(tmp_path, ("at_least=0.5", "at_least=2")).served == ()


def test_models_without_a_mean_are_served_alone(tmp_path: Path) -> None:
    told: list[str] = []
    made = recipe(tmp_path, ('flour.vector("x", 2)', 'flour.vector("x" if weight > 2 else "y", 2)'))
    with cache(tmp_path) as opened, Runtime() as runtime:
        outcome = train(made, opened, Publisher("m", runtime), Inline(), on_progress=told.append)
        assert outcome.served == ("strong",)
        assert sum("strong and weak have no mean: they read other" in line for line in told) == 1
        assert runtime.predict("m", ROW)["probabilities"][1] == pytest.approx(0.953, abs=1e-3)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("else -0.2", "strong and weak: sureness 0.6418, passed"),
        ("else -0.5", "strong and weak: sureness 0.3418, not passed"),
        ("else model.bonus", "strong and weak: failed: AttributeError"),
    ],
    ids=["worse", "refused", "another-kind"],
)
def test_a_mean_that_is_no_better_is_not_served(tmp_path: Path, more: str, said: str) -> None:
    told: list[str] = []
    made = recipe(tmp_path, ("else 0.25", more))
    with cache(tmp_path) as opened, Runtime() as runtime:
        outcome = train(made, opened, Publisher("m", runtime), Inline(), on_progress=told.append)
        assert outcome.served == ("strong",)
        assert sum(line.startswith(said) for line in told) == 1
        assert runtime.predict("m", ROW)["probabilities"][1] == pytest.approx(0.953, abs=1e-3)
        assert runtime.endpoints.find("m").owner == "m@1", "both are there at once"


def test_a_mean_has_the_methods_of_a_model(tmp_path: Path) -> None:
    rows = np.array([[0.0], [1.0], [2.0]])
    line = flour.vector("x", 1).max() * 2.0
    oven.bake(flour.outputs(value=line)).save(tmp_path / "line")
    made = MeanModel(tmp_path / "line")
    assert made.predict(rows).tolist() == [0.0, 2.0, 4.0]
    assert made.score(rows, [0.0, 2.0, 1.0]) == pytest.approx(r2_score([0, 2, 1], [0, 2, 4]))
    classes = flour.vector("x", 1).logistic_classifier([[1.0]], -0.5, classes=["no", "yes"])
    oven.bake(classes).save(tmp_path / "classes")
    made = MeanModel(tmp_path / "classes")
    assert made.predict_proba(rows).shape == (3, 2)
    assert made.score(rows, ["no", "yes", "no"]) == pytest.approx(2 / 3)


def test_the_ensemble_is_the_mean(tmp_path: Path) -> None:
    with cache(tmp_path) as opened, Runtime() as runtime:
        train(recipe(tmp_path), opened, Publisher("m", runtime), Inline())
        mean = runtime.predict("m", ROW)["probabilities"]
    one, other = (1 / (1 + np.exp(-weight)) for weight in (1.0, 3.0))
    assert np.allclose(mean, [1 - (one + other) / 2, (one + other) / 2])


def test_versions_replace_one_another_under_traffic(tmp_path: Path) -> None:
    failed, answers, ended = list[Exception](), set[float](), threading.Event()

    def ask() -> None:
        while not ended.is_set() and not failed:
            try:
                answers.add(float(runtime.predict("m", ROW)["probabilities"][1]))
            except Exception as problem:  # noqa: BLE001 (any would be one)
                failed.append(problem)

    with cache(tmp_path) as opened, Runtime() as runtime:
        publisher = Publisher("m", runtime)
        train(recipe(tmp_path), opened, publisher, Inline())
        thread = threading.Thread(target=ask)
        thread.start()
        try:
            until(lambda: answers)
            for weight in (4, 5, 6, 7):
                train(recipe(tmp_path, weak__weight=str(weight)), opened, publisher, Inline())
                known = 2 + weight - 4  # of those before, and this one
                until(lambda known=known: len(answers) >= known or failed)  # type: ignore[misc]
        finally:
            ended.set()
            thread.join()
        versions = [each.versions for each in runtime.endpoints]
    assert failed == []
    assert len(answers) == 5
    assert len(versions[0]) == 2


def test_the_first_training_serves_at_once_and_later_ones_at_their_end(tmp_path: Path) -> None:
    served, told = threading.Event(), list[str]()

    def tell(line: str) -> None:
        told.append(line)
        if line == "m@1: weak":  # until then, the other one waits
            assert runtime.predict("m", ROW)["probabilities"][1] == pytest.approx(0.731, abs=1e-3)
            served.set()

    with cache(tmp_path) as opened, Runtime() as runtime:
        publisher = Publisher("m", runtime)
        train(
            recipe(tmp_path), opened, publisher, Inline(after={"strong": served}), on_progress=tell
        )
        assert runtime.endpoints.find("m").owner == "m@2"
        train(recipe(tmp_path, weight="2"), opened, publisher, Inline())
        assert runtime.endpoints.find("m").owner == "m@3"
        train(recipe(tmp_path, weight="2"), opened, publisher, Inline())
        assert runtime.endpoints.find("m").owner == "m@3"


def test_a_folder_gets_versions_that_servers_load(tmp_path: Path) -> None:
    models = tmp_path / "models"
    with cache(tmp_path) as opened, Runtime() as runtime:
        publisher = Publisher("m", models)
        outcome = train(recipe(tmp_path), opened, publisher, Inline())
        assert outcome.address == "m@1"
        with Repository(models, runtime) as repository:
            repository.load_all()
            assert runtime.endpoints.find("m").owner == "m@1"
            for weight in (4, 5):
                train(recipe(tmp_path, weight=str(weight)), opened, publisher, Inline())
            assert sorted(each.name for each in (models / "m").glob("[!.]*")) == ["2", "3"]
            repository.load_all()
            assert runtime.endpoints.find("m").owner == "m@3"
        assert train(recipe(tmp_path, weight="5"), opened, publisher, Inline()).address == "m@3"


def test_versions_of_a_route_stay(tmp_path: Path) -> None:
    with cache(tmp_path) as opened, Runtime() as runtime:
        publisher = Publisher("m", runtime)
        for weight in (2, 3, 4, 5):
            train(recipe(tmp_path, weight=str(weight)), opened, publisher, Inline())
            runtime.route("m", champion="m@1") if weight == 2 else None
        assert runtime.endpoints.find("m").owner == "m@1"
        assert [each.versions for each in runtime.endpoints] == [("1", "3", "4")]


def test_a_folder_without_locks_gets_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And keeps the files that others may be writing."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("objectstore.system.lock", refuse)
    publisher, made, there = Publisher("m", tmp_path), tmp_path / "a", tmp_path / ".pretzel-1.tmp"
    for number, data in enumerate((b"1", b"2", b"2")):
        made.write_bytes(data)
        assert publisher.publish(made) == f"m@{min(number + 1, 2)}"
    assert caplog.text.count(f"{tmp_path / 'm'} has no locks") == 1
    there.touch()
    assert (sweep(tmp_path), there.exists()) == (0, True)


def test_a_lock_that_another_process_keeps_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("objectstore.atomic.TELL_SECONDS", 0.02)
    with locked(tmp_path / "lock", 1.0), locked(tmp_path / "lock", 0.2) as mine:
        assert not mine
    assert caplog.text.count(f"{tmp_path / 'lock'} is locked by another process") == 1


def test_what_cannot_be_published_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadCall, match="this name cannot be served"):
        Publisher("a@b", tmp_path)
    with pytest.raises(BadCall, match="a folder has no requests"):
        Publisher("m", tmp_path, {"steps": (100,)})
