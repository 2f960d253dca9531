"""What is known of entries without their texts: kept beside the code, and never another text's."""

from __future__ import annotations

from pathlib import Path

import pytest

from oven.compiler import cache, packs
from oven.entry import forms, generator
from oven.entry.interpreter import Layout, Offset, object_layout
from tests.house import run_python

pytestmark = pytest.mark.once

TEMPLATES = (forms.VECTORS, forms.DOCUMENTS, forms.RECORDS, forms.COLUMNS, forms.PACKED)
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


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda each: each.name)
def test_words_and_key_are_those_of_the_text(template: generator.Template) -> None:
    known, made = generator.entry_code(template), generator.generated(template, layout())
    assert known is not None
    assert (known.name, known.text, known.words) == (template.name, *made)
    assert known.key == cache.key(made.text)


def test_a_second_process_makes_no_text(tmp_path: Path) -> None:
    kept = {"PRETZEL_CACHE": str(tmp_path), "PRETZEL_DEBUG": ""}
    first, second = (int(run_python(SECOND, environment=kept)) for _ in range(2))
    assert second == 0
    assert first >= 0


@pytest.mark.parametrize("what", ["text", "parts", "layout"])
def test_another_text_is_another_entry(what: str) -> None:
    template, found = forms.RECORDS, layout()
    other = template
    if what == "text":
        other = template._replace(text=template.text + "    # other\n")
    elif what == "parts":
        parts = {name: f"{text}    # other\n" for name, text in template.parts.items()}
        other = template._replace(parts=parts)
    else:
        offsets = dict(found.offsets, TUPLE_ITEMS=Offset("int64", 77))
        found = Layout(offsets, found.numbers)
    one = generator._entry_code(template, layout())
    two = generator._entry_code(other, found)
    assert one.key != two.key
    assert two.words == generator.generated(other, found).words


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
