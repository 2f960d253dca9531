"""Object code that we make executable ourselves is what the compiler's loader makes of it."""

from __future__ import annotations

import ctypes
import math
import platform
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oven.compiler import cache, machine, object_loader
from oven.compiler.object_loader import link

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() != "x86_64", reason="ELF for x86-64 only"
    ),
]

#: Constants, a table of addresses (of a switch), a table of numbers, functions of the C library.
IR = """
@numbers = private constant [4 x double] [double 1.5, double 2.5, double 3.5, double -1.0], align 64
declare double @exp(double)
declare double @pow(double, double)
define double @other(double %x) noinline {
  %a = call double @exp(double %x)
  ret double %a
}
define double @probe(double %x, i64 %which) {
start:
  switch i64 %which, label %none [i64 0, label %one
    i64 1, label %two  i64 2, label %three  i64 3, label %four]
one:
  %a = call double @other(double %x)
  ret double %a
two:
  %b = call double @pow(double %x, double 2.25)
  ret double %b
three:
  %c = fadd double %x, 1.25e-300
  ret double %c
four:
  %i = fptosi double %x to i64
  %p = getelementptr [4 x double], ptr @numbers, i64 0, i64 %i
  %d = load double, ptr %p
  ret double %d
none:
  ret double -7.0
}
"""
PROBE = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)


def compiled(ir: str = IR) -> bytes:
    """The object code of this text, as stages are compiled."""
    return bytes(machine.target_machine().emit_object(llvm.parse_assembly(ir)))


def expected(x: float, which: int) -> float:
    answers = [math.exp(x), x**2.25, x + 1.25e-300, (1.5, 2.5, 3.5, -1.0)[min(int(x), 3)]]
    return answers[which] if which < 4 else -7.0


def answers(address: int) -> list[float]:
    call = PROBE(address)
    return [call(x, which) for x in (0.0, 1.0, 2.5, 3.0) for which in range(5)]


WANTED = [expected(x, which) for x in (0.0, 1.0, 2.5, 3.0) for which in range(5)]


def test_code_that_was_linked_answers() -> None:
    found = link(compiled(), "probe")
    assert found is not None
    assert answers(found) == pytest.approx(WANTED, rel=1e-15)


def test_it_answers_bit_for_bit_as_by_the_compilers_loader() -> None:
    found = link(compiled(), "probe")
    assert found is not None
    ir = IR.replace("@probe", "@probe_of_loader").replace("@other", "@other_of_loader")
    theirs = machine._loader().load(compiled(ir), "probe_of_loader")
    assert answers(found) == answers(theirs)


def test_the_same_code_can_be_linked_twice() -> None:
    code = compiled()
    one, two = link(code, "probe"), link(code, "probe")
    assert one is not None
    assert two is not None
    assert one != two
    assert answers(one) == answers(two)


def test_code_can_be_run_and_never_written_again() -> None:
    found = link(compiled(), "probe")
    assert found is not None
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights = line.split()[:2]
        start, end = (int(part, 16) for part in span.split("-"))
        if start <= found < end:
            assert rights == "r-xp"
            return
    raise AssertionError("the code is nowhere")


def test_a_function_that_is_not_there_is_no_reason_to_keep_memory() -> None:
    kept = len(object_loader._blocks)
    assert link(compiled(), "another") is None
    unknown = IR.replace("@exp", "@no_function_has_this_name")
    assert link(compiled(unknown), "probe") is None
    assert len(object_loader._blocks) == kept


def test_addresses_of_another_form_are_not_plain() -> None:
    target = llvm.Target.from_default_triple()
    other = target.create_target_machine(opt=3, reloc="pic", codemodel="small")
    assert link(bytes(other.emit_object(llvm.parse_assembly(IR))), "probe") is None


def test_what_is_not_plain_is_left_to_the_compilers_loader() -> None:
    ir = IR.replace("@probe", "@probe_in_data").replace("@other", "@other_in_data")
    code = compiled(ir.replace("private constant", "global"))  # memory that may be written to
    assert link(code, "probe_in_data") is None
    assert answers(machine.load(code, "probe_in_data")) == pytest.approx(WANTED, rel=1e-15)


def test_with_the_compilers_loader_alone_the_cache_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path / "code"))
    monkeypatch.setattr(cache, "_addresses", {})
    monkeypatch.setattr(machine, "link", lambda *_: None)
    source = "def probe(params, io, n, scratch):\n    return n + 41\n"
    found = cache.address(source, "probe")
    cache._addresses.clear()
    assert cache.address(source, "probe") == found, "that loader has one function of a name"


@pytest.mark.parametrize("size", [0, 3, 63, 64, 200, 400])
def test_an_object_that_was_cut_off_is_not_linked(size: int) -> None:
    assert link(compiled()[:size], "probe") is None


@given(st.data())
def test_a_damaged_object_is_linked_or_not_but_harms_nobody(data: st.DataObject) -> None:
    # Entries carry a checksum, so this is a second lock: nothing of it is run here.
    code = bytearray(CODE)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(code) - 8))
        code[place : place + 8] = data.draw(st.binary(min_size=8, max_size=8))
    found = link(bytes(code), "probe")
    assert found is None or found > 0


CODE = compiled()
