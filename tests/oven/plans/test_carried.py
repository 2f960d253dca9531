"""Plans that carry machine code: it is used where the file is trusted and the code fits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour.core.errors import ParameterError
from objectstore import Archive, Blob
from objectstore.archive import write
from oven.compiler import cache, levels, machine, packs
from oven.plans import carried
from tests.house import run_python

pytestmark = pytest.mark.once

HOST = levels.best(machine.triple(), machine.features())
ROWS = np.arange(12.0).reshape(4, 3)

_LOAD = """
import json, sys, warnings
from pathlib import Path
import numpy as np
import oven
from oven.compiler import cache
cache.RELEASED = Path("nowhere")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    plan = oven.load(sys.argv[1], trust_code=sys.argv[2] == "yes", background=False)
rows = np.arange(12.0).reshape(4, 3)
answers = [plan.run(rows)["output"].tolist(), float(plan.entry()(rows[1])[0])]
said = [str(one.message) for one in caught]
print(json.dumps([answers, cache.counters.compiled, cache.counters.from_packs, said]))
"""


def loaded(
    plan: Path, folder: Path, *, trust: bool = True
) -> tuple[list[object], int, int, list[str]]:
    """What a new process with an empty cache answers, compiled, found and warned of."""
    environment = {"PRETZEL_CACHE": str(folder / "empty")}
    made = json.loads(run_python(_LOAD, str(plan), "yes" if trust else "", environment=environment))
    return made[0], made[1], made[2], made[3]


@pytest.fixture(scope="module")
def plan() -> oven.Plan:
    return oven.bake(
        flour.vector("x", 3).linear([[1.5, -2.0, 3.25]], [0.5]).element(0).exp().log1p()
    )


@pytest.fixture(scope="module")
def saved(plan: oven.Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("carried") / "a.plan"
    plan.save(path, code=["host", "x86-64-v2"])
    return path


def changed(
    path: Path, target: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]
) -> Path:
    """The plan's file with manifest and parameters changed, and everything sealed again."""
    with Archive.open(path) as archive:
        manifest: dict[str, Any] = json.loads(json.dumps(archive.manifest))
        parameters: dict[str, Any] = {one: archive.get(one) for one in archive.digests()}
        change(manifest, parameters)
        write(target, manifest, parameters)
    return target


def test_trusted_code_is_used_and_nothing_compiled(saved: Path, tmp_path: Path) -> None:
    own, compiled, _, _ = loaded(saved, tmp_path / "a", trust=False)
    answers, here, found, said = loaded(saved, tmp_path / "b")
    assert compiled > 0
    assert (answers, here, found > 2, said) == (own, 0, True, [])


def test_without_trust_it_is_not_looked_at(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("this file is not trusted")

    monkeypatch.setattr(packs, "opened", never)
    monkeypatch.setattr(carried, "offer", never)
    assert oven.load(saved).run(ROWS)["output"].shape == (4,)
    _, compiled, found, said = loaded(saved, tmp_path, trust=False)
    assert (compiled > 0, found, said) == (True, 0, [])


def test_a_plan_without_code_may_be_trusted(plan: oven.Plan, tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    plan.save(path)
    with Archive.open(path) as archive:
        assert "code" not in archive.manifest
    assert oven.load(path, trust_code=True).run(ROWS)["output"].shape == (4,)


def test_the_code_of_a_lower_level_is_used(saved: Path, tmp_path: Path) -> None:
    assert HOST is not None

    def only_v2(manifest: dict[str, Any], _: object) -> None:
        manifest["code"] = {"x86-64-v2": manifest["code"]["x86-64-v2"]}

    path = changed(saved, tmp_path / "a.plan", only_v2)
    assert loaded(path, tmp_path)[1:] == (0, loaded(saved, tmp_path / "b")[2], [])


def _level(path: Path) -> str:
    assert HOST is not None
    with Archive.open(path) as archive:
        return carried.level_names(archive.manifest)[HOST.name]


def _replaced(content: bytes) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """Other content for all levels."""

    def change(manifest: dict[str, Any], parameters: dict[str, Any]) -> None:
        blob = Blob.of(np.frombuffer(content, np.uint8))
        for digest in manifest["code"].values():
            parameters.pop(digest, None)
        parameters[blob.digest] = blob
        manifest["code"] = dict.fromkeys(manifest["code"], blob.digest)

    return change


def _stale(path: Path) -> bytes:
    assert HOST is not None
    target = path.with_name("stale.pack")
    packs.write(target, HOST.name, "another compiler", {})
    return target.read_bytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda _: b"", "it is no pack"),
        (lambda _: b"PRETZELX" * 9, "it is no pack"),
        (lambda path: _stale(path)[:-1] + b"?", "it is damaged"),
        (_stale, "it was made by another release"),
    ],
)
def test_code_that_does_not_fit_is_bypassed_with_one_line(
    saved: Path, tmp_path: Path, content: Callable[[Path], bytes], reason: str
) -> None:
    path = changed(saved, tmp_path / "a.plan", _replaced(content(tmp_path / "a.plan")))
    _, compiled, found, said = loaded(path, tmp_path)
    assert (compiled > 0, found) == (True, 0)
    line = f"{path}: the machine code in it is not used: {reason}; code is compiled instead"
    assert said == [line]


def test_code_for_other_processors_is_bypassed_with_one_line(saved: Path, tmp_path: Path) -> None:
    def foreign(manifest: dict[str, Any], _: object) -> None:
        manifest["code"] = {"aarch64": next(iter(manifest["code"].values()))}

    path = changed(saved, tmp_path / "a.plan", foreign)
    _, compiled, _, said = loaded(path, tmp_path)
    assert compiled > 0
    (line,) = said
    assert "it is for aarch64; code is compiled instead" in line


def test_damaged_code_is_bypassed_with_one_line(saved: Path, tmp_path: Path) -> None:
    content = bytearray(saved.read_bytes())
    content[content.index(b"\x7fELF") + 100] ^= 1
    path = tmp_path / "a.plan"
    path.write_bytes(content)
    for trust, lines in ((False, 0), (True, 1)):
        answers, _, _, said = loaded(path, tmp_path / f"{trust}", trust=trust)
        assert answers == loaded(saved, tmp_path / "own")[0]
        assert len(said) in {lines, 0}, "the damage may be in the code of another level"
    for start in [i for i in range(len(content)) if content.startswith(b"\x7fELF", i)]:
        content[start + 90] ^= 1
    path.write_bytes(content)
    _, compiled, found, (line,) = loaded(path, tmp_path / "all")
    assert (compiled > 0, found) == (True, 0)
    assert "an array is damaged; code is compiled instead" in line


@pytest.mark.parametrize("wrong", [1, ["x"], {"x86-64-v3": 1}, {"x86-64-v3": "no digest"}])
def test_a_manifest_that_names_no_code_is_no_way_in(
    saved: Path, tmp_path: Path, wrong: object
) -> None:
    path = changed(saved, tmp_path / "a.plan", lambda manifest, _: manifest.update(code=wrong))
    assert oven.load(path).run(ROWS)["output"].shape == (4,)
    assert loaded(path, tmp_path)[2] == 0


def test_levels_that_there_are_not_are_refused(plan: oven.Plan, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="no such level") as caught:
        plan.save(tmp_path / "a.plan", code=["x86-64-v9"])
    assert caught.value.hint is not None
    assert "x86-64-v3" in caught.value.hint
    assert not (tmp_path / "a.plan").exists()


def test_a_runtime_uses_code_only_if_told_to(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from runtime import Runtime

    offered: list[str] = []
    monkeypatch.setattr(carried, "offer", lambda _, where: offered.append(where))
    for trust in (False, True):
        with Runtime(executors=1, trust_code=trust) as runtime:
            runtime.register("a", saved)
    assert offered == [str(saved)]


def test_what_is_offered_is_let_go_once_it_is_loaded(saved: Path) -> None:
    with Archive.open(saved) as archive:
        pack = packs.opened(
            archive.get(_level(saved)).array.tobytes(),  # type: ignore[union-attr]  # a blob
            HOST.name,  # type: ignore[union-attr]  # there is one
            cache.compilers(),
        )
    oven.load(saved)
    before = len(cache.carried)
    cache.offer(pack)
    assert len(cache.carried) < before + len(pack), "what is loaded is not offered"
    cache.carried.clear()
