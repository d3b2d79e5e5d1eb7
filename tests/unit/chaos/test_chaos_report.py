"""The report of a run: windows and their faults, leaders, the summary, a page that needs nothing else."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tidelog_chaos.checker.transactions import read_transactions
from tidelog_chaos.history import HistoryWriter, InvalidHistoryError, Op, OpType
from tidelog_chaos.metrics import distribution
from tidelog_chaos.report import read_replicas, read_run, summary_lines, write_page
from tidelog_chaos.report.availability import Fault, Window, find_windows, impacts, read_faults
from tidelog_chaos.report.page import page
from tidelog_chaos.report.series import Reign, latency_of, make_series, read_leaders
from tidelog_chaos.report.table import clock, milliseconds, table_lines

S = 1_000_000_000
VOID = {"meta", "rect", "line", "path", "br"}


def sends(*lines: tuple[float, float, OpType], key: str = "k") -> list[Op]:
    """Return sends of (invoked, completed, outcome), in seconds, each by a process of its own."""
    events: list[tuple[float, int, OpType]] = []
    for number, (invoked_s, completed_s, outcome) in enumerate(lines):
        events += [(invoked_s, number, "invoke"), (completed_s, number, outcome)]
    return [
        Op(index, number, kind, "send", [["send", key, number]], int(time_s * S))
        for index, (time_s, number, kind) in enumerate(sorted(events))
    ]


def windows(ops: Sequence[Op], *faults: Fault) -> list[tuple[float, float, bool, str]]:
    found = find_windows(read_transactions(ops), faults)
    return [(w.start_ns / S, w.end_ns / S, w.is_open, w.label) for w in found]


def fault(start_s: float, end_s: float, name: str = "kill", kind: str = "leader") -> Fault:
    return Fault(name, kind, f"{name} node 1", int(start_s * S), int(end_s * S))


def test_window_is_from_the_last_acknowledgement_to_the_next() -> None:
    ops = sends((0, 0.01, "ok"), (1, 1.01, "ok"), (1.1, 4, "ok"), (4, 4.01, "ok"))
    assert windows(ops, fault(1.05, 6)) == [(1.01, 4, False, "kill leader")]


def test_window_is_one_for_all_sends_that_wait_or_are_refused() -> None:
    ops = sends((0, 0.01, "ok"), (0.1, 2, "info"), (0.2, 0.3, "fail"), (0.3, 3, "info"), (2.5, 3.5, "ok"))
    assert windows(ops) == [(0.01, 3.5, False, "no fault")]


def test_pause_without_trouble_is_no_window() -> None:
    assert windows(sends((0, 0.01, "ok"), (9, 9.01, "ok"), (20, 20.2, "ok"))) == []


def test_send_that_hangs_while_others_come_through_makes_no_window() -> None:
    ops = sends(
        (0, 0.01, "ok"), (0.02, 30, "info"), (1, 1.01, "ok"), (5, 5.01, "ok"), (29, 29.1, "ok"), (31, 31.1, "ok")
    )
    assert windows(ops) == []


def test_window_that_does_not_end_is_open() -> None:
    assert windows(sends((0, 0.01, "ok"), (1, 3, "info"))) == [(0.01, 3, True, "no fault")]
    assert windows(sends((0, 0.01, "ok"), (1, 3, "fail"), (2, 9, "info"))[:-1]) == [(0.01, 3, True, "no fault")]


def test_window_belongs_to_the_fault_that_began_nearest_to_it() -> None:
    ops = sends((0, 1, "ok"), (1.1, 4, "ok"))
    assert windows(ops, fault(0, 9, "slow"), fault(1.02, 3), fault(3, 9, "pause"))[-1][3] == "kill leader"
    assert windows(ops, fault(0, 0.5))[-1][3] == "after kill leader"
    assert windows(ops, fault(5, 6))[-1][3] == "no fault"


def test_recovery_is_told_where_the_fault_began_with_the_window() -> None:
    ops = sends((0.9, 1, "ok"), (1.1, 4, "ok"), (4.1, 8, "ok"))
    found = find_windows(read_transactions(ops), [fault(1.5, 9)])
    assert [window.recovery_ms for window in found] == [pytest.approx(2_500), None]
    [impact] = impacts(found, [fault(1.5, 9)])
    assert (impact.faults, impact.windows, impact.open_windows) == (1, 2, 0)
    assert impact.unavailable_ms == pytest.approx((3_000, 4_000, 4_000))
    assert impact.recovery_ms == pytest.approx((2_500, 2_500, 2_500))


def test_impacts_list_faults_that_did_nothing_and_windows_without_a_fault() -> None:
    found = impacts([Window("k", 0, S, is_open=True)], [fault(5, 6)])
    assert [(impact.label, impact.faults, impact.windows, impact.open_windows) for impact in found] == [
        ("no fault", 0, 1, 1),
        ("kill leader", 1, 0, 0),
    ]


def test_faults_are_paired_and_last_to_the_end_when_nobody_heals_them() -> None:
    def note(time_s: int, f: str, value: Any) -> Op:
        return Op(time_s, "nemesis", "info", f, value, time_s * S)

    first, second = {"kind": "leader", "what": "kill node 1"}, {"kind": "all", "what": "kill all"}
    found = read_faults(
        [
            note(1, "start-kill", first),
            note(2, "start-kill", second),
            note(3, "stop-kill", second),
            note(4, "start-disk-full", ["node 1"]),
            note(5, "skip-pause", None),
            note(6, "stop-kill", first),
            note(7, "stop-pause", None),
            note(8, "end", None),
        ]
    )
    assert [(f.label, f.what, f.start_ns // S, f.end_ns // S) for f in found] == [
        ("kill leader", "kill node 1", 1, 6),
        ("kill all", "kill all", 2, 3),
        ("disk-full", "disk-full node 1", 4, 8),
    ]


def test_distribution_is_by_the_nearest_rank() -> None:
    assert distribution([]) is None
    assert distribution([3.0]) == (3.0, 3.0, 3.0)
    assert distribution(float(number) for number in range(1, 201)) == (100, 198, 200)


def test_leaders_are_rows_of_reigns() -> None:
    def line(time_s: float, controller: int | None, **leaders: int | None) -> dict[str, Any]:
        return {"time": time_s, "leaders": leaders, "controller": controller}

    found = read_leaders(
        [
            {"time": 1, "leaders": None},
            line(2, 1, a=1, b=2),
            line(3, 1, a=2, b=2),
            line(4, None, a=None, b=2),
            line(5, 2, c=3, d=1),
        ]
    )
    assert found.rows == [
        [Reign(1, 2, 1, "a"), Reign(2, 3, 2, "a"), Reign(3, 4, None, "a"), Reign(4, 5, 3, "c")],
        [Reign(1, 4, 2, "b"), Reign(4, 5, 1, "d")],
    ]
    assert (found.nodes, found.moves, found.controller_moves) == ([1, 2, 3], 1, 1)


def test_series_counts_values_by_the_second_in_which_their_send_was_over() -> None:
    ops = sends((0, 0.5, "ok"), (0, 1.5, "ok"), (0, 1.6, "info"), (1, 3.2, "fail"), (3, 9, "info"))[:-1]
    series = make_series(read_transactions(ops))
    assert [(step.ok, step.info, step.fail) for step in series.steps] == [(1, 0, 0), (1, 1, 0), (0, 0, 0), (0, 0, 1)]
    assert series.steps[1].latency == pytest.approx((1_500, 1_500, 1_500))
    assert (series.step_s, series.end_s, series.acknowledged_per_s) == (1, 4, 1.0)
    latency = latency_of(read_transactions(ops), [(S, 2 * S)])
    assert latency["faults"] == pytest.approx((1_500,) * 3)
    assert latency["calm"] == pytest.approx((500,) * 3)


def test_series_of_a_long_history_has_longer_steps() -> None:
    series = make_series(read_transactions(sends((0, 0.1, "ok"), (86_000, 86_399, "ok"))))
    assert len(series.steps) <= 901
    assert series.step_s == 120


def test_numbers_are_written_for_people() -> None:
    assert [milliseconds(value) for value in (None, 4.23, 310.4, 3_020)] == ["-", "4.2 ms", "310 ms", "3.02 s"]
    assert [clock(value) for value in (7, 750, 3_723)] == ["0:07", "12:30", "1:02:03"]
    assert table_lines(("A", "BB"), [("x", "1"), ("yyy", "22")]) == ["A    BB", "x     1", "yyy  22"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A run with a fault, a window, a lost value and a name that is not to be taken for HTML."""
    ticks = iter(range(0, 10**12, S // 2))
    with HistoryWriter(tmp_path / "history.jsonl", clock=lambda: next(ticks)) as history:
        for value in range(4):
            invocation = history.invoke(0, "send", [["send", "<k>&0", value]])
            if value == 2:
                history.note("start-kill", {"kind": "leader", "members": ["node 1"], "what": "kill </script> node 1"})
            history.complete(invocation, "ok", [["send", "<k>&0", [value, value]]])
        history.note("stop-kill", {"kind": "leader", "members": ["node 1"], "what": "kill </script> node 1"})
        poll = history.invoke(1, "poll", [["poll"]])
        history.complete(poll, "ok", [["poll", {"<k>&0": [[0, 0], [1, 1], [3, 3]]}]])
    metrics = [{"time": t, "leaders": {"<k>&0": 1 + t // 3}, "controller": 2 if t > 1 else None} for t in range(1, 6)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics) + '{"time": 6, "lea')
    about = {
        "seed": 7,
        "faults": ["kill"],
        "driver": "local",
        "client": "confluent-kafka",
        "settings": {"driver": "local", "controllers": 3, "nodes": 3},
        "versions": {"tidelog": "1.0"},
        "outcome": {"problems": ["node 2 ended with code 1"], "phases_s": {"faults": 1.0, "recovery": 4.0}},
    }
    (tmp_path / "run.json").write_text(json.dumps(about))
    (tmp_path / "replicas.json").write_text(json.dumps({"replicas": {"<k>&0": {"1": ["0-3:aa"], "2": ["0-3:ab"]}}}))
    return tmp_path


def test_summary_says_what_was_found_and_what_the_faults_did(directory: Path) -> None:
    run = read_run(directory)
    assert not run.is_good
    lines = list(summary_lines(run))
    text = "\n".join(lines)
    assert lines[0] == "NOT VALID: lost-write 1, unseen 1, int-poll-skip 1, divergent-replicas 1"
    assert (
        lines[1] == "seed 7, faults kill, 3 controllers and 3 nodes, driver local, client confluent-kafka, tidelog 1.0"
    )
    assert re.search(r"^send +4 +0 +0$", text, re.MULTILINE)
    assert re.search(r"^kill leader +1 +2 +1\.00 s +1\.50 s +1\.50 s +500 ms +500 ms +500 ms$", text, re.MULTILINE)
    assert "partitions got another leader 1 times, the controllers 0 times" in text
    assert "  <k>&0: value 2 at offset 2 was never polled, though offset 3 was" in lines
    assert "problem: node 2 ended with code 1" in lines


def test_verdict_of_a_run_is_taken_from_its_file(directory: Path) -> None:
    (directory / "verdict.json").write_text('{"valid": true, "anomalies": {}, "permitted": {}}')
    run = read_run(directory)
    assert run.verdict.valid
    assert not run.is_good
    assert next(iter(summary_lines(run))) == "VALID, but the run went wrong: node 2 ended with code 1"


def test_history_alone_has_a_report(directory: Path, tmp_path: Path) -> None:
    for name in ("run.json", "metrics.jsonl", "replicas.json"):
        (directory / name).unlink()
    run = read_run(directory)
    write_page(run, tmp_path / "page.html")
    assert list(run.verdict.anomalies) == ["lost-write", "unseen", "int-poll-skip"]
    assert "leaders" not in "".join(re.findall(r"<text.*?</text>", (tmp_path / "page.html").read_text()))


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("run.json", "{", "run.json is not JSON"),
        ("run.json", "[]", "run.json is not a JSON object"),
        ("verdict.json", "{}", "verdict.json has no verdict"),
        ("replicas.json", '{"a": 1}', "replicas.json does not say"),
        ("replicas.json", '{"a": {"1": 7}}', "replicas.json does not say"),
        ("replicas.json", '{"a": {"1": "0-3:aa"}}', "replicas.json does not say"),
        ("replicas.json", '{"a": {"1": [7]}}', "replicas.json does not say"),
        ("metrics.jsonl", "{\n{}\n", "metrics.jsonl, line 1 is not JSON"),
        ("history.jsonl", "{\n", "line 1: not JSON"),
    ],
)
def test_file_that_is_none_is_named(directory: Path, name: str, content: str, text: str) -> None:
    (directory / name).write_text(content)
    with pytest.raises(InvalidHistoryError, match=re.escape(text)):
        read_run(directory)


def test_replicas_are_read_with_and_without_what_is_around_them(tmp_path: Path) -> None:
    path = tmp_path / "replicas.json"
    path.write_text('{"k": {"1": ["a"]}}')
    assert read_replicas(path) == {"k": {"1": ["a"]}}
    path.write_text('{"high_watermarks": {"k": 1}, "replicas": {"k": {"1": ["a"]}}}')
    assert read_replicas(path) == {"k": {"1": ["a"]}}


class Tags(HTMLParser):
    """Fails when elements do not nest, and collects what the page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.headings += [tag] if re.fullmatch("h[1-6]", tag) else []
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "srcset", "action"):
                self.references.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_page_is_whole_and_needs_nothing_else(directory: Path) -> None:
    text = page(read_run(directory))
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.references == []
    assert "url(" not in text
    assert "@import" not in text
    assert len(tags.ids) == len(set(tags.ids))
    assert set(re.findall(r'aria-labelledby="([^"]+)"', text)) <= set(tags.ids)
    assert tags.headings[0] == "h1"
    assert "<k>" not in text
    assert "kill </script>" not in text


def test_page_says_at_its_top_what_was_found_and_shows_what_the_replicas_have(directory: Path) -> None:
    text = page(read_run(directory))
    header, _, rest = text.partition("</header>")
    assert "<b>lost-write</b> 1: an acknowledged value was passed over by all readers" in header
    assert "<b>divergent-replicas</b> 1: replicas differ below the high watermark" in header
    assert "node 2 ended with code 1" in header
    assert "<pre>1: 0-3:aa\n2: 0-3:ab</pre>" in rest
    assert '<span class="key node1"></span>2 leads</span>' in rest


def test_kind_of_a_fault_stands_in_its_bar_where_there_is_room(directory: Path) -> None:
    assert page(read_run(directory)).count('class="fault-name"') == 1
    text = (directory / "history.jsonl").read_text()
    (directory / "history.jsonl").write_text(text.replace('"kind":"leader"', f'"kind":"{"x" * 200}"'))
    assert 'class="fault-name"' not in page(read_run(directory))


@pytest.mark.parametrize("lines", ["", '{"process":"nemesis","type":"info","f":"start-kill","value":["node 1"]}\n'])
def test_run_without_operations_has_a_page_and_a_summary(tmp_path: Path, lines: str) -> None:
    (tmp_path / "history.jsonl").write_text(lines)
    run = read_run(tmp_path)
    assert "No send was acknowledged: there was nothing to lose." in page(run)
    text = "\n".join(summary_lines(run))
    assert text.startswith("VALID: no anomaly was found\n")
    assert "SEND LATENCY" not in text


def test_pages_timeline_and_data_can_be_read(directory: Path) -> None:
    text = page(read_run(directory))
    svg = re.search(r"<svg.*</svg>", text, re.DOTALL)
    assert svg is not None
    drawn = ElementTree.fromstring(svg[0])
    assert drawn.attrib["role"] == "img"
    titles = [title.text for title in drawn.iter("title")]
    assert "kill </script> node 1, from 0:03 for 2.00 s" in titles
    assert "<k>&0: 2 leads, 0:02 to 0:05" in titles
    for element in drawn.iter("rect"):
        assert float(element.attrib["x"]) >= 0
        assert float(element.attrib["height"]) >= 0
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    shown = json.loads(data[1])
    assert shown["faults"] == [[3.0, 5.0, "kill </script> node 1"]]
    assert sum(step[0] for step in shown["steps"]) == 4
