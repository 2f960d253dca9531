"""A module of LLVM for a linker: functions, parameters, and what callers call.

`main` is a process of its own, as LLVM aborts on some code for WebAssembly with vectors:
oven.export.targets writes its order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path

import llvmlite.binding as llvm
from llvmlite import ir

from oven.compiler import machine, portable
from oven.compiler.intrinsics.builder import Builder, typed
from oven.compiler.kinds import BYTE, INT, INT64, WORD
from oven.compiler.lowering import Intrinsic
from oven.compiler.native import optimised
from oven.compiler.portable import StageWord

_LINE = 64


def main(cpu: str, features: str, triple: str, made: str, level: str = "") -> None:
    """Write the object code of an order that oven.export.targets has written.

    With a `level` of processors it is its code for that, without parameters.
    """
    machine.aim(cpu, features, triple, linked=True)
    llvm.initialize_native_asmparser()
    order = json.loads(Path(made).with_suffix(".json").read_text(encoding="utf-8"))
    module = _Linkable(order["name"], order["functions"])
    if level:
        module.run_of(level)
    else:
        data = Path(made).with_suffix(".parameters").read_bytes()
        module.table(order["table"], order["sizes"], data)
        module.entries(order["about"], order["columns"], order["levels"])
    parsed = optimised(llvm.parse_assembly(str(module.llvm)))
    Path(made).write_bytes(machine.target_machine().emit_object(parsed))


class _Linkable:
    """A module of LLVM with everything that an artefact has."""

    def __init__(self, name: str, functions: Mapping[str, str]) -> None:
        self.name = name
        self.words: dict[str, Intrinsic | int] = {"ld_pointer": _ld_pointer()}
        known = {*functions, *self.words}
        self.words |= {each: StageWord(text, each, known) for each, text in functions.items()}
        self.module = portable.module(self.words)
        self.llvm = self.module.llvm
        self.bits = 32 if machine.triple().startswith("wasm32") else 64
        self.size = ir.IntType(self.bits)
        self.tables: ir.GlobalVariable | None = None

    def table(self, table: Sequence[int | list[int]], sizes: Sequence[int], data: bytes) -> None:
        """The parameters and the table that finds them."""
        held: list[ir.GlobalVariable] = []
        start = 0
        for number, size in enumerate(sizes):
            padded = data[start : start + size] + bytes(-size % _LINE)
            held.append(self._constant(f"parameter_{number}", _bytes(padded or bytes(_LINE))))
            start += size
        words = [self._word(each, held) for each in table]
        kind = ir.LiteralStructType([word.type for word in words])
        self.tables = self._constant("table", ir.Constant(kind, words))

    def _constant(self, name: str, value: ir.Constant) -> ir.GlobalVariable:
        made = ir.GlobalVariable(self.llvm, value.type, name)
        made.initializer, made.global_constant, made.align = value, True, _LINE
        made.linkage = "internal"
        return made

    def _word(self, word: int | list[int], held: Sequence[ir.GlobalVariable]) -> ir.Constant:
        """A number, or the address of a parameter: eight bytes, the lower ones first."""
        if isinstance(word, int):
            return ir.Constant(WORD, word)
        address = held[word[0]].ptrtoint(self.size)
        if self.bits == 64:
            return address
        return ir.Constant(ir.LiteralStructType([INT, INT]), [address, ir.Constant(INT, 0)])

    def run_of(self, level: str) -> None:
        """The function `run` under a name of its own."""
        made = self._run_at(level)
        builder = ir.IRBuilder(made.append_basic_block("entry"))
        builder.ret(builder.call(self._function("run"), made.args))

    def _run_at(self, level: str) -> ir.Function:
        made = self._exported(f"run_{level.replace('-', '_')}", WORD, [WORD] * 5)
        made.linkage = "hidden"
        return made

    def _chosen(self, builder: ir.IRBuilder, levels: Sequence[str]) -> ir.Value:
        """The `run` of the best of these levels that the processor has; asked with the first call.

        Threads that ask at once find the same.
        """
        run = self._function("run")
        if not levels:
            return run
        held = ir.GlobalVariable(self.llvm, run.type, "chosen")
        held.initializer, held.linkage = ir.Constant(run.type, None), "internal"
        before = builder.load_atomic(held, "monotonic", 8)
        with builder.if_then(builder.icmp_unsigned("==", before, ir.Constant(run.type, None))):
            found: ir.Value = run
            for level in levels:
                found = builder.select(_is_of(builder, level), self._run_at(level), found)
            builder.store_atomic(found, held, "monotonic", 8)
        return builder.load_atomic(held, "monotonic", 8)

    def entries(self, about: str, columns: Sequence[int], levels: Sequence[str]) -> None:
        """The functions that callers call; `levels` begin with the least."""
        inputs, outputs, texts = columns
        size = self._function("scratch_size")
        pointer = BYTE.as_pointer()
        predict = self._exported("predict", INT, (pointer, pointer, self.size, pointer))
        builder = ir.IRBuilder(predict.append_basic_block("entry"))
        given, made, rows, scratch = predict.args
        io = builder.alloca(ir.ArrayType(WORD, inputs + outputs))
        for place in range(inputs + outputs):
            base, index = (given, place) if place < inputs else (made, place - inputs)
            address = self._field(builder, base, index)
            builder.store(address, builder.gep(io, [INT(0), INT(place)]))
        longest = self._field(builder, given, inputs) if texts else WORD(0)
        arguments = [
            builder.ptrtoint(io, WORD),
            builder.ptrtoint(self.tables, WORD),
            self._wide(builder, rows),
            builder.ptrtoint(scratch, WORD),
            longest,
        ]
        run = self._chosen(builder, levels)
        builder.ret(builder.trunc(builder.call(run, arguments), INT))
        sized = self._exported("scratch_size", self.size, (self.size,))
        builder = ir.IRBuilder(sized.append_basic_block("entry"))
        needed = builder.call(size, [self._wide(builder, sized.args[0])])
        if self.bits == 32:
            most = WORD((1 << 32) - 1)
            fits = builder.icmp_signed("<", needed, most)
            needed = builder.trunc(builder.select(fits, needed, most), self.size)
        builder.ret(needed)
        version = self._exported("version", pointer, ())
        text = self._constant("about", _bytes(about.encode("ascii") + b"\0"))
        builder = ir.IRBuilder(version.append_basic_block("entry"))
        builder.ret(builder.bitcast(text, pointer))

    def _function(self, name: str) -> ir.Function:
        word = self.words[name]
        assert isinstance(word, StageWord), "it is one of the image's functions"
        kinds = (INT64,) * len(word.definition.args.args)
        return self.module.function(word.definition, kinds, inline=False)[0]

    def _exported(self, name: str, result: ir.Type, given: Sequence[ir.Type]) -> ir.Function:
        return ir.Function(self.llvm, ir.FunctionType(result, given), f"{self.name}_{name}")

    def _field(self, builder: ir.IRBuilder, base: ir.Value, index: int) -> ir.Value:
        """A field of a struct of addresses and sizes, as a word."""
        where = builder.bitcast(base, self.size.as_pointer())
        return self._wide(builder, builder.load(builder.gep(where, [INT(index)])))

    def _wide(self, builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
        return number if self.bits == 64 else builder.zext(number, WORD)


#: Features that an x86-64 processor reports: leaf and register of `cpuid`, and the bits of a level.
_BITS = {
    "x86-64-v3": {(1, 2): 0x38401000, (0x80000001, 2): 0x20, (7, 1): 0x128},
    "x86-64-v4": {(1, 2): 0x38401000, (0x80000001, 2): 0x20, (7, 1): 0xD0030128},
}
#: The registers that the system saves, for each level that a library chooses at load.
CHOSEN_AT_LOAD = {"x86-64-v3": 0x6, "x86-64-v4": 0xE6}
_CPUID = "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"


def _is_of(builder: ir.IRBuilder, level: str) -> ir.Value:
    """True if the processor is of this level, and the system saves its registers."""

    def asked(leaf: int, register: int) -> ir.Value:
        kind = ir.FunctionType(ir.LiteralStructType([INT] * 4), [INT, INT])
        made = builder.asm(kind, "cpuid", _CPUID, [INT(leaf), INT(0)], side_effect=True)
        return builder.extract_value(made, register)

    def have(answer: ir.Value, bits: int) -> ir.Value:
        return builder.icmp_unsigned("==", builder.and_(answer, INT(bits)), INT(bits))

    found = builder.alloca(ir.IntType(1))
    # These are asked first: the others may only be asked where they are known.
    known = builder.icmp_unsigned(">=", asked(0, 0), INT(7))
    builder.store(builder.and_(known, have(asked(1, 2), 1 << 27)), found)
    with builder.if_then(builder.load(found)):
        kind = ir.FunctionType(ir.LiteralStructType([INT, INT]), [INT])
        saved = builder.asm(kind, "xgetbv", "={ax},={dx},{cx}", [INT(0)], side_effect=True)
        every = [have(builder.extract_value(saved, 0), CHOSEN_AT_LOAD[level])]
        every += [have(asked(*question), bits) for question, bits in _BITS[level].items()]
        builder.store(reduce(builder.and_, every), found)
    return builder.load(found)


def _bytes(data: bytes) -> ir.Constant:
    return ir.Constant(ir.ArrayType(BYTE, len(data)), bytearray(data))


def _ld_pointer() -> Intrinsic:
    """The address that a caller's struct begins with."""
    bits = 32 if machine.triple().startswith("wasm32") else 64

    def write(b: Builder, args: Sequence[ir.Value]) -> ir.Value:
        address = b.read(args[0], ir.IntType(bits), align=bits // 8)
        return address if bits == 64 else b.zext(address, WORD)

    return typed((INT64,), INT64, write)
