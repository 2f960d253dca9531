"""Emitted source to object code.

A stage is one function `stage(params, io, n, scratch)` of four int64: the address of the parameter
table, of the input and output columns, the number of rows, and the address of scratch memory. An
entry is a function of as many int64 as Python calls it with (oven.entry.builtin). Both are written
in a small part of Python over raw addresses, with the intrinsics of `oven.compiler.intrinsics`, so
that the object code allocates nothing, raises nothing, and needs no interpreter.
"""

from __future__ import annotations

import ast
import re

import llvmlite.binding as llvm

from flour.core.parsing import parse_source
from oven import debug
from oven.compiler import machine
from oven.compiler.intrinsics.base import Helper
from oven.compiler.intrinsics.vocabulary import vocabulary
from oven.compiler.kinds import INT64, Mismatch
from oven.compiler.lowering import Module, Vocabulary
from oven.errors import CompileError, NoCompiler


def compile_source(source: str, name: str) -> machine.MachineCode:
    """Object code of the function `name` in the source, for C to call.

    numba compiles what is marked for it, and what our lowering refuses.
    """
    symbol, text, refused = name, "", ""
    if not source.startswith(machine.BY_NUMBA) and machine.compiler() == "pretzel":
        try:
            symbol, text = ir_text(source, name)
        except Mismatch as problem:
            refused = str(problem)
    by_numba = not text
    try:
        module = optimised(llvm.parse_assembly(text or _by_numba(source, name, refused)))
    except RuntimeError as problem:
        raise CompileError.of(name, source, str(problem)) from problem
    code = machine.target_machine().emit_object(module)
    return machine.MachineCode(symbol, bytes(code), str(module), source, by_numba)


def _by_numba(source: str, name: str, refused: str) -> str:
    """LLVM IR by numba, which knows more of Python than our lowering, and takes far longer."""
    try:
        from oven.compiler import numba_compiler

        text = numba_compiler.ir_text(source, name)
    except ImportError as missing:
        raise NoCompiler.without("numba", refused) from missing
    except Mismatch as problem:
        raise CompileError.of(name, source, refused or str(problem)) from problem
    debug.say(1, f"numba compiles {name}{': ' if refused else ''}{refused}")
    return text


def ir_text(source: str, name: str) -> tuple[str, str]:
    """The symbol of the function, and it in LLVM's intermediate language, not optimised yet."""
    module, definition = opened(source, vocabulary())
    module.llvm.triple = machine.triple()
    # Without alignments, words are read as if aligned to four bytes. The widths of the processor's
    # own integers stay out: with them LLVM takes twice as long for text, and makes code for
    # distances that takes a third longer.
    layout = str(machine.target_machine().target_data)
    module.llvm.data_layout = re.sub(r"-n[\d:]+", "", layout)
    function, _ = module.write(definition, name, (INT64,) * len(definition.args.args))
    return function.name, str(module.llvm)


def opened(source: str, words: Vocabulary) -> tuple[Module, ast.FunctionDef]:
    """A module for the last function of a source, in which the others are words."""
    *helpers, definition = parse_source(source).body
    assert isinstance(definition, ast.FunctionDef)
    known = {each.name: Helper(each) for each in helpers if isinstance(each, ast.FunctionDef)}
    return Module({**words, **known}), definition


def optimised(module: llvm.ModuleRef) -> llvm.ModuleRef:
    """Let LLVM make the code faster, as it does for C with -O3."""
    if not hasattr(llvm, "create_pass_builder"):  # llvmlite 0.43
        passes, manager = llvm.create_pass_manager_builder(), llvm.create_module_pass_manager()
        passes.opt_level, passes.loop_vectorize, passes.slp_vectorize = 3, True, False
        machine.target_machine().add_analysis_passes(manager)
        passes.populate(manager)
        manager.run(module)
        return module
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.loop_interleaving = options.loop_unrolling = True
    # Statements side by side stay apart: walks of several trees became gathers, at twice the time.
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine.target_machine(), options)
    builder.getModulePassManager().run(module, builder)
    return module


def assembly(text: str) -> str:
    """The machine code of LLVM IR, as text."""
    return str(machine.target_machine().emit_assembly(llvm.parse_assembly(text)))
