"""Costs of endpoints: seconds of computing, joules, grams of carbon dioxide.

Seconds are measured for one call in so many, and for each chunk of executors. Joules are those of
the processor's packages (RAPL, a root's folder on most systems), divided by what endpoints took of
all seconds in which the machine's cores were busy. Where they cannot be read, a setting says what a
busy core takes; without it, joules are left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock

from objectstore import system
from runtime.http.snapshots import Family
from runtime.service.stats import VersionStats

POWERCAP = Path("/sys/class/powercap")
_STAT = system.PROC / "stat"
#: In /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
_BUSY = (0, 1, 2, 5, 6)
_JOULES_A_KWH = 3.6e6


class Packages:
    """The energy counters of the processor's packages, which begin anew at a limit."""

    def __init__(self, folder: Path = POWERCAP) -> None:
        self._zones = {
            zone: limit
            for zone in sorted(folder.glob("intel-rapl:*"))
            if _text(zone / "name").startswith("package")  # others are parts of it, or hold it
            and (limit := _number(zone / "max_energy_range_uj")) is not None
            and _number(zone / "energy_uj") is not None
        }
        self._last = {zone: _number(zone / "energy_uj") or 0 for zone in self._zones}

    @property
    def readable(self) -> bool:
        """True if there are counters that this process may read."""
        return bool(self._zones)

    def joules(self) -> float:
        """Joules since the last call."""
        total = 0
        for zone, limit in self._zones.items():
            now = _number(zone / "energy_uj")
            if now is not None:
                step = now - self._last[zone]
                total += step if step >= 0 else step + limit
                self._last[zone] = now
        return total / 1e6


def busy_seconds(stat: Path = _STAT) -> float:
    """Seconds for which the machine's cores have been busy, all together; 0 if nothing says so."""
    try:
        fields = stat.read_text().partition("\n")[0].split()[1:]
    except OSError:
        return 0.0
    return sum(int(fields[place]) for place in _BUSY) / os.sysconf("SC_CLK_TCK")


class Energy:
    """Divides what the machine took since the last look among the endpoints."""

    def __init__(
        self,
        watts: float = 0.0,
        carbon: float = 0.0,
        packages: Packages | None = None,
        busy: Callable[[], float] = busy_seconds,
    ) -> None:
        """`watts` of a busy core count where nothing can be read; `carbon` is in grams a kWh."""
        self._watts, self._carbon, self._busy = watts, carbon, busy
        self._packages = Packages() if packages is None else packages
        self._last_busy, self._last = busy(), dict[str, float]()
        self._joules, self._machine, self._lock = dict[str, float](), 0.0, Lock()

    def families(self, versions: Iterable[VersionStats]) -> list[Family]:
        """The figures of all endpoints."""
        seconds = {f"{each.name}@{each.version}": each.compute_seconds for each in versions}
        with self._lock:
            known = self._packages.readable or self._watts > 0
            if known:
                self._divide(seconds)
            self._last = seconds
            self._joules = {owner: self._joules.get(owner, 0.0) for owner in seconds}
            made = [_family("compute_seconds", "Computing time of calls, estimated.", seconds)]
            if known:
                made.append(_family("energy_joules", "Energy of calls, estimated.", self._joules))
            if known and self._carbon:
                grams = self._carbon / _JOULES_A_KWH
                carbon = {owner: joules * grams for owner, joules in self._joules.items()}
                made.append(_family("carbon_grams", "Carbon dioxide of calls, estimated.", carbon))
            if self._packages.readable:
                text = "Energy that the processors took."
                whole = Family("pretzel_machine_energy_joules_total", "counter", text, over="max")
                whole.add(self._machine)
                made.append(whole)
        return made

    def _divide(self, seconds: dict[str, float]) -> None:
        rate = self._watts
        if self._packages.readable:
            now, joules = self._busy(), self._packages.joules()
            busy, self._last_busy = now - self._last_busy, now
            taken = sum(seconds.values()) - sum(self._last.values())
            rate = joules / max(busy, taken, 1e-9)
            self._machine += joules
        for owner, total in seconds.items():
            step = max(0.0, total - self._last.get(owner, 0.0))
            self._joules[owner] = self._joules.get(owner, 0.0) + step * rate


def _family(name: str, text: str, by_owner: dict[str, float]) -> Family:
    family = Family(f"pretzel_{name}_total", "counter", text)
    for owner, value in by_owner.items():
        model, _, version = owner.rpartition("@")
        family.put(value, (("model", model), ("version", version)))
    return family


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
