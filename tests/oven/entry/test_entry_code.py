"""What is known of entries without their texts: kept beside the code, and never another text's."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from oven.compiler import cache, packs
from oven.entry import generator
from oven.entry.interpreter import Layout, Offset, object_layout
from tests.house import run_python

pytestmark = pytest.mark.once

SECOND = """
import numpy as np
import flour, oven
from oven.entry import generator
texts = []
made = generator.generated
generator.generated = lambda *given: texts.append(given) or made(*given)
plan = oven.bake(flour.vector("x", 3).linear([[1.0, 2.0, 3.0]], [0.0]).element(0))
plan.wait()
assert plan.entry()(np.ones(3)) == (6.0,)
print(len(texts))
"""


def layout() -> Layout:
    found = object_layout()
    assert found is not None
    return found


def test_a_second_process_makes_no_text(tmp_path: Path) -> None:
    kept = {"PRETZEL_CACHE": str(tmp_path), "PRETZEL_DEBUG": ""}
    first, second = (int(run_python(SECOND, environment=kept)) for _ in range(2))
    assert second == 0
    assert first >= 0


PROBE = """
from oven.entry.generator import Pointer, c

def probe_entry(self: Pointer, argument: Pointer) -> Pointer:
    table = self.ARRAY_DATA
    return c.PyObject_CallOneArg(table.{word}, argument.LIST_ITEMS + 8 * c.TUPLE_ITEMS)
"""


def test_another_text_is_another_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for word in ("one", "two"):
        (tmp_path / f"probe_{word}.py").write_text(PROBE.format(word=word.upper()))
    one, two = (import_module(f"probe_{word}").probe_entry for word in ("one", "two"))
    found = layout()
    moved = {name: Offset("int64", at) for name, at in (("TUPLE_ITEMS", 77), ("LIST_ITEMS", 78))}
    other = Layout({**found.offsets, **moved}, found.numbers)
    made = [generator.code_for(*each) for each in ((one, found), (two, found), (one, other))]
    words = ("FALLBACK", "PyObject_CallOneArg")
    assert [each.words for each in made] == [(*words, "ONE"), (*words, "TWO"), (*words, "ONE")]
    assert made[0].key == made[1].key != made[2].key
    assert "ld_int64(argument, 78) + 8 * 77" in made[2].text


def test_what_is_damaged_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path))
    digest = cache.made_of("for a test")
    made: list[bytes] = []

    def make() -> bytes:
        made.append(b"words")
        return b"words"

    assert [cache.data(digest, make) for _ in range(3)] == [b"words"] * 3
    assert len(made) == 1
    (path,) = tmp_path.glob("??/*.o")
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.data(digest, make) == b"words"
    assert len(made) == 2


def test_a_pack_has_the_words_beside_the_code(tmp_path: Path) -> None:
    made = {
        "a": packs.PackedFunction("f_a", b"code"),
        "b": packs.PackedFunction(packs.DATA, b"words"),
    }
    packs.write(tmp_path / "a.pack", "level", "compilers", made)
    pack = packs.read(tmp_path / "a.pack", "level", "compilers")
    assert len(pack) == 1
    assert (pack.find("a"), pack.find("b")) == (made["a"], None)
    assert (pack.data("a"), pack.data("b")) == (None, b"words")
