"""The figures of a runtime as a table, for a terminal and for a notebook."""

from __future__ import annotations

import numpy as np

from runtime import Runtime
from tests.runtime.plans import shift


def test_stats_are_a_table() -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("a<b", shift(1.0))
        runtime.register("c", shift(2.0))
        for _ in range(3):
            runtime.predict("c", np.arange(4.0))
        stats = runtime.stats()
    head, first, second = stats.table()
    assert len(head) == len(first) == len(second)
    assert (first[0], second[0]) == ("a<b@1", "c@1")
    assert int(second[head.index("inline")]) == 3
    lines = str(stats).splitlines()
    assert lines[0].split()[0] == "model"
    assert lines[2].split()[0] == "c@1"
    assert "2 plans in memory" in lines[3]
    html = stats._repr_html_()
    assert html.count("<tr>") == 3
    assert "a&lt;b@1" in html
