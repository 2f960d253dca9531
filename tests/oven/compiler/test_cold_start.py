"""Cold starts that go wrong: two at once, nowhere to write, a fork while code is compiled."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import flour
import oven
from tests.house import run_python, started

pytestmark = pytest.mark.once

_LOAD = """
import json, sys
from pathlib import Path
import numpy as np
import oven
from oven.compiler import cache
cache.RELEASED = Path("nowhere")
plan = oven.load(sys.argv[1])
rows = np.arange(12.0).reshape(4, 3)
answers = [plan.run(rows)["output"].tolist()]
answers += [plan.wait(120).run(rows)["output"].tolist(), plan.entry()(rows)[0].tolist()]
print(json.dumps([plan.code.tier, plan.ready, answers, cache.counters.compiled]))
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "a.plan"
    oven.bake(flour.vector("x", 3).linear([[1.0, 2.0, 3.0]], [0.5]).element(0)).save(path)
    return path


#: Whole numbers, so that both tiers have the same bits.
WANT = [[8.5, 26.5, 44.5, 62.5]] * 3


def test_two_processes_that_start_at_once_on_an_empty_cache(plan: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PRETZEL_CACHE": str(tmp_path / "code")}
    both = [started(sys.executable, "-c", _LOAD, plan, env=environment) for _ in range(2)]
    for process in both:
        said, problems = process.communicate(timeout=200)
        assert (process.returncode, problems) == (0, "")
        assert json.loads(said)[:3] == [1, True, WANT]
    again = json.loads(run_python(_LOAD, str(plan), environment=environment))
    assert again == [1, True, WANT, 0], "what they left is whole"


def test_a_home_that_cannot_be_written(plan: Path) -> None:
    nowhere = {"PRETZEL_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/proc/nowhere"}
    tier, ready, answers, compiled = json.loads(run_python(_LOAD, str(plan), environment=nowhere))
    assert (tier, ready, answers) == (1, True, WANT)
    assert compiled > 0, "each process compiles for itself"


_FORK = """
import json, os, sys, warnings
from pathlib import Path
import numpy as np
import flour
import oven
from oven.compiler import cache
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
cache.RELEASED = Path("nowhere")
rows = np.arange(12.0).reshape(4, 3)
flow = flour.vector("x", 3).linear([[1.0, 2.0, 3.0]], [0.5]).element(0)
plans = [oven.bake(flow), oven.bake(flow.exp().log())]
read, write = os.pipe()
child = os.fork()
if not child:
    tiers = [plan.wait(120).code.tier for plan in plans]
    os.write(write, json.dumps([tiers, plans[0].run(rows)["output"].tolist()]).encode())
    os._exit(0)
os.close(write)
said = os.read(read, 1 << 16).decode()
assert os.waitpid(child, 0)[1] == 0
assert [plan.wait(120).code.tier for plan in plans] == [1, 1]
print(said)
"""


def test_a_process_that_forks_while_code_is_compiled(tmp_path: Path) -> None:
    said = run_python(_FORK, environment={"PRETZEL_CACHE": str(tmp_path / "code")}, timeout=200)
    assert json.loads(said) == [[1, 1], WANT[0]]
