"""The producer of all rows, which kills the node with the most leaderships half-way.

The producer is idempotent by default: records that it resends after the crash are stored once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from examples.flights import dataset
from examples.flights.ledger import Ledger
from examples.flights.watch import TopicWatch
from tidelog import Producer
from tidelog.testing import LocalCluster

_POLL_EVERY = 200
_ISR_TIMEOUT_S = 90


@dataclass(slots=True)
class Timeline:
    """The times of the run's events, in seconds of time.monotonic()."""

    started_s: float
    killed_node: int = -1
    killed_s: float = 0.0
    restarted_s: float = 0.0
    last_ack_s: float = 0.0
    whole_s: float = 0.0


def produce_all(cluster: LocalCluster, topic: str, ledger: Ledger, watch: TopicWatch, progress: Progress) -> Timeline:
    """Produce all rows through the crash. Return once the ledger has every row and every ISR is complete."""
    timeline = Timeline(time.monotonic())
    task = progress.add_task("producing", total=dataset.ROWS)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}) as producer:
        for row, fields in enumerate(dataset.csv_rows()):
            _send(producer, topic, ledger, row, fields)
            if row % _POLL_EVERY == 0:
                producer.poll(0)
                progress.update(task, completed=ledger.acknowledged)
                _act(row, ledger, cluster, watch, timeline, progress)
        _drain(producer, ledger, progress, task)
        timeline.last_ack_s = time.monotonic()
    _restart(cluster, timeline, progress)
    _wait_until_whole(cluster, watch, timeline)
    return timeline


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show a progress bar on a terminal, and single lines elsewhere."""
    columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as progress:
        yield progress


def _send(producer: Producer, topic: str, ledger: Ledger, row: int, fields: dict[str, str]) -> None:
    key, value = dataset.as_record(row, fields)
    ledger.sent(row, value)
    while True:
        try:
            producer.produce(topic, value, key, on_delivery=partial(ledger.delivered, row))
        except BufferError:
            producer.poll(0.05)
        else:
            return


def _act(
    row: int, ledger: Ledger, cluster: LocalCluster, watch: TopicWatch, timeline: Timeline, progress: Progress
) -> None:
    if timeline.killed_node < 0 and row >= dataset.ROWS // 2:
        timeline.killed_node = watch.busiest_leader()
        led = sum(view.leader == timeline.killed_node for view in watch.view.values())
        timeline.killed_s = time.monotonic()
        cluster.nodes[timeline.killed_node].kill()
        progress.console.print(
            f"  half-way: killed node {timeline.killed_node} (SIGKILL), the leader of {led} partitions"
        )
    elif timeline.killed_s and ledger.acknowledged >= dataset.ROWS * 3 // 4:
        _restart(cluster, timeline, progress)


def _restart(cluster: LocalCluster, timeline: Timeline, progress: Progress) -> None:
    if timeline.restarted_s:
        return
    timeline.restarted_s = time.monotonic()
    cluster.nodes[timeline.killed_node].start()
    after = timeline.restarted_s - timeline.killed_s
    progress.console.print(f"  started node {timeline.killed_node} again, {after:.1f} s after its end")


def _drain(producer: Producer, ledger: Ledger, progress: Progress, task: TaskID) -> None:
    while producer.flush(0.2):
        progress.update(task, completed=ledger.acknowledged)
    progress.update(task, completed=ledger.acknowledged)


def _wait_until_whole(cluster: LocalCluster, watch: TopicWatch, timeline: Timeline) -> None:
    everyone = frozenset(cluster.nodes)
    watch.wait_until(
        lambda view: all(partition.isr == everyone for partition in view.values()), "every ISR whole", _ISR_TIMEOUT_S
    )
    timeline.whole_s = time.monotonic()
