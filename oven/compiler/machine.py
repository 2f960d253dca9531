"""The processor to compile for, and loading object code."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

from flour.core.errors import ParameterError
from objectstore import system
from oven.compiler import levels
from oven.compiler.object_loader import link
from oven.errors import NoCompiler

try:
    import llvmlite  # its face: the compiler itself, `binding`, is imported when it is needed
except (ImportError, OSError):  # it, or a library of its own, is missing: definitions answer
    llvmlite = None

_lock = threading.Lock()
#: The compilers of code: our lowering, numba, or our lowering with the same bits on all processors,
#: for rows one by one, or for blocks of them, too.
Compiler = Literal["pretzel", "numba", "portable", "portable_blocks"]
#: Begins the source that is not for our lowering as it is: so its code has keys of its own.
BY_NUMBA, PORTABLE = "# compiled by numba\n", "# portable\n"
MARKS: dict[Compiler, str] = {"pretzel": "", "numba": BY_NUMBA, "portable": PORTABLE}
MARKS["portable_blocks"] = PORTABLE


def compiler(chosen: Compiler = "pretzel") -> Compiler:
    """The compiler that is chosen; or PRETZEL_COMPILER, which is for all other code."""
    if MARKS.get(chosen) == PORTABLE:
        return chosen
    name = os.environ.get("PRETZEL_COMPILER") or chosen
    if name not in {"pretzel", "numba"}:
        names = "pretzel, numba"
        raise ParameterError(
            "there is no such compiler", found=repr(name)[:80], hint=f"one of {names}"
        )
    if name == "numba" and find_spec("numba") is None:
        raise NoCompiler(
            "numba is to compile, and is not installed",
            hint="pip install numba, or leave the compiler as it is: pretzel",
        )
    return "numba" if name == "numba" else "pretzel"


class Aim(NamedTuple):
    """A processor to compile for."""

    cpu: str
    features: str
    triple: str
    #: Object code is for a linker, and does not depend on where it is loaded.
    linked: bool = False


#: The processor to compile for, if not this one.
_aims: list[Aim] = []
#: Functions of the C library that code may call; most have a twin for float32.
_TWINS = (
    *("exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh"),
    *("tanh", "asinh", "atan", "erf", "pow", "floor", "ceil", "trunc", "fmod", "rint", "lgamma"),
    *("cbrt", "nearbyint", "round"),
)
_LIBM = [f"{name}{suffix}" for name in _TWINS for suffix in ("", "f")]
_LIBM += ["ldexp", "memcpy", "memset", "memmove", "memcmp", "asin", "acos", "fmin", "fmax"]


def is_there() -> bool:
    """True if a compiler is installed, which also loads code; whether it works, `check` says."""
    return llvmlite is not None


def _llvm() -> Any:
    """The compiler: forty megabytes, which processes whose code comes out of caches never need."""
    return import_module("llvmlite.binding")


def check() -> None:
    """Raise NoCompiler where there is none."""
    try:
        _llvm()
    except (ImportError, OSError) as problem:  # it, or a library of its own, is missing
        broken = not isinstance(problem, ModuleNotFoundError)
        raise NoCompiler.without("llvmlite", str(problem) if broken else "") from problem


@cache
def target_machine() -> Any:
    """The compiler's target: the level of this machine's processor."""
    return _machine()


def _machine() -> Any:
    llvm = _llvm()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if levels.architecture(triple()) != levels.architecture(llvm.get_default_triple()):
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple())
    if _aims and _aims[0].linked:
        return target.create_target_machine(
            cpu=cpu(), features=features(), opt=3, reloc="pic", codemodel="default"
        )
    return target.create_target_machine(
        cpu=cpu(),
        features=features(),
        opt=3,
        # Absolute 64-bit addresses: the loader mishandles offsets from a global table once several
        # objects are loaded, and sections may be at any distance.
        reloc="static",
        codemodel="large",
        jit=True,
    )


def aim(cpu: str, features: str, triple: str = "", *, linked: bool = False) -> None:
    """Compile for another processor than this one; to be called before anything is compiled."""
    _aims[:] = [Aim(cpu, features, triple or _llvm().get_default_triple(), linked)]
    for cached in (target_machine, vector_bytes, has, fingerprint):
        cached.cache_clear()


def triple() -> str:
    """The kind of machine to compile for."""
    return _aims[0].triple if _aims else _level().triple


def cpu() -> str:
    """The name of the processor to compile for."""
    return _aims[0].cpu if _aims else _level().cpu


def features() -> str:
    """The features of that processor, as the compiler writes them."""
    return _aims[0].features if _aims else _level().features


def host() -> Aim:
    """This processor, as the compiler knows it; nothing where there is no compiler."""
    if not is_there():
        return Aim("", "", "")
    llvm = _llvm()
    features = llvm.get_host_cpu_features()
    known = str(features.flatten()) if features else ""
    return Aim(llvm.get_host_cpu_name(), known, llvm.get_default_triple())


#: The kernel's names of features where they are not the compiler's.
_IN_CPUINFO = {"sse3": "pni", "sahf": "lahf_lm", "bmi": "bmi1", "lzcnt": "abm"}
_IN_CPUINFO |= {name: name.replace(".", "_") for name in ("sse4.1", "sse4.2")}
_IN_CPUINFO["avx512bitalg"] = "avx512_bitalg"
_CPUINFO = system.PROC / "cpuinfo"


@cache
def _level() -> Aim:
    """The target of compiling here: this processor's level, or else the processor itself."""
    if not is_there():
        return Aim("", "", "")
    told = _asked_for() or _told_by_kernel()
    if told is not None:
        return Aim(_known(told.cpu), told.listed, told.triple)
    here = host()
    level = levels.best(here.triple, here.features)
    return here if level is None else Aim(_known(level.cpu), level.listed, here.triple)


def _known(cpu: str) -> str:
    """The processor, or its predecessor: up to llvmlite 0.44, LLVM does not know the newest one."""
    minor = int(llvmlite.__version__.split(".")[1])
    return "znver3" if cpu == "znver4" and minor < 45 else cpu


def _asked_for() -> levels.Level | None:
    """The level in PRETZEL_PROCESSOR, as if this processor could do no more."""
    name = os.environ.get("PRETZEL_PROCESSOR")
    if not name:
        return None
    here = host()
    names = [level.name for level in levels.runnable(here.triple, here.features)]
    if name not in names:
        raise ParameterError(
            "PRETZEL_PROCESSOR is a level that this processor can run",
            found=repr(name)[:80],
            hint=f"one of {', '.join(names)}",
        )
    return levels.named(name)


def _told_by_kernel() -> levels.Level | None:
    """The level of this processor as the kernel describes it, without asking the compiler."""
    if not system.LINUX or platform.machine() != "x86_64":
        return None
    with suppress(OSError), _CPUINFO.open(encoding="ascii", errors="replace") as file:
        flags = next((line for line in file if line.startswith("flags")), "").split()
        here = frozenset(flags)
        wide = [one for one in levels.LEVELS if levels.architecture(one.triple) == "x86_64"]
        names = ((level, (_IN_CPUINFO.get(it, it) for it in level.features)) for level in wide)
        return next((level for level, wanted in names if here.issuperset(wanted)), None)
    return None


@cache
def vector_bytes() -> int:
    """The size of the processor's vector registers."""
    if has("avx512f"):
        return 64
    return 32 if has("avx2") else 16


@cache
def has(feature: str) -> bool:
    """True if this processor has a feature, by the compiler's name for it."""
    return f"+{feature}" in features().split(",")


@cache
def fingerprint() -> str:
    """Text of what object code depends on besides its source: the CPU and the code generator."""
    return f"{triple()} {cpu()} {features()} {version()}"


def version() -> str:
    """The version of the code generator."""
    return "no llvmlite" if llvmlite is None else f"llvmlite {llvmlite.__version__}"


class MachineCode(NamedTuple):
    """One function as relocatable machine code."""

    symbol: str
    #: The object file, its text in LLVM's language, and what was compiled.
    code: bytes
    llvm: str
    source: str
    #: True if numba compiled it: its version counts as well.
    by_numba: bool = False


class _Loader:
    """The compiler's loader, for objects that oven.compiler.object_loader does not support.

    One engine holds all of them; it owns a target machine of its own.
    """

    def __init__(self) -> None:
        _know_libm()
        llvm = _llvm()
        self._machine = _machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine)
        self._kept: list[Any] = []

    def load(self, code: bytes, symbol: str) -> int:
        """Make object code executable and return the address of a function in it."""
        loaded = int(self._engine.get_function_address(symbol))
        if loaded:
            return loaded
        item = _llvm().ObjectFileRef.from_data(code)
        self._engine.add_object_file(item)
        self._engine.finalize_object()
        return int(self._engine.get_function_address(symbol))


@cache
def _loader() -> _Loader:
    return _Loader()


def load(code: bytes, symbol: str) -> int:
    """The address of a function of this object code."""
    address = link(code, symbol)
    if address is None:
        with _lock:
            address = _loader().load(code, symbol)
    if not address:
        raise LookupError(f"the object code does not define {symbol}")
    return address


@cache
def _know_libm() -> None:
    # The interpreter has libm loaded; searching for its file would start a process.
    process = system.c_library()
    missing = [name for name in _LIBM if not _know(name, process)]
    if missing:
        from ctypes.util import find_library  # it can start processes

        library = ctypes.CDLL(find_library("m"))
        for name in missing:
            _know(name, library)


def _know(name: str, library: ctypes.CDLL) -> bool:
    """Tell the loader where a function is, if this library has it."""
    function = getattr(library, name, None)
    if function is not None:
        _llvm().add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    return function is not None


#: How native code is called: result = f(params, io, n, scratch).
_SIGNATURE = (ctypes.c_int64,) * 5
#: Calls that release the GIL, and calls that keep it.
STAGE = ctypes.CFUNCTYPE(*_SIGNATURE)
BRIEF = ctypes.PYFUNCTYPE(*_SIGNATURE)
