"""The machine of a measurement: processor, clock, memory, system, versions, commit, load."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_CPU = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_POWER = Path("/sys/class/powercap")
#: Extensions for vectors as Linux names them, and as people do, the best first.
_VECTORS = (
    ("avx512_vbmi2", "AVX-512 and VBMI"),
    ("avx512f", "AVX-512"),
    ("avx2", "AVX2"),
    ("sse4_2", "SSE 4.2"),
    ("asimd", "NEON"),
)
#: Files without influence on measurements: stored results and documents are excluded.
_CODE = (".", ":(exclude)bench/results", ":(exclude)docs", ":(exclude)*.md")
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux


def fingerprint() -> dict[str, object]:
    """The machine and its state now; part of every result."""
    return {
        "when": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "mhz": _field("/proc/cpuinfo", "cpu MHz"),
        "vectors": vectors(),
        "governor": _text(_CPU / "scaling_governor") or "not told",
        "cores": cores(),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
        "virtual": "hypervisor" in _field("/proc/cpuinfo", "flags").split(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "commit": commit(),
    }


def running_on() -> str:
    """The machine in a line: processor, vectors, cores, load, Python."""
    facts = fingerprint()
    return (
        f"{facts['cpu']} with {facts['vectors']}, {facts['cores']} cores, load {facts['load']}, "
        f"Python {facts['python']}, commit {facts['commit']}"
    )


def vectors() -> str:
    """What the processor computes vectors with: the best of its extensions."""
    found = _field("/proc/cpuinfo", "flags") or _field("/proc/cpuinfo", "Features")
    names = (name for flag, name in _VECTORS if flag in found.split())
    return next(names, "no vectors that are known here")


def cores() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def commit() -> str:
    """The checkout's commit, marked as dirty if files other than documents and results differ."""
    short = _git("rev-parse", "--short=10", "HEAD")
    if not short:
        return "unknown"
    return f"{short}-dirty" if _git("status", "--porcelain", "-uno", "--", *_CODE) else short


def _git(*arguments: str) -> str:
    """The output of git; empty without git or a checkout."""
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def memory(process: int | str = "self") -> dict[str, int]:
    """A process's memory in bytes: resident, proportional, its own, and the highest so far."""
    rollup = _text(Path(f"/proc/{process}/smaps_rollup"))
    own = _kib(rollup, "Private_Clean") + _kib(rollup, "Private_Dirty")
    return {
        "rss": _kib(rollup, "Rss"),
        "pss": _kib(rollup, "Pss"),
        "private": own,
        "peak": _kib(_text(Path(f"/proc/{process}/status")), "VmHWM"),
    }


def joules() -> float | None:
    """The energy used by the processor's packages so far, if the machine reports it (RAPL)."""
    meters = sorted(_POWER.glob("intel-rapl:?/energy_uj"))
    readings = [_text(meter) for meter in meters]
    if not readings or not all(readings):
        return None
    return sum(int(each) for each in readings) / 1e6


def _kib(text: str, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def _field(path: str, name: str) -> str:
    match = re.search(rf"^{name}\s*:\s*(.*)$", _text(Path(path)), re.MULTILINE)
    return match[1].strip() if match else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def end_with_parent() -> None:
    """Make this process end with its parent, if the system supports that.

    A process that is stopped between its turns would not notice the end of its parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
