"""Reports: ratios, goals, charts and comparisons, from a small run that is written here."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import results
from bench.histogram import Histogram
from bench.report import (
    PERFORMANCE,
    SUMMARY,
    html,
    markdown,
    micro,
    plots,
    sections,
    svg,
    together,
    write,
)
from bench.report.compare import compared
from bench.report.dots import Row, dots
from bench.report.figures import Figures, geometric_mean, ratio, shown, spread
from bench.report.svg import Axis, Series, chart
from bench.results import Read, Record
from tests.golden import Golden

ABOUT = {
    "machine": {"when": "2026-01-02T03:04:05", "cpu": "A CPU", "cores": 2, "commit": "abc"},
    "specs": [{"name": "lin", "count": 3, "scale": 1.0, "seed": 0}],
    "contestants": {"pretzel": "Pretzel", "sklearn": "scikit-learn", "onnxruntime": "ort"},
    "settings": {"sklearn": "as it comes"},
    "method": "Fairly.",
    "packages": {"numpy": "2"},
}


_LATENCIES = (("hot_p50", 1), ("hot_p99", 3), ("hot_worst", 3), ("cold_p99", 5))


def records(factor: float = 1.0) -> list[Record]:
    """Ours takes `factor` microseconds, scikit-learn 500, onnxruntime 4."""
    made = [
        Record("absent", "ac", "onnxruntime", "reason", None, "", note="no model | at all"),
        Record("versions", "", "sklearn", "versions", None, "", note="scikit-learn 1.9"),
    ]
    for who, micros in (("pretzel", factor), ("sklearn", 500.0), ("onnxruntime", 4.0)):
        times = Histogram([int(micros * 1000), int(micros * 3000)]).as_json()
        for metric, by in (*_LATENCIES, ("hot_p99_of_means", 2)):
            kept = times if metric == "hot_p50" else {}
            made.append(Record("latency", "lin", who, metric, by * micros, "µs", histogram=kept))
        for batch in (1.0, 100.0):
            metric, rate = "rows_1_callers", batch * 1e5 / micros
            made.append(Record("batch_throughput", "lin", who, metric, rate, "rows/s", batch))
            cost = ("cpu_1_callers", 10 * micros / batch, "µs/row")
            made.append(Record("batch_throughput", "lin", who, *cost, batch))
        for count in (0.0, 3.0):
            for metric, size in (("added", count * micros), ("pss", 50 + count * micros)):
                made.append(Record("memory", "lin", who, metric, size, "MiB", count))
        made.append(Record("load_time", "lin", who, "all", micros / 1e3, "s", 3.0))
        wrong = "2 of 96 rows differ" if who == "onnxruntime" else ""
        made.append(Record("answers", "lin", who, "worst", 1e-9, "", note=wrong))
    return made


def run(factor: float = 1.0) -> Read:
    """What is read back after being written."""
    return Read(ABOUT, tuple(records(factor)))


def test_page(golden: Golden) -> None:
    assert golden == markdown.page(Figures(run()))


def test_ratios() -> None:
    assert ratio(10.0, 2.0) == 5.0
    assert ratio(None, 2.0) is None
    assert ratio(1.0, 0.0) is None
    assert geometric_mean([2.0, None, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([None]) is None
    assert [shown(each) for each in (None, 0.0, 1234567.0, 0.01234)] == [
        "–",
        "0",
        "1,234,567",
        "0.0123",
    ]


def test_a_missed_goal_says_by_how_much() -> None:
    assert "300x | 500x, without SA, AC, TAB, GBT | met" in markdown.page(Figures(run()))
    text = markdown.page(Figures(run(factor=2.0)))
    assert "| 20,000 plans: loading | ≤ 60 s | – | not measured |" in text
    assert "300x | 250x (1.2x short), without SA, AC, TAB, GBT | **missed**" in text


def test_figures_say_how_far_rounds_were_apart() -> None:
    def one(**how: float) -> Record:
        return Record("latency", "lin", "pretzel", "hot_p50", 10.0, "µs", **how)  # type: ignore[arg-type]

    assert spread(one(low=8.0, high=12.0, samples=3)) == "10 ±20%"
    assert spread(one(low=10.0, high=10.0, samples=1)) == "10"
    assert spread(one(samples=3)) == "10"
    assert spread(None) == "–"


def test_tables_say_where_ours_is_behind() -> None:
    text = markdown.page(Figures(run(factor=8.0)))
    assert "above 1x ours is faster. Ours is behind ort on LIN (0.5x)." in text
    assert "more is better" in text
    assert "Ours is behind ort at 1 (0.5x), ort at 100 (0.5x)." in text
    assert "Ours is behind nowhere." in markdown.page(Figures(run()))


def test_reasons_name_no_folders_of_the_machine() -> None:
    note = "not\nfound at '/somewhere/pretzel/.cache/bench/ac/one.plan'"
    absent = Record("absent", "ac", "sklearn", "reason", None, "", note=note)
    text = markdown.page(Figures(Read(ABOUT, (absent,))))
    assert "| scikit-learn | ac | not found at '.cache/bench/ac/one.plan' |" in text
    assert "±" not in text


def test_the_machine_is_told() -> None:
    machine = {**ABOUT["machine"], "mhz": "2596.120", "memory": "24684092 kB"}  # type: ignore[dict-item]
    text = markdown.machine(Figures(Read({**ABOUT, "machine": machine}, ())))
    assert "A CPU at 2,596 MHz, 2 cores, 23.5 GiB" in text
    machine["vectors"] = "AVX2"
    text = markdown.machine(Figures(Read({**ABOUT, "machine": machine}, ())))
    assert "A CPU at 2,596 MHz with AVX2, 2 cores" in text
    assert "A CPU, 2 cores, ?" in markdown.machine(Figures(run()))


def test_the_page_stands_alone() -> None:
    figures = Figures(run())
    charts = plots.plots(figures)
    assert set(charts) == {"memory-lin", "latency-lin", "throughput-lin"}
    page = html.page(figures, charts)
    assert "<script" not in page
    assert "src=" not in page
    assert set(re.findall(r'href="(.)', page)) == {"#"}, "it links to its own parts only"
    assert set(re.findall(r'href="#([^"]+)"', page)) == set(
        re.findall(r'section id="([^"]+)"', page)
    )
    assert "url(" not in page
    assert "<b>(2 of 96 rows differ)</b>" in page
    assert "no model / at all" in page


def test_the_page_shows_what_is_good_and_what_is_not() -> None:
    page = html.page(Figures(run(factor=8.0)), {})
    assert '<td class="behind">0.5x</td>' in page
    assert '<td class="words missed"><b>missed</b></td>' in page
    assert '<tr class="ours"><td class="words">Pretzel itself</td><td>8 µs</td>' in page
    assert (
        "<h4>one row, 99th percentile</h4><div><span>scikit-learn</span><b>62.5x</b></div>" in page
    )
    assert 'class="behind"' not in html.page(Figures(run()), {})


def test_every_section_says_what_it_means() -> None:
    known = sections.sections(Figures(run()))
    assert [each.title for each in known][:3] == ["Goals", "One row", "Blocks"]
    assert all(each.means for each in known[1:-1])
    assert all(each.tables for each in known)


def test_micro_benchmarks_are_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRETZEL_BENCH_CACHE", str(tmp_path))
    assert micro.newest() == []
    (tmp_path / "micro").mkdir()
    for day, factor in (("20260101", 2.5), ("20260102", 3.0)):
        item = {"fullname": "tests/a.py::test_row", "name": "test_row"}
        plain = {"fullname": "tests/b.py::test_none", "name": "test_none", "extra_info": {}}
        data = {
            "datetime": "2026-01-02T00:00:00",
            "commit_info": {"id": "0123456789abcdef"},
            "benchmarks": [{**item, "extra_info": {"c": factor, "many": [1, 2.0]}}, plain],
        }
        (tmp_path / "micro" / f"{day}.json").write_text(json.dumps(data), encoding="utf-8")
    found = micro.newest()
    assert [each.rows for each in found] == [[["row", "3", "1 / 2"]]]
    text = markdown.page(Figures(run()), found)
    assert "## Part by part, measured on 2026-01-02: tests/a.py" in text
    assert "tests/a.py" in html.page(Figures(run()), {}, found)


def test_charts_are_well_formed_and_to_scale() -> None:
    series = [Series("a < b", [(1, 10.0), (10, 100.0), (100, 1000.0)])]
    drawn = ET.fromstring(chart("t", series, Axis("x", log=True), Axis("y", log=True)))
    line = drawn.find("{http://www.w3.org/2000/svg}polyline")
    assert line is not None
    places = [tuple(map(float, each.split(","))) for each in str(line.get("points")).split()]
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2), "decades are equally far apart"
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert x0 < x1
    assert y0 > y1, "more is higher"


def test_dots_are_well_formed_and_to_scale() -> None:
    rows: list[Row] = [("a < b", [1.0, 10.0]), ("none", [None, None]), ("c", [100.0, None])]
    text = dots("t", ["one", "two"], rows, Axis("ms", log=True))
    drawn = ET.fromstring(text)
    spots = drawn.findall("{http://www.w3.org/2000/svg}circle")
    x = [float(str(each.get("cx"))) for each in spots]
    assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.2), "decades are equally far apart"
    assert spots[0].get("cy") == spots[1].get("cy") != spots[2].get("cy")
    assert "none" not in text
    assert dots("t", ["one"], [("a", [None])], Axis("ms", log=True)) == ""


def test_a_chart_alone_asks_the_system_whether_it_is_dark() -> None:
    drawn = chart("t", [Series("a", [(0.0, 1.0), (1.0, 2.0)])], Axis("x"), Axis("y"))
    assert "<style>" not in drawn, "it would be the whole page's"
    text = svg.alone(drawn)
    ET.fromstring(text)
    assert "prefers-color-scheme" in text


@pytest.mark.parametrize(
    ("values", "ticks"),
    [((3.0, 40.0), [5, 10, 20]), ((1.0, 1e4), [1, 10, 100, 1000, 10000]), ((3.0, 4.0), [3, 4])],
)
def test_few_decades_have_more_ticks(values: tuple[float, ...], ticks: list[float]) -> None:
    assert svg.Scale(values, Axis("x", log=True), 0, 1).ticks() == pytest.approx(ticks)


def test_the_two_workloads_of_the_paper_are_one_population() -> None:
    """Each pipeline counts as much, however many of its calls there was time for."""
    slow, quick = Histogram([8000] * 10), Histogram([1000] * 990)
    assert together.percentile([(slow, 250.0), (quick, 250.0)], 0.5) == pytest.approx(
        1000, rel=0.02
    )
    assert together.percentile([(slow, 250.0), (quick, 250.0)], 0.51) == pytest.approx(
        8000, rel=0.02
    )
    assert together.percentile([(slow, 1.0), (quick, 99.0)], 0.98) == pytest.approx(1000, rel=0.02)
    made = [
        Record("latency", name, "pretzel", f"{kind}_p50", 1.0, "µs", histogram=times.as_json())
        for name, times in (("sa", slow), ("ac", quick))
        for kind in ("hot", "cold")
    ]
    made += [Record("load_time", name, "pretzel", "all", 0.25, "s", 250.0) for name in ("sa", "ac")]
    about = {**ABOUT, "specs": [{"name": name, "count": 250} for name in ("sa", "ac")]}
    found = together.together(Figures(Read(about, tuple(made))))
    assert found.title == "SA and AC together, 500 pipelines"
    name, *cells = found.rows[0]
    assert (name, cells[2], cells[-2:]) == ("Pretzel", "8", ["–", "0.5"])
    assert not together.together(Figures(run())).rows, "it has neither of them"


def test_what_was_measured_in_other_ways_is_on_the_charts() -> None:
    """Ours without the object store, and servers, which are no contestants."""
    made = [
        Record("memory", "sa", who, "pss", size, "MiB", count)
        for who, size in (("pretzel", 60.0), ("pretzel_unshared", 300.0))
        for count in (1.0, 250.0)
    ]
    made += [Record("end_to_end", "lin", "mlserver", "rate", 1000.0, "requests/s", 16.0)]
    figures = Figures(Read(ABOUT, tuple(made)))
    drawn = plots.plots(figures)
    assert "Pretzel, no object store" in drawn["memory-sa"]
    assert "MLServer" in drawn["http-rate"]
    assert "| Pretzel, no object store | 300 | 300 |" in markdown.page(figures)


def test_charts_leave_out_what_a_logarithm_cannot_show() -> None:
    assert chart("t", [Series("a", [(0.0, 1.0)])], Axis("x", log=True), Axis("y")) == ""
    assert "circle" in chart("t", [Series("a", [(0.0, 1.0)])], Axis("x"), Axis("y"))


def test_comparing_leaves_noise_out() -> None:
    ours = sum(each.contestant == "pretzel" and bool(each.value) for each in records())
    text = compared(run(), run(factor=1.05))
    assert f"0 of our {ours} figures differ. What is within 10% is noise" in text
    assert "|" not in text
    text = compared(run(), run(factor=1.5))
    assert "latency lin pretzel hot_p99, µs | 3 | 4.5 | 1.50" in text
    assert "sklearn" not in text


def test_comparing_says_what_is_the_machines_doing() -> None:
    def one(micros: float) -> Read:
        return Read(ABOUT, (Record("latency", "lin", "sklearn", "hot_p50", micros, "µs"),))

    text = compared(one(100.0), one(200.0))
    assert "0 of our 0 figures differ" in text
    assert "Of others' 1 figures, whose code is the same, 1 differ" in text


def test_overlapping_spreads_are_noise() -> None:
    def one(value: float, low: float, high: float) -> Read:
        item = Record("latency", "lin", "pretzel", "hot_p50", value, "µs", low=low, high=high)
        return Read(ABOUT, (item,))

    assert "0 of our 1" in compared(one(10, 5, 20), one(15, 9, 25))
    assert "1 of our 1" in compared(one(10, 9, 11), one(15, 14, 16))


def test_written_runs_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    made = results.Run(path, ABOUT)
    for each in records():
        made.add(each)
    made.add(Record("latency", "lin", "pretzel", "hot_p50", 7.0, "µs"))  # the later one counts
    made.close()
    read = results.read(path)
    assert read.about == ABOUT
    assert len(read.records) == len(records())
    assert Figures(read).value("latency", "lin", "pretzel", "hot_p50") == 7.0
    files = write([path])
    assert (tmp_path / "one" / "report.html") in files
    assert (tmp_path / "one" / "latency-lin.svg") in files


def test_the_documents_have_a_place_for_it() -> None:
    for page in (SUMMARY, PERFORMANCE):
        assert page.read_text(encoding="utf-8").count(markdown.BEGIN) == 1
        assert page.read_text(encoding="utf-8").count(markdown.END) == 1
    text = markdown.short(Figures(run()))
    assert text.startswith("## Measured\n")
    assert "| scikit-learn | all | 500x | 500x | 500x | 500x | 500x |" in text
    assert "\n- LIN: 3 linear\n" in text
    assert "| Pretzel itself |  | 1 µs | 3 µs | 10,000,000 rows/s | 3 MiB | 0.001 s |" in text
    assert "behind" not in text
    assert "2026-01-02" in text
    assert "- Memory: Pretzel is behind ort on LIN (0.5x)." in markdown.short(
        Figures(run(factor=8))
    )


def test_a_row_says_on_which_workloads_it_was_measured() -> None:
    more = [
        Record("latency", name, "pretzel", metric, micros, "µs")
        for name, micros in (("sa", 4.0), ("gbt", 20.0))
        for metric in ("hot_p50", "hot_p99")
    ]
    more.append(Record("latency", "sa", "sklearn", "hot_p50", 800.0, "µs"))
    text = markdown.short(Figures(Read(ABOUT, (*records(), *more))))
    assert "| Pretzel itself |  | 1 to 20 µs | 3 to 20 µs |" in text
    assert "| scikit-learn | SA, LIN | 316x | 500x |" in text
    assert "| ort | LIN |" in text


def test_the_summary_has_a_column_for_processors_without_avx512() -> None:
    lesser = [
        replace(each, contestant="pretzel_v3", value=2 * (each.value or 0.0))
        for each in records()
        if each.contestant == "pretzel" and each.experiment == "latency"
    ]
    ours = {"pretzel": "Pretzel", "pretzel_v3": "Pretzel (x86-64-v3)", "sklearn": "scikit-learn"}
    about = {**ABOUT, "contestants": ours}
    text = markdown.short(Figures(Read(about, (*records(), *lesser))))
    assert "| times ours | measured on | one row, median | one row, median, AVX2 |" in text
    assert "| Pretzel itself |  | 1 µs | 2 µs |" in text
    assert "| scikit-learn | all | 500x | 250x |" in text
    assert "| Pretzel (x86-64-v3)" not in text
    assert "behind" not in text  # ours for AVX2 is no other contestant
    assert "x86-64-v3" in text
    about["machine"] = {**ABOUT["machine"], "vectors": "AVX2"}  # type: ignore[dict-item]
    alone = markdown.short(Figures(Read(about, (*records(), *lesser))))
    assert "| times ours | measured on | one row, median | one row, 99th percentile |" in alone
    assert "x86-64-v3" not in alone


def test_documents_take_a_run_twice_as_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On copies, and only between their marks."""
    (tmp_path / "docs").mkdir()
    pages = [tmp_path / SUMMARY.name, tmp_path / "docs" / PERFORMANCE.name]
    for page, source in zip(pages, (SUMMARY, PERFORMANCE), strict=True):
        page.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    before = [page.read_text(encoding="utf-8") for page in pages]
    monkeypatch.setattr("bench.report.SUMMARY", pages[0])
    monkeypatch.setattr("bench.report.PERFORMANCE", pages[1])
    path = tmp_path / "one.jsonl"
    made = results.Run(path, ABOUT)
    for each in records():
        made.add(each)
    made.close()
    assert set(pages) <= set(write([path], docs=True))
    charts = tmp_path / "docs" / markdown.CHARTS
    assert not list(charts.glob("*.svg")), "those of one workload but SA and AC stay out"
    once = [page.read_text(encoding="utf-8") for page in pages]
    write([path], docs=True)
    assert [page.read_text(encoding="utf-8") for page in pages] == once
    for old, new in zip(before, once, strict=True):
        assert re.search(r"\| scikit-learn \| (all \| )?500x \|", new)
        for mark, side in ((markdown.BEGIN, 0), (markdown.END, -1)):
            assert new.split(mark)[side] == old.split(mark)[side]


def test_documents_show_the_charts_they_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").mkdir()
    summary, page = tmp_path / SUMMARY.name, tmp_path / "docs" / PERFORMANCE.name
    for each in (summary, page):
        each.write_text(f"{markdown.BEGIN}{markdown.END}", encoding="utf-8")
    monkeypatch.setattr("bench.report.SUMMARY", summary)
    monkeypatch.setattr("bench.report.PERFORMANCE", page)
    page.write_text(f"{markdown.BEGIN}![x](../charts/memory-old.svg){markdown.END}", "utf-8")
    (tmp_path / "charts").mkdir()
    for name in ("memory-old", "placement-rate"):
        (tmp_path / "charts" / f"{name}.svg").touch()
    made = results.Run(tmp_path / "one.jsonl", ABOUT)
    for count in (1.0, 250.0):
        for metric in ("pss", "added"):
            made.add(Record("memory", "sa", "pretzel", metric, 60.0 + count, "MiB", count))
    made.close()
    write([made.path], docs=True)
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text("utf-8"))
    assert shown == ["../charts/memory-sa.svg"]
    left = {each.name for each in (tmp_path / "charts").iterdir()}
    assert left == {"memory-sa.svg", "placement-rate.svg"}, "that of another page stays"


def test_curves_have_no_more_points_than_can_be_seen() -> None:
    points = [(place / 100, float(place % 2)) for place in range(100_000)]
    assert len(chart("t", [Series("a", points)], Axis("x"), Axis("y", log=True))) < 20_000
    flat = chart("t", [Series("a", [(float(x), x * 1e-9) for x in range(5)])], Axis("x"), Axis("y"))
    assert flat.count("<circle") == 5


def test_text_goes_between_the_marks_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{markdown.BEGIN}\nold\n{markdown.END}\nafter\n", encoding="utf-8")
    markdown.put(page, "new")
    text = f"before\n{markdown.BEGIN}\nnew\n{markdown.END}\nafter\n"
    assert page.read_text(encoding="utf-8") == text
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(LookupError, match="no place for it"):
        markdown.put(page, "new")
