"""Metrics of this process: memory, processor time, start time."""

from __future__ import annotations

import os
import time

from objectstore import system
from runtime.http.snapshots import Family
from runtime.http.wire.settings import server_version

#: Time of import, for systems that do not report the start of the process.
_IMPORTED = time.time()


def families() -> list[Family]:
    """Metrics that the system reports for this process; others are left out."""
    info = Family("pretzel_build_info", "gauge", "The version of Pretzel; always 1.", over="max")
    info.add(1, version=server_version())
    workers = Family("pretzel_workers", "gauge", "Processes that these figures are of.")
    workers.add(1)
    spent = os.times()
    cpu = Family("pretzel_process_cpu_seconds_total", "counter", "Processor time, user and system.")
    cpu.add(spent.user + spent.system)
    began = Family(
        "pretzel_process_start_time_seconds",
        "gauge",
        "When the oldest process began, in seconds since 1970.",
        over="min",
    )
    began.add(started())
    return [info, workers, cpu, began, *_memory()]


def _memory() -> list[Family]:
    known = (
        ("resident", resident_bytes(), "counted in each"),
        ("proportional", proportional_bytes(), "divided among them"),
    )
    return [
        Family(
            *(f"pretzel_process_{name}_bytes", "gauge"),
            f"Memory in use; what processes share is {shared}.",
            [((), size)],
        )
        for name, size, shared in known
        if size is not None
    ]


def resident_bytes() -> int | None:
    """The resident set size; None if the system does not report it."""
    try:
        pages = int(system.told("self/statm").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def proportional_bytes() -> int | None:
    """The proportional set size; None if the system does not report it."""
    text = system.told("self/smaps_rollup")
    values = [line.split()[1] for line in text.splitlines() if line.startswith("Pss:")]
    return int(values[0]) * 1024 if values else None


def started() -> float:
    """The start time of this process, in seconds since 1970."""
    try:
        ticks = int(system.told("self/stat").rpartition(")")[2].split()[19])
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED
    return time.time() - since_boot + ticks / os.sysconf("SC_CLK_TCK")
