"""A plugin of scripts/test: how long the tests of each folder took, and which one took longest.

The table stands at the end of each pass. With `--suite-times=FILE` a line of JSON is added to the
file as well, one for each pass; scripts/gauges reads it.

A pass over everything leaves out the tests that tests/slow.txt names, unless it has `--slow`.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

#: Tests, without their cases, that take so many seconds a case, or for all of them.
SLOW, A_CASE, ALL_CASES = Path(__file__).with_name("slow.txt"), 0.75, 9.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switches that scripts/test uses."""
    group = parser.getgroup("suite time")
    group.addoption("--suite-times", type=Path, help="add the times here")
    group.addoption("--slow", action="store_true", help="run the tests of tests/slow.txt, too")
    group.addoption("--list-slow", action="store_true", help="write tests/slow.txt anew")


def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests are reported, which is not in the processes that run them."""
    if not hasattr(config, "workerinput"):
        chosen = config.getoption("keyword") or config.getoption("lf")
        named = config.args_source is pytest.Config.ArgsSource.ARGS
        whole = not (chosen or named or os.environ.get("PRETZEL_WITHOUT"))
        whole = whole and not config.getoption("--slow")
        config.option.slow = not whole  # which the processes that run them are given
        listed = config.getoption("--list-slow")
        times = SuiteTime(config.getoption("--suite-times"), whole=whole, listed=listed)
        config.pluginmanager.register(times)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out."""
    slow = set[str]() if config.option.slow else {*SLOW.read_text("utf-8").split()}
    parts: tuple[list[pytest.Item], list[pytest.Item]] = [], []
    for each in items:
        parts[each.nodeid.partition("[")[0] in slow].append(each)
    items[:] = parts[0]
    config.hook.pytest_deselected(items=parts[1])


class SuiteTime:
    """Seconds of each test, with its fixtures."""

    def __init__(self, path: Path | None, *, whole: bool, listed: bool) -> None:
        """A file to add times to; `whole` if the fast tier runs, `listed` to name slow tests."""
        self._path, self._whole, self._listed = path, whole, listed
        self._start = time.monotonic()
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add what one phase of a test took: its fixtures, itself, their end."""
        test = report.nodeid
        self._seconds[test] = self._seconds.get(test, 0.0) + report.duration

    def folders(self) -> dict[str, dict[str, float]]:
        """Return the seconds of each test by folder; the slowest folder and test come first."""
        found: dict[str, dict[str, float]] = {}
        for test, seconds in sorted(self._seconds.items(), key=lambda item: -item[1]):
            folder = test.partition("::")[0].rpartition("/")[0]
            found.setdefault(folder, {})[test] = seconds
        return dict(sorted(found.items(), key=lambda item: -sum(item[1].values())))

    @pytest.hookimpl(tryfirst=True)  # above what second_look says, which stays last
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the table."""
        if self._seconds:
            terminalreporter.section("seconds by folder, with the slowest test of each")
            for folder, tests in self.folders().items():
                slowest, seconds = next(iter(tests.items()))
                terminalreporter.write_line(
                    f"{sum(tests.values()):8.1f} s {len(tests):6} tests  {folder}"
                    f"  ({seconds:.1f} s {slowest.removeprefix(folder + '/')})"
                )

    def slow(self) -> list[str]:
        """The names of the slow functions."""
        tests: dict[str, list[float]] = {}
        for name, seconds in self._seconds.items():
            if name.count("::") == 1:
                tests.setdefault(name.partition("[")[0], []).append(seconds)
        means = ((name, sum(cases), sum(cases) / len(cases)) for name, cases in tests.items())
        return sorted(name for name, all_, mean in means if mean >= A_CASE or all_ >= ALL_CASES)

    def pytest_sessionfinish(self) -> None:
        """Add the times of this pass to the file, and write the names of slow tests."""
        if self._listed:
            SLOW.write_text("".join(f"{name}\n" for name in self.slow()), encoding="utf-8")
        if self._path is not None and self._seconds:
            folders = {
                folder: {"seconds": round(sum(tests.values()), 3), "tests": len(tests)}
                for folder, tests in self.folders().items()
            }
            seconds = round(time.monotonic() - self._start, 3)
            line = {"seconds": seconds, "whole": self._whole, "folders": folders}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
