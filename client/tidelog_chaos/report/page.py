"""The report as one self-contained HTML page, with styles, script and data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from tidelog_chaos.report.availability import NO_FAULT, Impact, Window
from tidelog_chaos.report.chart import colours, steps_of, timeline
from tidelog_chaos.report.run import Run
from tidelog_chaos.report.series import Latency, Leaders
from tidelog_chaos.report.summary import about_line, failover, good_words, operation_line
from tidelog_chaos.report.table import clock, milliseconds
from tidelog_chaos.verdict import DESCRIPTIONS, Case

_LONGEST = 20
_FIRST_CASES, _SHOWN_CASES = 3, 32
_NONE = "-"
_NEWLINE = "\n"


def write_page(run: Run, path: Path) -> None:
    """Write the page of a run."""
    path.write_text(page(run), encoding="utf-8")


def page(run: Run) -> str:
    """Return the page of a run."""
    resources = files("tidelog_chaos.report")
    style, script = (resources.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(run.name)}: {'valid' if run.is_good else 'not valid'}</title><style>{style}</style></head>"
        f"<body><main>{''.join(_sections(run))}</main>"
        f'<script type="application/json" id="data">{_embedded(_data(run))}</script>'
        f"<script>{script}</script></body></html>\n"
    )


def _sections(run: Run) -> Iterator[str]:
    yield _header(run)
    yield _tiles(run)
    yield from _findings(run)
    yield _timeline(run)
    yield _availability(run)
    yield from _permitted(run)
    yield _settings(run.about)


def _header(run: Run) -> str:
    if not run.verdict.valid:
        kind, word, sentence = "bad", "Not valid", "The history has anomalies. The operations behind them are below."
    elif run.problems:
        kind, word, sentence = (
            "bad",
            "Valid, but the run went wrong",
            f"In the history there is {good_words(run.verdict)}.",
        )
    else:
        kind, word, sentence = "good", "Valid", f"{good_words(run.verdict).capitalize()}."
    mark = "✓" if kind == "good" else "✗"
    counts = run.verdict.counts.get("anomalies", {})
    found = "".join(
        f"<li><b>{escape(name)}</b> {counts.get(name, len(cases)):,}: {escape(DESCRIPTIONS.get(name, ''))}</li>"
        for name, cases in run.verdict.anomalies.items()
    )
    problems = "".join(f"<li>{escape(problem)}</li>" for problem in run.problems)
    notes = "".join(f"<li>{escape(note)}</li>" for note in run.verdict.notes)
    lists = "".join(f"<ul>{items}</ul>" for items in (found, problems, notes) if items)
    return (
        f'<header class="verdict {kind}"><p class="run">{escape(run.name)}</p>'
        f'<h1><span aria-hidden="true">{mark}</span> {escape(word)}</h1><p>{escape(sentence)}</p>{lists}'
        f'<p class="about">{escape(about_line(run))}</p></header>'
    )


def _tiles(run: Run) -> str:
    statistics = run.verdict.statistics
    values = statistics.get("values", {})
    operations = statistics.get("operations", {})
    unknown = sum(operations.get(function, {}).get("info", 0) for function in ("send", "txn"))
    latency = run.latency.get("all")
    again = failover(run)
    tiles = [
        ("acknowledged", f"{values.get('acknowledged', 0):,}", f"{run.series.acknowledged_per_s:,.0f} per second"),
        ("read back", f"{values.get('read', 0):,}", f"from {statistics.get('keys', 0):,} partitions"),
        ("outcome unknown", f"{unknown:,}", "sends: written or not, both are right"),
        ("send latency, p99", _duration(latency, 1), f"median {_duration(latency, 0)}, max {_duration(latency, 2)}"),
        ("faults", f"{len(run.faults):,}", f"{len(run.windows):,} times a partition was unavailable"),
        ("writable again, p99", _duration(again, 1), f"from a fault's begin; max {_duration(again, 2)}"),
    ]
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd><b>{escape(value)}</b><span>{escape(more)}</span></dd></div>"
        for name, value, more in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def _findings(run: Run) -> Iterator[str]:
    if run.verdict.valid:
        return
    counts = run.verdict.counts.get("anomalies", {})
    yield '<section aria-labelledby="anomalies"><h2 id="anomalies">Anomalies</h2>'
    for name, cases in run.verdict.anomalies.items():
        yield _finding(name, counts.get(name, len(cases)), cases, is_open=True)
    yield "</section>"


def _permitted(run: Run) -> Iterator[str]:
    if not run.verdict.permitted:
        return
    counts = run.verdict.counts.get("permitted", {})
    yield '<section aria-labelledby="permitted"><h2 id="permitted">Permitted</h2>'
    yield "<p>What a correct log may show: it does not make a history invalid.</p>"
    for name, cases in run.verdict.permitted.items():
        yield _finding(name, counts.get(name, len(cases)), cases, is_open=False)
    yield "</section>"


def _finding(name: str, count: int, cases: Sequence[Case], is_open: bool) -> str:
    shown = cases[:_SHOWN_CASES]
    items = [f"<li>{escape(str(case.get('text', '')))}{_behind(case)}</li>" for case in shown]
    first, rest = "".join(items[:_FIRST_CASES]), "".join(items[_FIRST_CASES:])
    if rest:
        start = _FIRST_CASES + 1
        summary = f"{len(items) - _FIRST_CASES:,} more of them"
        rest = f'<details><summary>{summary}</summary><ol start="{start}">{rest}</ol></details>'
    more = f"<p>and {count - len(shown):,} that are counted alone</p>" if count > len(shown) else ""
    meaning = escape(DESCRIPTIONS.get(name, ""))
    return (
        f"<details{' open' if is_open else ''}><summary><b>{escape(name)}</b> <span>{count:,}</span> {meaning}"
        f"</summary><ol>{first}</ol>{rest}{more}</details>"
    )


def _behind(case: Case) -> str:
    """Return the operations behind a finding, or the content of the replicas."""
    lines = [operation_line(op) for op in case.get("ops", ())]
    lines += [f"{node}: {entry or 'nothing'}" for node, entry in case.get("replicas", {}).items()]
    return f"<pre>{escape(_NEWLINE.join(lines))}</pre>" if lines else ""


def _timeline(run: Run) -> str:
    return (
        '<section aria-labelledby="timeline-heading"><h2 id="timeline-heading">Timeline</h2>'
        '<p class="legend"><span class="key ok"></span>acknowledged <span class="key bad"></span>unknown or failed, '
        'partitions that acknowledge nothing <span class="key band"></span>a fault lasts'
        f"{_nodes(run.leaders)}</p>"
        '<div class="chart" id="chart" tabindex="0" role="group" aria-label="Timeline. Left and right arrows move '
        f'through time, what is there is read out."><div class="scroll">{timeline(run)}</div>'
        '<div id="tip" class="tip" hidden></div></div>'
        '<p class="hint">Point at the timeline, or focus it and use the arrow keys, for the numbers of a moment.</p>'
        '<p id="said" class="unseen" aria-live="polite"></p></section>'
    )


def _nodes(leaders: Leaders) -> str:
    """Return the legend of the leaders' colours."""
    return "".join(
        f' <span class="entry"><span class="key node{colour}"></span>{node} leads</span>'
        for node, colour in sorted(colours(leaders).items())
    )


def _availability(run: Run) -> str:
    if not run.impacts:
        return (
            '<section aria-labelledby="availability"><h2 id="availability">Availability</h2><p>There were no '
            "faults, and every partition acknowledged all the time.</p></section>"
        )
    return (
        '<section aria-labelledby="availability"><h2 id="availability">Availability</h2>'
        "<p>A window is the time in which a partition acknowledged nothing although a send waited or was refused: from "
        "the last acknowledgement before to the first one after. <i>Writable again</i> counts from the begin of the "
        f"fault.</p>{_impacts(run.impacts)}{_longest(run.windows)}</section>"
    )


def _impacts(impacts: Sequence[Impact]) -> str:
    ranks = '<th scope="col">p50</th><th scope="col">p99</th><th scope="col">max</th>'
    head = (
        '<tr><th rowspan="2" scope="col">fault</th><th rowspan="2" scope="col">faults</th>'
        '<th rowspan="2" scope="col">windows</th><th colspan="3" scope="colgroup">unavailable</th>'
        '<th colspan="3" scope="colgroup">writable again</th></tr>'
        f"<tr>{ranks * 2}</tr>"
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(impact.label)}</th><td>{impact.faults or _NONE}</td><td>{_count(impact)}</td>'
        f"{_cells(impact.unavailable_ms)}{_cells(impact.recovery_ms)}</tr>"
        for impact in impacts
    )
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _count(impact: Impact) -> str:
    return f"{impact.windows:,}" + (f" ({impact.open_windows:,} did not end)" if impact.open_windows else "")


def _cells(numbers: Latency | None) -> str:
    if numbers is None:
        return f"<td>{_NONE}</td>" * 3
    return "".join(f"<td>{milliseconds(number)}</td>" for number in numbers)


def _longest(windows: Sequence[Window]) -> str:
    if not windows:
        return ""
    longest = sorted(windows, key=lambda window: -window.duration_ms)[:_LONGEST]
    rows = "".join(
        f'<tr><th scope="row">{escape(window.key)}</th><td>{clock(window.start_ns / 1e9)}</td>'
        f"<td>{milliseconds(window.duration_ms)}{' and longer' if window.is_open else ''}</td>"
        f'<td class="text">{escape(_reason(window))}</td></tr>'
        for window in longest
    )
    return (
        f"<details><summary>The {len(longest)} longest windows</summary>"
        '<div class="scroll"><table><thead><tr><th scope="col">partition</th><th scope="col">from</th>'
        '<th scope="col">for</th><th class="text" scope="col">fault</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details>"
    )


def _reason(window: Window) -> str:
    if window.fault is None:
        return NO_FAULT
    return f"after {window.fault.what}" if window.after else window.fault.what


def _settings(about: Mapping[str, Any]) -> str:
    if not about:
        return ""
    told = {name: value for name, value in about.items() if name not in ("plan", "outcome")}
    text = escape(json.dumps(told, indent=2))
    return f"<section><details><summary>Settings</summary><pre>{text}</pre></details></section>"


def _duration(numbers: Latency | None, place: int) -> str:
    return milliseconds(None if numbers is None else numbers[place])


def _data(run: Run) -> dict[str, Any]:
    """Return the script's data of each moment."""
    return {
        "step": run.series.step_s,
        "steps": steps_of(run),
        "faults": [[fault.start_ns / 1e9, fault.end_ns / 1e9, fault.what] for fault in run.faults],
        "windows": [[window.start_ns / 1e9, window.end_ns / 1e9, window.key] for window in run.windows],
        "controller": [[reign.start_s, reign.end_s, reign.leader] for reign in run.leaders.controller],
    }


def _embedded(data: Any) -> str:
    """Return JSON that cannot end its enclosing element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
