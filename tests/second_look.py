"""A plugin of scripts/test: which failures are worth a second look, and what it has shown.

The first look, in several processes, leaves a list where a few tests have failed and nothing else
went wrong. The second one, at these tests alone, notes which pass now. Every report says above
pytest's closing line which those were so far. Why: docs/decisions/0018-a-second-look.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

#: When more have failed, it is no accident.
MOST = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switches that scripts/test uses."""
    group = parser.getgroup("second look")
    group.addoption("--first-look", type=Path, help="list in this file what may be looked at again")
    group.addoption("--passed-alone", type=Path, help="the file of those that passed only alone")


def pytest_configure(config: pytest.Config) -> None:
    """Watch where tests are reported, which is not in the processes that run them."""
    first, passed = config.getoption("--first-look"), config.getoption("--passed-alone")
    if passed is None or hasattr(config, "workerinput"):
        return
    look = SecondLook(passed) if first is None else FirstLook(first)
    config.pluginmanager.register(look)
    config.pluginmanager.register(Report(passed))


class FirstLook:
    """What has failed, and whether anything else went wrong."""

    def __init__(self, path: Path) -> None:
        """Nothing has failed yet."""
        self._path = path
        self._failed: dict[str, None] = {}
        self._broken = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that failed, or whose fixtures did."""
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read is no accident."""
        self._broken = self._broken or report.failed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """Neither is a process that has crashed."""
        self._broken = self._broken or bool(error)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Leave the list, if another look may help."""
        few = 0 < len(self._failed) <= MOST
        if exitstatus == pytest.ExitCode.TESTS_FAILED and few and not self._broken:
            lines = [f"   {each}\n" for each in self._failed]
            self._path.write_text("".join(lines), encoding="utf-8")


class SecondLook:
    """What passes when nothing runs beside it."""

    def __init__(self, path: Path) -> None:
        """Nothing has run yet."""
        self._path = path
        self._well: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whether all of a test goes well."""
        well = self._well.get(report.nodeid, True)
        self._well[report.nodeid] = well and not report.failed

    @pytest.hookimpl(tryfirst=True)  # before the report is written
    def pytest_sessionfinish(self) -> None:
        """Add these to what was noted before."""
        with self._path.open("a", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name, well in self._well.items() if well)


class Report:
    """Says which tests passed only alone, in this pass and those before it."""

    def __init__(self, path: Path) -> None:
        """Where they are noted."""
        self._path = path

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """It is said again and again, so that it is at the end of the log as well."""
        if self._path.exists():
            for name in self._path.read_text("utf-8").splitlines():
                line = f"== passed alone, failed in company: {name}"
                terminalreporter.write_line(line, yellow=True, bold=True)
