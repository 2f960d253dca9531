"""Each command, with what it prints, writes and ends with."""

from __future__ import annotations

import builtins
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import flour
import oven
from objectstore import Blob, FileStore
from runtime import Runtime
from runtime.cli.program import COMMANDS
from runtime.graph.plan import GraphPlan
from tests.golden import Golden
from tests.house import ROOT
from tests.runtime.cli.conftest import Place, Pretzel
from tests.runtime.repository.folders import X, save_plan, xgb

# --- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["", *(command.name for command in COMMANDS)])
def test_help(
    command: str, pretzel: Pretzel, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    ran = pretzel(*([command] if command else []), "--help")
    assert ran.code == 0
    if sys.version_info[:2] == (3, 11):  # later ones lay options out in another way
        golden(ran.out)
    assert "examples:" in ran.out


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from runtime.cli import main; main(['--help']); main(['serve', '--help'])\n"
        "heavy = {'oven', 'numba', 'asyncio', 'sklearn', 'uvloop'} & set(sys.modules)\n"
        "sys.exit(f'loads {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("bake",),
        ("ls",),
        ("predict", "m", "rows.csv", "--chunk", "0"),
        ("serve", "m", "--memory", "lots"),
        ("import", "m", "--into", "a", "--output", "b"),
    ],
)
def test_wrong_arguments(pretzel: Pretzel, arguments: tuple[str, ...]) -> None:
    ran = pretzel(*arguments)
    assert ran.code == 2
    assert "usage: pretzel" in ran.err


@pytest.mark.parametrize(
    ("command", "option", "value"), [("explain", "--want", "-60:-50"), ("train", "--every", "-1d")]
)
def test_a_value_with_a_minus_has_a_hint(
    pretzel: Pretzel, command: str, option: str, value: str
) -> None:
    ran = pretzel(command, "m", option, value)
    assert ran.code == 2
    assert f"a value that begins with a minus follows an equals sign: {option}=-1" in ran.err


def test_version(pretzel: Pretzel) -> None:
    ran = pretzel("--version")
    assert ran.code == 0
    assert ran.out.startswith("pretzel ")
    assert f"numpy {np.__version__}" in pretzel("--version", "--verbose").out


# --- exporting -----------------------------------------------------------------------------------


def test_export(pretzel: Pretzel, place: Place) -> None:
    into = place.root / "out"
    ran = pretzel("export", place.models / "shift", "--to", "c", "--out", into, "--no-verify")
    assert ran.code == 0
    assert "not verified" in ran.out
    assert sorted(each.name for each in into.iterdir()) == ["shift.c", "shift.h", "shift_arrow.h"]
    wrong = pretzel("export", place.models / "shift", "--to", "c", "--out", into, "--outputs", "a")
    assert wrong.code == 1
    assert "there is no such output" in wrong.err


@pytest.mark.skipif(which("cc") is None, reason="there is no C compiler")
def test_export_in_float32(pretzel: Pretzel, place: Place) -> None:
    into = place.root / "small"
    into.mkdir()
    oven.bake(flour.from_sklearn(xgb("number"))).save(into / "xgb.pretzel")
    asked = ("export", into / "xgb.pretzel", "--to", "c", "--out", into, "--float32")
    ran = pretzel(*asked, "--target", "pdp11-none-none")
    assert ran.code == 0
    assert re.search(r"the numbers of \d+ rows are within \d.\de[-+]\d+ of those of the", ran.out)
    assert "no pdp11-none-none-gcc is here" in ran.out
    told = pretzel(*asked, "--json").data["float32"]
    assert told["differences"]["far"] == 0
    assert told["differences"]["rows"] > 0
    assert told["scratch"] > 0


def plan_of(runtime: Runtime, name: str) -> GraphPlan:
    plan: Any = runtime.endpoints.find(name).plan
    assert isinstance(plan, GraphPlan)
    return plan


@pytest.mark.skipif(which("cc") is None, reason="there is no C compiler")
def test_export_of_a_graph(pretzel: Pretzel, tmp_path: Path) -> None:
    x, folder = flour.vector("x", 300), tmp_path / "choice"
    one, two = (flour.plan(x.linear([[k] * 300], [0.0]))(x)[0] for k in (1.0, 2.0))
    folder.mkdir()
    which = (x[1] > 0).cast("int64")
    kind = flour.first_match([(x[0] > 0, which.take(["no", "yes"]))], otherwise="unsure")
    graph = flour.outputs(y=flour.where(x[0] > 0, one, two), kind=kind)
    flour.save_graph(graph, folder / "choice.graph")
    ran = pretzel("export", folder, "--to", "c", "--out", tmp_path / "out")
    assert ran.code == 0
    assert "rows answered with the plan's bits" in ran.out

    async def load(x: float) -> float:
        return x

    waits = flour.outputs(y=flour.fetch(load, x[0], gives=float))
    with Runtime() as runtime:
        runtime.register("waits", waits, background=False)
        with pytest.raises(flour.FlourError, match=r"cannot be one plan[\s\S]*it waits"):
            plan_of(runtime, "waits").whole()
        strict = x[1].as_vector().categorise([3.0], [3], [0, 1], [-1], [-1], strict=True)[0]
        refuses = flour.outputs(y=flour.first_match([(x[0] > 0, strict * 2)], otherwise=-1))
        runtime.register("refuses", refuses, background=False)
        with pytest.raises(flour.FlourError, match="for another branch would be") as caught:
            plan_of(runtime, "refuses").whole()
        assert "test_commands.py" in str(caught.value.where)
        assert 'on_missing="answer"' in str(caught.value.hint)


@pytest.mark.skipif(which("cc") is None, reason="there is no C compiler")
def test_export_says_the_line_of_a_row_that_is_refused(pretzel: Pretzel, tmp_path: Path) -> None:
    from sklearn.linear_model import LinearRegression

    strict = LinearRegression().fit([[0.0, 1.0], [1.0, 0.0]], [0.0, 1.0])
    oven.bake(flour.from_sklearn(strict)).save(tmp_path / "strict.pretzel")
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n\n3,nan\n", "utf-8")
    given = ("--to", "c", "--out", tmp_path / "out", "--rows", tmp_path / "rows.csv")
    ran = pretzel("export", tmp_path / "strict.pretzel", *given)
    assert ran.code != 0
    assert f"{tmp_path / 'rows.csv'}:4, [1]" in ran.err


# --- looking -------------------------------------------------------------------------------------


def test_ls(pretzel: Pretzel, place: Place) -> None:
    ran = pretzel("ls", place.models, "--json")
    assert ran.code == 1
    assert [(one["name"], one["version"]) for one in ran.data["models"]] == [
        ("shift", "1"),
        ("shift", "2"),
    ]
    (broken,) = ran.data["refused"]
    assert broken["name"] == "broken"
    assert "this is not a Pretzel container" in broken["reason"]
    assert "shift/2/shift.pretzel" in pretzel("ls", place.models).out
    assert pretzel("ls", place.models / "shift" / "nowhere").code == 5
    assert pretzel("serve", place.models / "nowhere", "--port", "0").code == 5


@pytest.mark.parametrize("damage", ["cut", "longer", "empty", "text", "number", *range(0, 90, 9)])
def test_damage_is_seen_wherever_it_is(pretzel: Pretzel, tmp_path: Path, damage: str | int) -> None:
    save_plan(tmp_path / "good.pretzel", 3.7)
    raw = (tmp_path / "good.pretzel").read_bytes()
    changed: dict[str | int, bytes] = {
        "cut": raw[:-8],
        "longer": raw + b"x",
        "empty": b"",
        "text": b"a plan",
    }
    if damage not in changed:  # one byte of a parameter, or at this part of the file
        number = raw.index(np.float64(3.7).tobytes())
        place = len(raw) * damage // 100 if isinstance(damage, int) else number
        changed[damage] = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
    (tmp_path / "bad.pretzel").write_bytes(changed[damage])
    ran = pretzel("ls", tmp_path, "--json")
    assert [one["name"] for one in ran.data["models"]] == ["good"]
    assert [one["name"] for one in ran.data["refused"]] == ["bad"]
    assert ran.code == 1
    for command in ("inspect", "verify"):
        assert pretzel(command, tmp_path / "good").code == 0
        ran = pretzel(command, tmp_path / "bad")
        assert ran.code == 1
        assert "bad.pretzel" in ran.err


def test_ls_of_good_models_ends_well(pretzel: Pretzel, tmp_path: Path) -> None:
    save_plan(tmp_path / "good.pretzel", 1.0)
    assert pretzel("ls", tmp_path).code == 0


@pytest.mark.parametrize(("kind", "code"), [("number", 0), ("nomber", 1), ("number\nno toml", 1)])
def test_ls_reads_graphs(pretzel: Pretzel, tmp_path: Path, kind: str, code: int) -> None:
    graph = f"""
    [inputs]
    x = "{kind}"
    [nodes.fetched]
    fetch = "json:loads"
    reads = "x"
    gives = "number"
    [outputs]
    x = "fetched"
    """
    (tmp_path / "fine.graph.toml").write_text(graph)
    ran = pretzel("ls", tmp_path, "--json")
    assert ran.code == code
    assert [each["name"] for each in ran.data["refused" if code else "models"]] == ["fine"]


def test_ls_tells_all_that_files_tell(pretzel: Pretzel, place: Place, tmp_path: Path) -> None:
    """A booster that is cut, notes and rows and a route that are wrong, a name of two lines."""
    for name in ("notes", "private", "rows", "toml", "route", "folder", "good"):
        save_plan(tmp_path / name / "1" / "model.pretzel", 1.0)
    (tmp_path / "cut.ubj").write_bytes((place.root / "booster.ubj").read_bytes()[:-100])
    (tmp_path / "whole.ubj").write_bytes((place.root / "booster.ubj").read_bytes())
    (tmp_path / "whole.notes.toml").write_text('private = ["ssn"]')
    (tmp_path / "a\nb.pretzel").write_bytes(b"")
    (tmp_path / "notes" / "notes.toml").write_text("segment = 1")
    (tmp_path / "private" / "notes.toml").write_text('private = ["ssn"]')
    for private in ("hidden", "rows"):
        save_plan(tmp_path / private / "1" / "model.pretzel", 1.0)
        (tmp_path / private / "1" / "verify.jsonl").write_text("\n{7431")
    (tmp_path / "hidden" / "notes.toml").write_text('private = ["x"]')
    (tmp_path / "toml" / "endpoint.toml").write_text("champion")
    (tmp_path / "route" / "endpoint.toml").write_text('champion = "route@1"\nshadow = "route@2"')
    (tmp_path / "folder" / "endpoint.toml").mkdir()
    (tmp_path / "good" / "endpoint.toml").write_text('champion = "good@1"')
    ran = pretzel("ls", tmp_path, "--json")
    assert {one["name"] for one in ran.data["models"]} == {"good", "toml", "route", "folder"}
    reasons = {one["name"]: one["reason"] for one in ran.data["refused"]}
    assert ("7431" in reasons["rows"], "7431" in reasons["hidden"]) == (True, False)
    for name, said in {
        "cut": "cut.ubj",
        "whole": "private columns are columns of the program; whole@1; ssn",
        "notes": "there is no setting 'segment'",
        "private": "private columns are columns of the program; private@1; ssn",
        "rows": "verify.jsonl:2",
        "hidden": "verify.jsonl:2",
        "toml": "this is no TOML; toml/endpoint.toml",
        "route": "the route names versions that are not there; route/endpoint.toml; route@2",
        "folder": "folder/endpoint.toml",
        "a\\nb": "is no name of an endpoint",
    }.items():
        assert said in reasons.pop(name)
    assert not reasons
    assert "b" not in {line[:1] for line in pretzel("ls", tmp_path).out.splitlines()}


@pytest.mark.parametrize("name", ["a.json", "a.txt", "a.ubj", "a.onnx"])
@pytest.mark.parametrize("content", [b"", b"garbage", b"{"])
def test_inspect_names_the_file_that_is_no_model(
    pretzel: Pretzel, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    ran = pretzel("inspect", tmp_path / name)
    assert ran.code == 1
    assert str(tmp_path / name) in ran.err


def test_inspect(pretzel: Pretzel, place: Place) -> None:
    facts = pretzel("inspect", place.models / "shift", "--json").data
    assert facts["version"] == "2"
    assert facts["outputs"] == {"moved": "Vector[4, float64]", "top": "float64"}
    assert pretzel("inspect", place.models / "shift@1", "--json").data["version"] == "1"
    text = pretzel("inspect", place.root / "booster.ubj").out
    assert "X: Vector[4, float32]" in text


def test_explain(pretzel: Pretzel, place: Place, tmp_path: Path) -> None:
    for stage in ("logical", "stages", "timed"):
        assert pretzel("explain", place.models / "shift", "--stage", stage).out.strip()
    page = tmp_path / "page.html"
    assert pretzel("explain", place.models / "shift", "--html", "--output", page).code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


# --- import and verify ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "rows", "name"),
    [
        ("booster.ubj", "rows.csv", "booster"),
        ("three.json", "rows.csv", "three"),
        ("trees.txt", "rows.csv", "trees"),
        ("mixed.joblib", "mixed.csv", "mixed"),
        ("mixed.joblib", "mixed.parquet", "mixed"),
    ],
)
def test_import_verifies_and_saves(
    pretzel: Pretzel, place: Place, tmp_path: Path, file: str, rows: str, name: str
) -> None:
    ran = pretzel(
        *("import", place.root / file, "--trust-pickle", "--into", tmp_path),
        *("--verify", place.root / rows, "--json"),
    )
    assert ran.code == 0, ran.err
    assert ran.data["verified_rows"] == len(X)
    assert ran.data["file"] == str(tmp_path / name / "1" / f"{name}.pretzel")
    checked = pretzel("verify", tmp_path / name, "--json")
    assert checked.code == 0, checked.err
    assert checked.data["answers_beside"] == 100 * len(ran.data["verified_outputs"])
    again = pretzel(
        *("verify", tmp_path / name, "--against", place.root / file, "--trust-pickle"),
        *("--rows", place.root / rows, "--json"),
    )
    assert again.data["rows"] == len(X)


def test_import_verifies_logarithms_of_probabilities(
    pretzel: Pretzel, place: Place, tmp_path: Path
) -> None:
    ran = pretzel(
        *("import", place.root / "mixed.joblib", "--trust-pickle", "--log-probabilities"),
        *("--into", tmp_path, "--verify", place.root / "mixed.csv", "--json"),
    )
    assert ran.code == 0, ran.err
    assert "log_probabilities" in ran.data["verified_outputs"]


def test_import_of_onnx_is_held_against_onnxruntime(pretzel: Pretzel, tmp_path: Path) -> None:
    import warnings

    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the converter's own dependencies
        from skl2onnx import to_onnx

        rows = np.nan_to_num(X)
        model = LogisticRegression().fit(rows, X[:, 0] > 0)
        made = to_onnx(model, rows[:1], options={"zipmap": False})
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",")
    ran = pretzel(
        *("import", tmp_path / "m.onnx", "--into", tmp_path / "models"),
        *("--verify", tmp_path / "rows.csv", "--json"),
    )
    assert ran.code == 0, ran.err
    assert ran.data["verified_outputs"] == ["label", "probabilities"]
    assert pretzel("verify", tmp_path / "models" / "m").code == 0
    (tmp_path / "models" / "triton" / "1").mkdir(parents=True)
    (tmp_path / "m.onnx").rename(tmp_path / "models" / "triton" / "1" / "model.onnx")
    config = tmp_path / "models" / "triton" / "config.pbtxt"
    config.write_text('platform: "onnxruntime_onnx"', encoding="utf-8")
    facts = pretzel("inspect", tmp_path / "models" / "triton", "--json").data
    assert facts["outputs"] == {"label": "int64", "probabilities": "Vector[2, float32]"}


def test_import_counts_versions_and_replaces_only_when_told(
    pretzel: Pretzel, place: Place, tmp_path: Path
) -> None:
    ask = ("import", place.root / "booster.ubj", "--into", tmp_path, "--name", "b")
    (tmp_path / "b" / "1").mkdir(parents=True)  # left by an import that a full disk has ended
    files = [Path(pretzel(*ask, "--json").data["file"]) for _ in range(2)]
    assert [file.parent.name for file in files] == ["1", "2"]
    ran = pretzel(*ask, "--version", "2")
    assert ran.code == 1
    assert "--force" in ran.err
    assert pretzel(*ask, "--version", "2", "--force").code == 0
    assert pretzel(*ask, "--version", "a b").code == 2


def test_verifying_a_pickle_needs_trust(pretzel: Pretzel, place: Place, tmp_path: Path) -> None:
    given = ("import", place.root / "mixed.joblib", "--into", tmp_path)
    ran = pretzel(*given, "--verify", place.root / "mixed.jsonl")
    assert ran.code == 1
    assert "runs code" in ran.err
    assert list(tmp_path.iterdir()) == []
    assert pretzel(*given).code == 0


def test_import_refuses_what_answers_otherwise(
    pretzel: Pretzel, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import flour

    whole = flour.from_xgboost

    def wrong(raw: bytes) -> Any:
        made = whole(raw)
        return flour.outputs(value=made["value"].add(1e-4), scores=made["scores"])

    monkeypatch.setattr(flour, "from_xgboost", wrong, raising=False)
    ran = pretzel(
        *("import", place.root / "booster.ubj", "--into", tmp_path),
        *("--verify", place.root / "rows.csv"),
    )
    assert ran.code == 3
    assert "rows.csv:1" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_verify_ends_with_a_code_of_its_own(pretzel: Pretzel, place: Place, tmp_path: Path) -> None:
    save_plan(tmp_path / "a.pretzel", 1.0)
    row = {"input": [0, 0, 0, 0], "outputs": {"top": 2.0}}
    (tmp_path / "a.verify.jsonl").write_text(json.dumps(row), encoding="utf-8")
    ran = pretzel("verify", tmp_path / "a.pretzel")
    assert ran.code == 3
    assert "wanted 2.0" in ran.err
    assert pretzel("verify", place.root / "mixed.joblib", "--trust-pickle").code == 0
    assert pretzel("verify", tmp_path / "a.pretzel", "--rows", "x.csv").code == 2


# --- errors --------------------------------------------------------------------------------------


def test_what_is_not_there(pretzel: Pretzel, place: Place, tmp_path: Path) -> None:
    assert pretzel("inspect", tmp_path / "nothing").code == 5
    assert pretzel("inspect", place.models / "nobody").code == 5
    assert pretzel("predict", place.models / "shift", tmp_path / "no.csv").code == 5
    assert pretzel("store", "gc", tmp_path).code == 5
    ran = pretzel("inspect", place.models / "broken.pretzel", "--json")
    assert ran.code == 1
    problem = json.loads(ran.err)
    assert problem["kind"] == "ArchiveError"
    assert problem["where"].endswith("broken.pretzel")
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder"
    ran = pretzel("explain", place.models / "shift", "--output", target)
    assert ran.code == 5
    assert "Traceback" not in ran.err


def test_a_library_that_is_not_installed(
    pretzel: Pretzel, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = builtins.__import__

    def without(name: str, *others: Any, **more: Any) -> Any:
        if name.partition(".")[0] in ("joblib", "pyarrow"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return usual(name, *others, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("runtime.cli.parquet.find_spec", lambda _: None)
    ran = pretzel("predict", place.root / "booster.ubj", place.root / "mixed.parquet")
    assert ran.code == 4
    assert "pip install 'pretzel-runtime[arrow]'" in ran.err


def test_bench_is_not_in_the_wheel(pretzel: Pretzel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.cli.benching.find_spec", lambda _: None)
    ran = pretzel("bench")
    assert ran.code == 4
    assert "checkout" in ran.err


def test_ctrl_c(pretzel: Pretzel, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("runtime.cli.listing.run", interrupt)
    assert pretzel("ls", place.models).code == 130


def test_a_reader_that_goes_away(place: Place) -> None:
    command = [sys.executable, "-m", "runtime", "explain", str(place.models / "shift")]
    done = subprocess.Popen(
        [*command, "--stage", "source"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert done.stdout is not None
    assert done.stderr is not None
    done.stdout.close()
    said = done.stderr.read()
    done.stderr.close()
    assert done.wait(60) == 141, said
    assert said == b""


# --- the store -----------------------------------------------------------------------------------


def test_store(pretzel: Pretzel, tmp_path: Path) -> None:
    with FileStore(tmp_path, grace_seconds=0.0) as store:
        kept, lost = Blob.of(np.arange(1000.0)), Blob.of(np.ones(50))
        store.hold("a@1", [kept])
        digest = store.put(lost)
        (path,) = tmp_path.glob(f"blobs/*/{digest}.blob")
        os.utime(path, (1.0, 1.0))
    assert pretzel("store", "report", tmp_path, "--json").data["blobs"] == 2
    assert "a@1" in pretzel("store", "report", tmp_path).out
    assert pretzel("store", "gc", tmp_path, "--json").data["freed_bytes"] == lost.nbytes
    assert pretzel("store", "fsck", tmp_path).code == 0
    (path,) = tmp_path.glob(f"blobs/*/{kept.digest}.blob")
    raw = path.read_bytes()
    path.write_bytes(raw[:-8] + bytes(8))
    assert pretzel("store", "fsck", tmp_path).code == 1
    assert pretzel("store", "fsck", tmp_path, "--repair", "--json").data["repaired"] == 1


# --- completion ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_everything(pretzel: Pretzel, shell: str) -> None:
    script = pretzel("completion", shell).out
    for command in COMMANDS:
        assert command.name in script
    for option in ("trust-pickle", "strict", "keep-removed", "output-format"):
        assert option in script


def test_bash_completes(pretzel: Pretzel, tmp_path: Path) -> None:
    script = tmp_path / "completion"
    script.write_text(pretzel("completion", "bash").out, encoding="utf-8")
    ask = 'COMP_WORDS=(pretzel %s); COMP_CWORD=%d; _pretzel; echo "${COMPREPLY[@]}"'
    for words, wanted in (("im", "import"), ("serve --stri", "--strict")):
        code = f"source {script}; " + ask % (words, len(words.split()))
        done = subprocess.run(
            ["bash", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        assert done.stdout.split() == [wanted]


def test_a_saved_plan_is_the_one_that_was_imported(
    pretzel: Pretzel, place: Place, tmp_path: Path
) -> None:
    pretzel("import", place.root / "booster.ubj", "--output", tmp_path / "b.pretzel")
    made = oven.load(tmp_path / "b.pretzel").run(X)["value"]
    assert np.array_equal(made, xgb("two").predict_proba(X)[:, 1])
    pretzel("import", place.root / "trees.txt", "--leaves", "--output", tmp_path / "t.pretzel")
    assert list(oven.load(tmp_path / "t.pretzel").outputs) == ["value", "scores", "leaves"]


def test_explain_want(pretzel: Pretzel, place: Place) -> None:
    """The smallest change of each row, within bounds; columns that the folder hides stay."""
    model, rows = place.root / "trees.txt", ("--rows", place.root / "rows.csv", "--count", 3)
    made = pretzel("explain", model, *rows, "--want", "1000:", "--json").data["changes"]
    assert [each["found"] for each in made] == [False] * 3
    made = pretzel("explain", model, *rows, "--want", ":1000", "--json").data["changes"]
    assert [each["found"] for each in made] == [True] * 3
    assert "nothing has to change" in pretzel("explain", model, *rows, "--want", ":1000").out
    assert "bounds are numbers" in pretzel("explain", model, *rows, "--want", "a:b").err
    line = LogisticRegression().fit([[-1.0, 0.0], [1.0, 0.0]], [False, True])
    path, other = str(place.root / "line.pretzel"), place.root / "odd.csv"
    oven.bake(flour.from_sklearn(line)).save(path)
    other.write_text("a,b\n-1,0\nnan,0\n-2,0\n")
    done = pretzel("explain", path, "--rows", other, "--want", "True", "--json")
    first, second, third = done.data["changes"]
    assert first["found"]
    assert third["found"]
    assert second["where"].startswith("$[1]")
    other.write_text("a,b\nnan,0\n")
    assert "refuses NaN" in pretzel("explain", path, "--rows", other, "--want", "True").err
    bare = pretzel("explain", model, *rows, "--want", ":1000", "--within", "age")
    assert "a column has no bounds" in bare.err
    assert "--rows" in pretzel("explain", model, "--want", "1").err


def test_explain_rows(pretzel: Pretzel, place: Place, tmp_path: Path) -> None:
    """What columns add to scores, of trees that were imported with their covers."""
    for name in ("booster.ubj", "trees.txt"):
        plan = tmp_path / f"{name}.pretzel"
        assert pretzel("import", place.root / name, "--covers", "--output", plan).code == 0
        made = pretzel("explain", plan, "--rows", place.root / "rows.csv", "--json").data
        assert len(made["rows"]) == 5
        for row in made["rows"]:
            assert row["base"] + sum(row["shares"].values()) == pytest.approx(
                row["score"], rel=1e-5
            )
        text = pretzel("explain", plan, "--rows", place.root / "rows.csv", "--count", 1).out
        assert len(text.splitlines()) == 1 + len(made["rows"][0]["shares"])
    plain = tmp_path / "plain.pretzel"
    assert pretzel("import", place.root / "trees.txt", "--output", plain).code == 0
    rows = ("--rows", place.root / "rows.csv")
    assert "covers" in pretzel("explain", plain, *rows).err
    assert pretzel("explain", plain, *rows, "--background", place.root / "rows.csv").code == 0
