"""A runtime in a process that forks, as servers do that load first and fork then."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, sys, warnings
from pathlib import Path
import numpy as np
from runtime import Runtime
from tests.runtime.plans import offset_of, shift

warnings.simplefilter("ignore")  # threads and fork: here is nobody else
data = np.arange(160.0).reshape(40, 4)

def ask(runtime, name, offset):
    for engine in (None, "inline", "batch"):
        assert offset_of(runtime.predict(name, data, engine=engine), data) == offset
    assert offset_of(runtime.submit(name, data, timeout=60).result(90), data) == offset

def child(runtime, shared):
    ask(runtime, "a", 1.0)
    ask(runtime, "mine", 2.0)
    assert {queues.key for queues in runtime.stats().batch.queues} == {"shared", "mine@1"}
    runtime.register("own", shift(3.0), reserve=True)
    ask(runtime, "own", 3.0)
    ask(runtime, "a", 1.0)
    runtime.unregister("mine")
    runtime.close(timeout=90)

shared = Path(sys.argv[1])
runtime = Runtime(executors=1, memory_budget=1, spill=shared)
runtime.register("a", shift(1.0))
runtime.register("mine", shift(2.0), reserve=True)
if sys.argv[2] == "used":
    ask(runtime, "a", 1.0)
    ask(runtime, "mine", 2.0)
children = []
for _ in range(2):
    one = os.fork()
    if not one:
        try:
            child(runtime, shared)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        sys.exit(7)  # by the way that runs finalizers
    children.append(os.waitstatus_to_exitcode(os.waitpid(one, 0)[1]))
assert children == [7, 7], children
ask(runtime, "a", 1.0)
ask(runtime, "mine", 2.0)
runtime.close(timeout=90)
assert list(shared.iterdir()) == []
print("well")
"""


def run(directory: object, how: str) -> str:
    command = [sys.executable, "-c", PROGRAM, str(directory), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.stdout + done.stderr


def test_children_of_a_runtime_that_was_used(tmp_path: object) -> None:
    assert run(tmp_path, "used") == "well\n"


def test_children_of_a_runtime_that_is_new(tmp_path: object) -> None:
    assert run(tmp_path, "new") == "well\n"
