"""The demo's summary table and its plot of records per second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure as Canvas
from rich.console import Console
from rich.table import Table

from examples.flights.audit import Audit
from examples.flights.dataset import Figures
from examples.flights.ledger import Ledger
from examples.flights.load import Timeline
from examples.flights.stream import Tally
from examples.flights.watch import TopicWatch

_BIN_S = 0.2


def print_figures(console: Console, figures: Figures, carriers: int = 4) -> None:
    """Print the flights and mean departure delay of the largest carriers per month."""
    totals: dict[str, int] = {}
    for (carrier, _), figure in figures.items():
        totals[carrier] = totals.get(carrier, 0) + figure.flights
    largest = sorted(totals, key=lambda carrier: -totals[carrier])[:carriers]
    table = Table(title=f"Mean departure delay in minutes (flights), {carriers} of {len(totals)} carriers")
    table.add_column("month", justify="right")
    for carrier in largest:
        table.add_column(carrier, justify="right")
    for month in range(1, 13):
        cells = [figures.get((carrier, month)) for carrier in largest]
        table.add_row(str(month), *(f"{c.mean_delay or 0:.1f} ({c.flights:,})" if c else "-" for c in cells))
    console.print(table)


def print_summary(
    console: Console,
    ledger: Ledger,
    timeline: Timeline,
    watch: TopicWatch,
    tally: Tally,
    audit: Audit,
    session_timeout_ms: int,
) -> None:
    """Print the results: speed, latency, the failover, and that each record is stored once."""
    seconds = timeline.last_ack_s - timeline.started_s
    p50, p99 = np.percentile(np.asarray(ledger.latencies_s) * 1000, [50, 99])
    table = Table(title="Summary", show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_row("records acknowledged", f"{ledger.acknowledged:,} of {ledger.rows:,}")
    table.add_row(
        "produced", f"{ledger.acknowledged / seconds:,.0f} records/s, {ledger.sent_bytes / seconds / 1e6:.1f} MB/s"
    )
    table.add_row("produced in (failover included)", f"{seconds:.1f} s")
    table.add_row("ack latency p50 / p99", f"{p50:.1f} ms / {p99:.0f} ms")
    table.add_row("broker.session.timeout.ms", f"{session_timeout_ms:,}")
    table.add_row(
        "node killed / started again",
        f"{timeline.killed_node} / {timeline.restarted_s - timeline.killed_s:.1f} s later",
    )
    for partition, pause_s in pauses_s(ledger, timeline, sorted(watch.view)).items():
        shown = "no carrier's key falls on it" if pause_s is None else f"{pause_s:.2f} s"
        table.add_row(f"partition {partition} not writable", shown)
    table.add_row("every ISR whole again", f"{timeline.whole_s - timeline.restarted_s:.1f} s after the start")
    table.add_row("leader changes / ISR changes", f"{watch.leader_changes} / {watch.isr_changes}")
    table.add_row("micro-batches read meanwhile", f"{len(tally.batches):,}")
    table.add_row("most rows behind the producer", f"{max((b.behind for b in tally.batches), default=0):,}")
    table.add_row("records stored", f"{audit.stored:,}")
    table.add_row("stored more than once", f"{audit.duplicates:,}")
    table.add_row("lost", f"{audit.lost:,}")
    table.add_row("not where they were acknowledged", f"{audit.misplaced:,}")
    table.add_row("altered", f"{audit.altered:,}")
    table.add_row("out of order within a key", f"{audit.out_of_order:,}")
    table.add_row("figures that differ from the CSV's", f"{len(audit.differing_figures):,}")
    console.print(table)


def pauses_s(ledger: Ledger, timeline: Timeline, partitions: list[int]) -> dict[int, float | None]:
    """Return the longest pause in acknowledgements that ended after the crash, per partition; None without records."""
    acknowledged = np.asarray(ledger.partitions)
    times = np.asarray(ledger.ack_times_s)
    pauses: dict[int, float | None] = {}
    for partition in partitions:
        of_partition = np.unique(times[acknowledged == partition])
        ends_after = of_partition[1:] > timeline.killed_s
        longest = float(np.max(np.diff(of_partition)[ends_after], initial=0.0))
        pauses[partition] = longest if of_partition.size else None
    return pauses


def save_picture(path: Path, ledger: Ledger, timeline: Timeline) -> None:
    """Save a plot of records per second over time, with the crash, the restart and the outage marked."""
    times = np.asarray(ledger.ack_times_s)[np.asarray(ledger.partitions) >= 0] - timeline.started_s
    edges = np.arange(0, max(times.max(), timeline.whole_s - timeline.started_s) + _BIN_S, _BIN_S)
    rates = np.histogram(times, edges)[0] / _BIN_S
    canvas = Canvas(figsize=(10, 4.5), layout="constrained")
    axes = canvas.subplots()
    axes.stairs(rates / 1000, edges, fill=True, color="#2a78b5")
    for moment_s, label, color in (
        (timeline.killed_s, f"node {timeline.killed_node} killed", "#c0392b"),
        (timeline.restarted_s, "started again", "#e08e0b"),
        (timeline.whole_s, "every ISR whole", "#2e8b57"),
    ):
        axes.axvline(moment_s - timeline.started_s, color=color, linestyle="--", label=label)
    axes.set(xlabel="seconds", ylabel="thousand records acknowledged per second", title="Producing through a failover")
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, dpi=130)
