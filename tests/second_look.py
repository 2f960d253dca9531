"""A plugin of scripts/test: the tests that may run a second time, alone, and what passed only then.

The first look leaves a list where only tests of `TIMED` failed and nothing else went wrong; the
second look, at these alone, decides. Why: docs/decisions/0044-named-second-looks.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest

#: Tests that hold time on the wall against a limit, which others on the machine can exceed.
TIMED = {
    "tests/flour/test_tree_blocks.py::test_a_block_takes_no_longer_than_its_rows": "a call's time",
    "tests/oven/codegen/test_hostile_text.py::test_time_grows_in_step_with_a_megabyte": "a ratio",
    "tests/oven/compiler/test_intrinsics.py::test_time_grows_with_the_document": "a ratio",
    "tests/oven/plans/test_saved.py::test_small_plans_load_in_milliseconds": "10 ms a plan",
    "tests/runtime/cluster/test_serving.py::test_to_zero_and_back_within_a_second": "1 s",
    "tests/runtime/http/test_array_pieces.py"
    "::test_many_rows_as_objects_hold_no_other_client_up": "a fifth of the time of a request",
    "tests/runtime/http/test_overload.py"
    "::test_another_thread_need_not_wait_for_the_end": "how soon a thread is woken",
    "tests/runtime/http/test_number_arrays.py"
    "::test_a_large_body_holds_nobody_up": "a fifth of the time of a request",
    "tests/runtime/http/test_overload.py"
    "::test_clients_outside_are_answered_in_time_or_told_soon": "half of all answers in 0.5 s",
    "tests/runtime/http/test_overload.py"
    "::test_what_waited_too_long_is_refused_unread": "2 ms without work",
    "tests/runtime/http/test_overload.py"
    "::test_the_body_of_what_is_refused_is_dropped_and_the_connection_goes_on": "2 ms without work",
    "tests/runtime/http/test_overload.py"
    "::test_half_of_a_deadline_is_for_the_answer": "2 ms without work",
    "tests/runtime/http/test_overload.py"
    "::test_a_deadline_counts_from_the_arrival": "2 ms without work",
    "tests/runtime/http/test_row_decoder.py::test_rows_do_go_the_short_way": "a row's time",
    "tests/runtime/http/test_overload.py::test_the_wait_is_in_the_metrics": "2 ms without work",
    "tests/runtime/http/test_slow_clients.py::test_slow_clients_hold_nobody_up": "a percentile",
    "tests/runtime/test_done_future.py"
    "::test_an_answered_row_costs_little_more_than_predict": "4 µs a call",
    "tests/runtime/test_materialise.py"
    "::test_a_common_first_part_is_found_and_used": "what it saves, as measured",
    "tests/test_imports.py::test_importing_flour_is_cheap": "milliseconds of an import",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switches that scripts/test uses."""
    group = parser.getgroup("second look")
    group.addoption("--first-look", type=Path, help="list in this file what may be looked at again")
    group.addoption("--passed-alone", type=Path, help="the file of those that passed only alone")


def pytest_configure(config: pytest.Config) -> None:
    """Watch where tests are reported, which is not in the processes that run them."""
    first, passed = config.getoption("--first-look"), config.getoption("--passed-alone")
    if passed is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Look(first, passed))


class Look:
    """Tests that failed and passed, in the first look if it has a file, else in the second."""

    def __init__(self, first: Path | None, passed: Path) -> None:
        self._first, self._passed = first, passed
        self._well: dict[str, bool] = {}
        self._broken = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whether all of a test goes well."""
        self._well[report.nodeid] = self._well.get(report.nodeid, True) and not report.failed

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read is no accident."""
        self._broken = self._broken or report.failed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """Neither is a process that has crashed."""
        self._broken = self._broken or bool(error)

    @pytest.hookimpl(tryfirst=True)  # before the report is written
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Leave the list if another look may help; in the second look, add what passed."""
        if self._first is None:
            with self._passed.open("a", encoding="utf-8") as file:
                file.writelines(f"{name}\n" for name, well in self._well.items() if well)
            return
        failed = [name for name, well in self._well.items() if not well]
        named = all(name.partition("[")[0] in TIMED for name in failed)
        if exitstatus == pytest.ExitCode.TESTS_FAILED and failed and named and not self._broken:
            self._first.write_text("".join(f"   {name}\n" for name in failed), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name above the closing line of each pass what passed only alone so far."""
        if self._passed.exists():
            for name in self._passed.read_text("utf-8").splitlines():
                line = f"== passed alone, failed in company: {name}"
                terminalreporter.write_line(line, yellow=True, bold=True)
