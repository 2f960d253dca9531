"""The product without the ways of Linux that other systems lack: each is taken away, and then all.

A module that Python loads at its start takes them away, also in the processes that are started:
workers, imports, compilations.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from objectstore import system
from runtime.http import ServerSettings
from runtime.http.server import ServerError
from runtime.workers.supervisor import listen_often
from tests.house import ROOT, ended, run_python

pytestmark = pytest.mark.once

#: The code that takes each of them away.
AWAY = {
    "file locks: those of Windows instead": """
import fcntl, os, struct, subprocess, types  # subprocess tells Windows by msvcrt
def locking(number, mode, size):
    place = os.lseek(number, 0, os.SEEK_CUR)
    wanted = struct.pack("hhqqi0q", fcntl.F_WRLCK, os.SEEK_SET, place, size, 0)
    fcntl.fcntl(number, fcntl.F_OFD_SETLK, wanted)  # as LockFile: of the file that is open
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
sys.modules["fcntl"] = None
""",
    "ports of several sockets": "import socket; del socket.SO_REUSEPORT",
    "sockets in the file system": """
import socket
def pair():
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]
del socket.AF_UNIX
socket.socketpair = pair
""",
    "what the kernel tells": """
import builtins, io
def opened(path, *args, _real=io.open, **options):
    if str(path).startswith("/proc"):
        raise FileNotFoundError(path)
    return _real(path, *args, **options)
builtins.open = io.open = opened
""",
    "forks": "import os; del os.fork, os.register_at_fork",
    "cores of this process": "import os; del os.sched_getaffinity",
    "clocks of other threads": "import time; del time.pthread_getcpuclockid",
    "numbers of users": "import os; del os.getuid, os.geteuid",
    "flags of files": "import os; del os.O_NOFOLLOW, os.O_CLOEXEC, os.O_DIRECTORY",
    "moves of open files": """
import os, objectstore.system as system
def closed(real):
    def call(path, *args, **options):
        for each in os.listdir("/proc/self/fd"):
            if os.path.realpath(f"/proc/self/fd/{each}") == os.path.realpath(path):
                raise PermissionError(path)
        return real(path, *args, **options)
    return call
os.replace, os.rename, os.unlink = map(closed, (os.replace, os.rename, os.unlink))
system.MOVES_OPEN = False
""",
    "limits": "sys.modules['resource'] = None",
    "handlers of signals in loops, and uvloop": """
import asyncio, signal
def refused(*_):
    raise NotImplementedError
sys.modules["uvloop"] = None
asyncio.SelectorEventLoop.add_signal_handler = refused
del signal.SIGHUP
""",
    "calls of the C library": """
import ctypes
class Library(ctypes.CDLL):
    def __init__(self, name, *args, **options):
        if name is None:
            raise TypeError("not on Windows")
        super().__init__(name, *args, **options)
    def __getattr__(self, name):
        if name in {"madvise", "mmap", "sem_init", "write"}:
            raise AttributeError(name)
        return super().__getattr__(name)
ctypes.CDLL = Library
""",
    "Linux by its name": "import objectstore.system as system; system.LINUX = False",
}

PROGRAM = """
import importlib, json, pkgutil, signal, subprocess, sys, time, urllib.request
from pathlib import Path

import numpy as np

import flour, objectstore, oven, pretzel, runtime, scheduler
from oven.compiler import cache
from runtime.http import Server, ServerSettings

for package in (objectstore, scheduler, oven, runtime):  # what is imported later
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not each.name.endswith("__main__"):
            try:
                importlib.import_module(each.name)
            except ImportError as problem:
                assert (problem.name or "objectstore").split(".")[0] not in (
                    "flour", "objectstore", "oven", "pretzel", "runtime", "scheduler"
                ), problem

place = Path(sys.argv[1])
rows = np.arange(60_000.0).reshape(-1, 3)
model = flour.outputs(score=flour.vector("x", 3).multiply([2 / 7]).sum())
made = oven.bake(model, background=False)
folder = place / "models" / "m" / "1"
folder.mkdir(parents=True)
made.save(folder / "m.pretzel")
wanted = rows.sum(axis=1) * 2 / 7
for plan in (made, oven.load(folder / "m.pretzel")):
    np.testing.assert_allclose(plan.run(rows)["score"].ravel(), wanted, rtol=1e-12)
assert cache.counters.compiled

def ask(url):
    request = urllib.request.Request(url + "/predict/m", b"[1.0, 2.0, 4.0]")
    return json.load(urllib.request.urlopen(request, timeout=60))

with runtime.Runtime() as served:
    served.register("m", made)
    with Server(served, ServerSettings(port=0)) as server:
        answer = ask(server.url)
        server.processor_seconds()
assert abs(np.ravel(answer["score"])[0] - 2.0) < 1e-12, answer

def command(*words, **options):
    words = sys.executable, "-m", "runtime", *words
    return subprocess.Popen(words, stdout=subprocess.PIPE, **options)

listed = command("ls", str(place / "models"), "--json")
assert '"m"' in listed.communicate(timeout=120)[0].decode()
assert listed.returncode == 0
command("doctor", "--port", "0").communicate(timeout=120)
serving = command("serve", str(place / "models"), "--port", "0", "--workers", "2", "--json")
try:
    lines = iter(serving.stdout.readline, b"")
    told = next(each for each in map(json.loads, lines) if each.get("event") == "listening")
    assert ask(told["url"]) == answer
    serving.send_signal(signal.SIGTERM)
    assert serving.wait(60) == 0
finally:
    serving.kill()
    serving.wait(60)
print("all is well")
"""


@pytest.mark.parametrize(
    "names",
    [
        *(pytest.param([name], marks=pytest.mark.apart, id=name) for name in AWAY),
        pytest.param([*AWAY], id="all of them"),
    ],
)
def test_without_it_the_product_works(names: list[str], tmp_path: Path) -> None:
    lines = ["import sys", *(AWAY[name] for name in names)]
    (tmp_path / "sitecustomize.py").write_text("\n".join(lines), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))),
        "PRETZEL_CACHE": str(tmp_path / "code"),
        # Others on this machine would not see these locks on what is staged, and take it away.
        "TMPDIR": str(tmp_path),
        "USER": "somebody",
    }
    words = (sys.executable, "-c", PROGRAM, tmp_path)
    done = ended(*words, env=environment, cwd=tmp_path, timeout=600)
    assert done.stdout.endswith("all is well\n"), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("processor", "triple", "head"),
    [
        ("apple-m1", "arm64-apple-macosx14.0", "cffaedfe0c000001"),
        ("x86-64", "x86_64-apple-macosx14.0", "cffaedfe07000001"),
        ("x86-64", "x86_64-pc-windows-msvc", "6486"),
    ],
)
def test_code_has_the_form_of_the_system(processor: str, triple: str, head: str) -> None:
    """Mach-O and COFF: llvmlite's loader is for them, ours is not."""
    run_python(
        "import sys, flour, oven\n"
        "from oven.compiler import cache, machine, object_loader\n"
        "from oven.plans import program_image\n"
        "program_image.KEPT[0] = False\n"
        "processor, triple, head = sys.argv[1:]\n"
        "machine.aim(processor, '', triple)\n"
        "scores = flour.vector('x', 3).multiply([2.0, 0.5, 0.25]).sum().exp()\n"
        "found = cache.collect(lambda: oven.bake(flour.outputs(s=scores), background=False))\n"
        "codes = [each for each in found.values() if each.symbol]  # others are images\n"
        "assert codes\n"
        "for each in codes:\n"
        "    assert each.code.hex().startswith(head), each.symbol\n"
        "    assert object_loader.link(each.code, each.symbol) is None\n",
        *(processor, triple, head),
    )


def test_workers_that_cannot_be_given_sockets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "HANDS_ON", False)
    with pytest.raises(ServerError, match="workers need sockets"):
        listen_often(ServerSettings(port=0), 2)
