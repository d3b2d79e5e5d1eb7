import json
import platform
from pathlib import Path

import pytest

from benchmarks.machine import facts
from benchmarks.page import with_table
from benchmarks.result import Bar, Result
from benchmarks.rounds import Rounds, alternate, quantile
from benchmarks.suite import benchmark_names
from benchmarks.table import make_console, print_results, write_results


@pytest.mark.parametrize(
    ("bar", "holds"),
    [
        (None, None),
        (Bar.on_ratio(at_least=0.6), True),
        (Bar.on_ratio(at_least=0.61), False),
        (Bar.on_value(at_most=50), True),
        (Bar.on_value(at_most=49.9), False),
        (Bar.on_value(at_least=50), True),
        (Bar.on_value(at_least=50.1), False),
    ],
)
def test_result_holds_on_its_side_of_the_bar(bar: Bar | None, holds: bool | None) -> None:
    assert Result("open", 50, "ms", "before", 0.6, bar).holds is holds


def test_result_without_ratio_is_refused_when_the_bar_is_on_it() -> None:
    with pytest.raises(AssertionError, match="no ratio"):
        _ = Result("open", 50, "ms", bar=Bar.on_ratio(at_least=1)).holds


def test_speed_ratio_is_the_median_of_the_rounds_not_the_ratio_of_medians() -> None:
    rounds = Rounds({"ours": [1.0, 10.0, 2.0], "theirs": [2.0, 20.0, 2.0]})

    assert rounds.speed_ratio("ours", "theirs") == 2.0
    assert rounds.median("ours") == 2.0


def test_alternate_runs_all_in_each_round_and_turns_the_order_about() -> None:
    ran: list[str] = []

    def variant(name: str) -> float:
        ran.append(name)
        return float(len(ran))

    rounds = alternate({name: lambda name=name: variant(name) for name in "ab"}, rounds=2, warm_up=1)

    assert "".join(ran) == "abbaab"
    assert rounds.seconds == {"a": [4.0, 5.0], "b": [3.0, 6.0]}


def test_quantile_of_a_few_values_is_one_of_them() -> None:
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([3, 1, 2], 0.99) == 3


def test_table_says_what_does_not_hold_and_counts_it(capsys: pytest.CaptureFixture[str]) -> None:
    slow = Result("append", 2.0, "us", "os.write", 0.5, Bar.on_ratio(at_least=0.6))
    small = Result("memory", 56, "MB", bar=Bar.on_value(at_most=150))

    print_results(make_console(), [[slow], [small, Result("files", 1021, "files")]])

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["append", "2", "us", "os.write", "0.50", "at", "least", "0.6", "x", "no"]
    assert lines[-1] == "3 results, 1 of 2 bars hold; not: append"


def test_results_file_has_the_machine_and_a_row_per_result_without_host_or_path(tmp_path: Path) -> None:
    write_results(tmp_path / "latest.json", facts(quick=True), [Result("files", 1021, "files")])

    text = (tmp_path / "latest.json").read_text()
    document = json.loads(text)
    missing = dict.fromkeys(("compared_with", "ratio", "bar", "holds"))
    assert document["results"] == [{"name": "files", "value": 1021, "unit": "files", **missing}]
    assert {"cpu", "python", "date", "revision", "compiled_engine"} <= set(document["machine"])
    assert str(Path.home()) not in text
    assert platform.node() not in text


def test_benchmarks_are_found_by_their_file_names() -> None:
    assert {"log", "node", "recovery", "scale"} <= set(benchmark_names())


def test_page_keeps_its_words_and_gets_the_table_between_the_markers_of_that_name() -> None:
    begin, end = "<!-- rates: written by python -m benchmarks.page -->", "<!-- end of rates -->"
    page = f"# Rates\n{begin}\nold\n{end}\nWhat bounds each"

    assert with_table(page, "rates", "| new |\n") == f"# Rates\n{begin}\n| new |\n{end}\nWhat bounds each"
    with pytest.raises(SystemExit, match="missing markers"):
        with_table(page, "costs", "| new |")
