"""Plans on their way to other processes: as a file that is named by its content.

A plan goes to each machine once, as a file in a folder of the user there, and each process of the
machine maps that file, so its parameters are in memory once. What is sent along with tasks is the
file's digest.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from getpass import getuser
from hashlib import blake2b
from pathlib import Path

import oven
from objectstore import system
from oven import Plan
from oven.plans.saved import to_bytes
from runtime.errors import LostPlan

#: The plans of this process, by their files' names.
_plans: dict[str, Plan] = {}
_lock = threading.Lock()


def packed(plan: Plan) -> tuple[str, bytes]:
    """The name of a plan's file, and the file."""
    raw = to_bytes(plan)
    return f"{blake2b(raw, digest_size=16).hexdigest()}.pretzel", raw


def arrived(name: str, fetch: Callable[[], bytes]) -> Plan:
    """The plan of this name, which is fetched if no process of the machine has done so yet."""
    with _lock:
        if name not in _plans:
            _plans[name] = oven.load(kept(name, fetch)).wait()
        return _plans[name]


def kept(name: str, fetch: Callable[[], bytes]) -> Path:
    """The file of this name on this machine."""
    path = _folder() / name
    if not path.exists():
        raw = fetch()
        if f"{blake2b(raw, digest_size=16).hexdigest()}.pretzel" != name:
            raise LostPlan("a plan was damaged on its way", where=name)
        part = path.with_name(f".{name}.{os.getpid()}")
        part.write_bytes(raw)
        part.replace(path)
    return path


def _folder() -> Path:
    """A folder for plans that nobody else can write to."""
    path = Path(tempfile.gettempdir()) / f"pretzel-plans-{getuser()}"
    path.mkdir(mode=0o700, exist_ok=True)
    about = path.stat()
    if not system.is_own_folder(about) or system.doubt_of(about):
        return Path(tempfile.mkdtemp(prefix="pretzel-plans-"))
    return path
