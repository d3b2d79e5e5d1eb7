"""The summary of a run, as lines of text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tidelog_chaos.metrics import distribution
from tidelog_chaos.report.availability import Impact
from tidelog_chaos.report.run import Run
from tidelog_chaos.report.series import Latency
from tidelog_chaos.report.table import clock, milliseconds, table_lines
from tidelog_chaos.verdict import DESCRIPTIONS, Case, Verdict

IMPACT_HEADERS = ("FAULT", "FAULTS", "WINDOWS", "P50", "P99", "MAX", "WRITABLE P50", "P99", "MAX")
_LATENCIES = {"all": "all", "faults": "during faults", "calm": "otherwise"}
_SHOWN_CASES = 5
_SHOWN_VALUE = 160


def summary_lines(run: Run) -> Iterator[str]:
    """Yield the verdict, the activity, the availability of the cluster, and the operations behind each anomaly."""
    yield headline(run)
    yield from filter(None, (about_line(run),))
    yield ""
    yield from _work(run)
    yield ""
    yield from _availability(run)
    yield from verdict_lines(run.verdict)
    for problem in run.problems:
        yield f"problem: {problem}"


def headline(run: Run) -> str:
    """Return the verdict in a sentence."""
    if not run.verdict.valid:
        found = (f"{name} {count:,}" for name, count in run.verdict.counts.get("anomalies", {}).items())
        return f"NOT VALID: {', '.join(found)}"
    if run.problems:
        return f"VALID, but the run went wrong: {run.problems[0]}"
    return f"VALID: {good_words(run.verdict)}"


def good_words(verdict: Verdict) -> str:
    """Return the text of a valid verdict, limited to the checks that ran."""
    if not verdict.statistics.get("values", {}).get("acknowledged", 1):
        return "no anomaly was found"
    words = "nothing lost, nothing twice, nothing out of order"
    compared = verdict.statistics.get("partitions_compared", 0)
    return f"{words}, the replicas of {compared:,} partitions are equal" if compared else words


def about_line(run: Run) -> str:
    """Return a line about the run; empty if nothing was recorded."""
    about = run.about
    if not about:
        return ""
    settings = about.get("settings", {})
    parts = [f"seed {about.get('seed', '?')}", f"faults {', '.join(about.get('faults', ())) or 'none'}"]
    if settings.get("driver") in ("local", "netns"):
        parts.append(f"{settings.get('controllers')} controllers and {settings.get('nodes')} nodes")
    parts.append(f"driver {about.get('driver', '?')}")
    if "client" in about:
        parts.append(f"client {about['client']}")
    parts.append(f"tidelog {about.get('versions', {}).get('tidelog', '?')}")
    return ", ".join(parts)


def verdict_lines(verdict: Verdict) -> Iterator[str]:
    """Yield each anomaly with its first findings and the operations behind them, and the notes."""
    for name, cases in verdict.anomalies.items():
        count = verdict.counts.get("anomalies", {}).get(name, len(cases))
        yield ""
        yield f"{name} ({count:,}): {DESCRIPTIONS.get(name, '')}"
        for case in cases[:_SHOWN_CASES]:
            yield f"  {case.get('text', '')}"
            for op in case.get("ops", ()):
                yield f"    {operation_line(op)}"
        if count > _SHOWN_CASES:
            yield f"  and {count - _SHOWN_CASES:,} more"
    for note in verdict.notes:
        yield ""
        yield f"note: {note}"


def operation_line(op: Case) -> str:
    """Return an operation as a line of limited length."""
    value = json.dumps(op.get("value"), separators=(", ", ": "))
    value = value if len(value) <= _SHOWN_VALUE else f"{value[: _SHOWN_VALUE - 1]}…"
    left_out = f" and {op['left_out']:,} records that do not matter" if op.get("left_out") else ""
    error = f" ({op['error']})" if op.get("error") else ""
    time_s = op.get("time", 0) / 1e9
    return f"{op['index']}: {time_s:.3f} s, process {op['process']}, {op['type']} {op['f']} {value}{left_out}{error}"


def failover(run: Run) -> Latency | None:
    """Return the time from the start of a fault until a partition that it hit was written to again."""
    times = (window.recovery_ms for window in run.windows)
    return distribution(time_ms for time_ms in times if time_ms is not None)


def _work(run: Run) -> Iterator[str]:
    statistics = run.verdict.statistics
    operations: Mapping[str, Mapping[str, int]] = statistics.get("operations", {})
    rows = [
        (function, *(f"{counts.get(kind, 0):,}" for kind in ("ok", "info", "fail")))
        for function, counts in operations.items()
    ]
    if rows:
        yield from table_lines(("OPERATIONS", "OK", "UNKNOWN", "FAILED"), rows)
        yield ""
    yield (
        f"throughput  {run.series.acknowledged_per_s:,.0f} values/s acknowledged, over {clock(run.series.end_s)} "
        "from begin to end"
    )
    rows = [(_LATENCIES[name], *_three(latency)) for name, latency in run.latency.items() if latency is not None]
    if rows:
        yield ""
        yield from table_lines(("SEND LATENCY", "P50", "P99", "MAX"), rows)
    yield from _lag(statistics.get("realtime_lag", {}))
    yield from group_lines(statistics.get("group", {}))
    yield from transaction_lines(statistics.get("transactions", {}))
    yield from copy_lines(statistics.get("copies", {}))


def _lag(lag: Mapping[str, Any]) -> Iterator[str]:
    worst = lag.get("worst")
    if worst:
        yield ""
        where = f"process {worst['process']}, {worst['key']}, at {clock(worst['time'] / 1e9)}"
        yield (
            f"readers were at most {milliseconds(worst['lag_ms'])} behind, those that began anew included ({where}); "
            f"p99 at reads {milliseconds(lag.get('p99_ms'))}"
        )


def group_lines(group: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about the members of a consumer group; none without a group."""
    if group:
        settings = group.get("settings", {})
        protocol = settings.get("group.protocol", "classic")
        assignor = settings.get("partition.assignment.strategy") or settings.get("group.remote.assignor")
        how = f"{protocol}, {assignor}" if assignor else protocol
        yield ""
        yield (
            f"group of the protocol {how}: {group['members']:,} members, {group['assignments']:,} assignments in "
            f"{group['generations']:,} generations, {group['logged']:,} offsets committed"
        )


def transaction_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about Kafka's transactions; none without any."""
    if found:
        outcomes = found["outcomes"]
        yield ""
        yield (
            f"{sum(outcomes.values()):,} transactions of {found['producers']:,} producers with "
            f"{found['transactional_ids']:,} transactional ids: {outcomes['ok']:,} committed, {outcomes['fail']:,} "
            f"aborted, {outcomes['info']:,} unknown; {found['outputs']:,} consumed records with output"
        )


def copy_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about a query that copies; none without one."""
    if found:
        kills = ", ".join(f"{kind} {count:,}" for kind, count in found["kills"].items()) or "none"
        yield ""
        yield (
            f"{found['copies']:,} values copied in {found['batches']:,} batches and {found['starts']:,} starts of the "
            f"query; kills: {kills}; at most {found['longest_pause_s']:.1f} s between two batches"
        )
        for error, count in found["failures"].items():
            yield f"the query failed {count:,} times: {error}"


def _availability(run: Run) -> Iterator[str]:
    if run.impacts:
        rows = [_impact_row(impact) for impact in run.impacts]
        yield from table_lines(IMPACT_HEADERS, rows)
        yield "A window is the time in which a partition acknowledged nothing although a send waited or was refused;"
        yield "WRITABLE is the time from the begin of the fault until the partition acknowledged again."
    else:
        yield "no partition was unavailable, and there were no faults"
    if run.leaders.rows:
        yield ""
        yield (
            f"partitions got another leader {run.leaders.moves:,} times, the controllers "
            f"{run.leaders.controller_moves:,} times"
        )


def _impact_row(impact: Impact) -> tuple[str, ...]:
    windows = f"{impact.windows:,}" + (f" ({impact.open_windows:,} open)" if impact.open_windows else "")
    faults = f"{impact.faults:,}" if impact.faults else "-"
    return (impact.label, faults, windows, *_three(impact.unavailable_ms), *_three(impact.recovery_ms))


def _three(numbers: Latency | None) -> tuple[str, str, str]:
    if numbers is None:
        return ("-", "-", "-")
    return (milliseconds(numbers[0]), milliseconds(numbers[1]), milliseconds(numbers[2]))
