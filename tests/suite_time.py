"""A plugin of scripts/test: how long the tests of each folder took, and which one took longest.

The table stands at the end of each pass. With `--suite-times=FILE` a line of JSON is added to the
file as well, one for each pass; scripts/gauges reads it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that scripts/test uses."""
    parser.getgroup("suite time").addoption("--suite-times", type=Path, help="add the times here")


def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests are reported, which is not in the processes that run them."""
    if not hasattr(config, "workerinput"):
        chosen = config.getoption("keyword") or config.getoption("lf")
        named = config.args_source is pytest.Config.ArgsSource.ARGS
        whole = not (chosen or named or os.environ.get("PRETZEL_WITHOUT"))
        config.pluginmanager.register(SuiteTime(config.getoption("--suite-times"), whole=whole))


class SuiteTime:
    """Seconds of each test, with its fixtures."""

    def __init__(self, path: Path | None, *, whole: bool) -> None:
        """Where the times are added, if anywhere; whether all tests of the tier run."""
        self._path, self._whole = path, whole
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

    def pytest_sessionfinish(self) -> None:
        """Add the times of this pass to the file."""
        if self._path is not None and self._seconds:
            folders = {
                folder: {"seconds": round(sum(tests.values()), 3), "tests": len(tests)}
                for folder, tests in self.folders().items()
            }
            seconds = round(time.monotonic() - self._start, 3)
            line = {"seconds": seconds, "whole": self._whole, "folders": folders}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
