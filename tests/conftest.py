"""What every test shares: reproducible hypothesis runs, golden files, one warm code cache."""

from __future__ import annotations

import ast
import functools
import gc
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.golden import Golden, stem_of

ROOT = Path(__file__).parent.parent

# The same examples on every machine and run; `--hypothesis-profile=explore` looks for new ones.
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", parent=settings.get_profile("ci"), derandomize=False)
settings.load_profile("ci")

# Before anything of ours is imported: a bare `pytest` shares the code cache of scripts/test.
os.environ.setdefault("PRETZEL_CACHE", str(ROOT / ".cache" / "code"))


def pytest_configure() -> None:
    """Parse one source at a time: CPython 3.11 counts the depth of trees for all threads together.

    A thread that logs a traceback parses its lines, and pytest those of a test that failed; both at
    once end in "AST constructor recursion depth mismatch", which ends the run.
    """
    parse, parsing = ast.parse, threading.RLock()

    @functools.wraps(parse)
    def one_at_a_time(*args: Any, **options: Any) -> Any:
        with parsing:
            return parse(*args, **options)

    if sys.version_info < (3, 12):
        ast.parse = one_at_a_time


def pytest_sessionstart() -> None:
    """Bake compiles before it returns: else a test of native code would see the definition.

    And it bakes every program: else it would make no stages of those that earlier runs baked.
    """
    from oven.plans import background, program_image

    background.BY_DEFAULT[0] = False
    program_image.KEPT[0] = False


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Servers configure the log of their process, and the next test reads it."""
    logs = [logging.getLogger(name) for name in ("", "pretzel", "pretzel.serve")]
    before = [([*log.handlers], log.propagate, log.level) for log in logs]
    yield
    logging.captureWarnings(capture=False)
    for log, (handlers, propagate, level) in zip(logs, before, strict=True):
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that accepts golden files."""
    parser.addoption("--update-golden", action="store_true", help="accept the golden texts of now")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Long bytes (packed bodies hold the time of day) have no place in the names of tests: worker
    processes would collect different ones.
    """
    return argname if isinstance(val, bytes) and len(val) > 32 else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse two tests that would share one golden file."""
    owners: dict[Path, str] = {}
    for item in items:
        if "golden" not in getattr(item, "fixturenames", ()):
            continue
        other = owners.setdefault(stem_of(item.path, item.name), item.nodeid)
        if other != item.nodeid:
            raise pytest.UsageError(f"{item.nodeid} and {other} have the same golden file")


def pytest_collection_finish() -> None:
    """What is here by now stays to the end: the collector has no need to look at it again.

    Half a million objects belong to modules and to the tests themselves. With them, `gc.collect()`
    took 0.3 seconds, and there are tests that call it a hundred times.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Return the golden text of the running test."""
    stem = stem_of(request.path, request.node.name)
    return Golden(stem, update=bool(request.config.getoption("--update-golden")))
