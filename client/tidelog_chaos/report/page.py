"""The report as one self-contained HTML page, with styles, script and data. Its text is in ``page.html``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from tidelog_chaos.report.availability import NO_FAULT, Window
from tidelog_chaos.report.chart import colours, steps_of, timeline
from tidelog_chaos.report.run import Run
from tidelog_chaos.report.series import Latency
from tidelog_chaos.report.summary import about_line, failover, good_words, operation_line
from tidelog_chaos.report.table import clock, milliseconds
from tidelog_chaos.verdict import DESCRIPTIONS, Case

_LONGEST = 20
_FIRST_CASES, _SHOWN_CASES = 3, 32


def write_page(run: Run, path: Path) -> None:
    """Write the page of a run."""
    path.write_text(page(run), encoding="utf-8")


def page(run: Run) -> str:
    """Return the page of a run."""
    resources = files("tidelog_chaos.report")
    template, style, script = (
        resources.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    headline, sentence = _headline(run)
    settings = {name: value for name, value in run.about.items() if name not in ("plan", "outcome")}
    return (
        Environment(autoescape=True, undefined=StrictUndefined)
        .from_string(template)
        .render(
            run=run,
            headline=headline,
            sentence=sentence,
            about=about_line(run),
            tiles=_tiles(run),
            longest=sorted(run.windows, key=lambda window: -window.duration_ms)[:_LONGEST],
            colours=sorted(colours(run.leaders).items()),
            timeline=timeline(run),
            settings=json.dumps(settings, indent=2) if run.about else "",
            data=_embedded(_data(run)),
            style=style,
            script=script,
            descriptions=DESCRIPTIONS,
            first_cases=_FIRST_CASES,
            most_cases=_SHOWN_CASES,
            lines_behind=_lines_behind,
            reason=_reason,
            clock=clock,
            milliseconds=milliseconds,
        )
    )


def _headline(run: Run) -> tuple[str, str]:
    if not run.verdict.valid:
        return "Not valid", "The history has anomalies. The operations behind them are below."
    if run.problems:
        return "Valid, but the run went wrong", f"In the history there is {good_words(run.verdict)}."
    return "Valid", f"{good_words(run.verdict).capitalize()}."


def _tiles(run: Run) -> Sequence[tuple[str, str, str]]:
    statistics = run.verdict.statistics
    values = statistics.get("values", {})
    operations = statistics.get("operations", {})
    unknown = sum(operations.get(function, {}).get("info", 0) for function in ("send", "txn"))
    latency = run.latency.get("all")
    again = failover(run)
    return (
        ("acknowledged", f"{values.get('acknowledged', 0):,}", f"{run.series.acknowledged_per_s:,.0f} per second"),
        ("read back", f"{values.get('read', 0):,}", f"from {statistics.get('keys', 0):,} partitions"),
        ("outcome unknown", f"{unknown:,}", "sends: written or not, both are right"),
        ("send latency, p99", _duration(latency, 1), f"median {_duration(latency, 0)}, max {_duration(latency, 2)}"),
        ("faults", f"{len(run.faults):,}", f"{len(run.windows):,} times a partition was unavailable"),
        ("writable again, p99", _duration(again, 1), f"from a fault's begin; max {_duration(again, 2)}"),
    )


def _duration(numbers: Latency | None, place: int) -> str:
    return milliseconds(None if numbers is None else numbers[place])


def _lines_behind(case: Case) -> list[str]:
    """Return the operations behind a finding, or the content of the replicas."""
    lines = [operation_line(op) for op in case.get("ops", ())]
    return lines + [f"{node}: {entry or 'nothing'}" for node, entry in case.get("replicas", {}).items()]


def _reason(window: Window) -> str:
    if window.fault is None:
        return NO_FAULT
    return f"after {window.fault.what}" if window.after else window.fault.what


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
