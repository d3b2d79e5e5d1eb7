"""The metrics of a worker, with the names of Kafka Connect's MBeans.

Connectors count on their own threads, and only there. A metric of connectors has series on the worker that leads.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidelog_foundation.metrics import Family, Histogram, Kind, Metric
from tidelog_foundation.security import metrics as certificates

if TYPE_CHECKING:
    from tidelog_connect.herder.state import GroupState

_WORKER: Final = "kafka.connect:type=connect-worker-metrics"
_REBALANCE: Final = "kafka.connect:type=connect-worker-rebalance-metrics"
_TASK: Final = "kafka.connect:type=connector-task-metrics,connector=*,task=*"
_SOURCE: Final = "kafka.connect:type=source-task-metrics,connector=*,task=*"
_SINK: Final = "kafka.connect:type=sink-task-metrics,connector=*,task=*"
_ERRORS: Final = "kafka.connect:type=task-error-metrics,connector=*,task=*"
_CONNECTOR: Final = ("connector",)
_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

LEADS: Final = Metric(
    "tidelog_connect_leader",
    Kind.GAUGE,
    "Whether the worker leads its group and runs all connectors: 1 or 0.",
    kafka=(f"{_REBALANCE} leader-name",),
)
EPOCH: Final = Metric(
    "tidelog_connect_leader_epoch",
    Kind.GAUGE,
    "The epoch of the group's leader, as this worker knows it; -1 without one.",
    kafka=(f"{_REBALANCE} epoch",),
)
LEADS_TAKEN: Final = Metric(
    "tidelog_connect_leads_taken_total",
    Kind.COUNTER,
    "The times that this worker has begun to lead.",
    kafka=(f"{_REBALANCE} completed-rebalances-total",),
)
CONNECTORS: Final = Metric(
    "tidelog_connect_connectors",
    Kind.GAUGE,
    "The connectors of the group by the state of their status.",
    labels=("state",),
    kafka=(f"{_WORKER} connector-count",),
)
TASKS: Final = Metric(
    "tidelog_connect_tasks",
    Kind.GAUGE,
    "The tasks of each connector by the state of their status.",
    labels=("connector", "state"),
    kafka=(f"{_WORKER} task-count", f"{_WORKER},connector=* connector-*-task-count", f"{_TASK} status"),
)
STARTUPS: Final = Metric(
    "tidelog_connect_startups_total",
    Kind.COUNTER,
    "Starts of connectors and their tasks by outcome: success or failure.",
    labels=("outcome",),
    kafka=(
        f"{_WORKER} connector-startup-attempts-total",
        f"{_WORKER} connector-startup-success-total",
        f"{_WORKER} connector-startup-failure-total",
        f"{_WORKER} task-startup-attempts-total",
        f"{_WORKER} task-startup-success-total",
        f"{_WORKER} task-startup-failure-total",
    ),
)
FAILURES: Final = Metric(
    "tidelog_connect_task_failures_total",
    Kind.COUNTER,
    "Connectors whose tasks have failed after their start.",
    labels=_CONNECTOR,
)
POLL_TIME: Final = Metric(
    "tidelog_connect_source_poll_duration_seconds",
    Kind.HISTOGRAM,
    "The time of a source's poll, with its retries, whether it found records or not.",
    unit="seconds",
    labels=_CONNECTOR,
    buckets=_SECONDS,
    kafka=(f"{_SOURCE} poll-batch-avg-time-ms", f"{_SOURCE} poll-batch-max-time-ms"),
)
WRITE_TIME: Final = Metric(
    "tidelog_connect_source_write_duration_seconds",
    Kind.HISTOGRAM,
    "The time in which a source's batch passes transforms and converters and is committed with its offsets.",
    unit="seconds",
    labels=_CONNECTOR,
    buckets=_SECONDS,
    kafka=(f"{_TASK} offset-commit-avg-time-ms", f"{_TASK} offset-commit-max-time-ms"),
)
WRITTEN: Final = Metric(
    "tidelog_connect_source_written_records_total",
    Kind.COUNTER,
    "Records that a source has written to topics, behind its transforms, in batches that are committed.",
    labels=_CONNECTOR,
    kafka=(f"{_SOURCE} source-record-write-total", f"{_SOURCE} source-record-write-rate"),
)
PUT_TIME: Final = Metric(
    "tidelog_connect_sink_put_duration_seconds",
    Kind.HISTOGRAM,
    "The time in which a sink's batch passes converters and transforms and is put, with its retries.",
    unit="seconds",
    labels=_CONNECTOR,
    buckets=_SECONDS,
    kafka=(f"{_SINK} put-batch-avg-time-ms", f"{_SINK} put-batch-max-time-ms"),
)
FAILED_RECORDS: Final = Metric(
    "tidelog_connect_failed_records_total",
    Kind.COUNTER,
    "Records that a converter or a transform could not process.",
    labels=_CONNECTOR,
    kafka=(f"{_ERRORS} total-record-errors", f"{_ERRORS} total-record-failures"),
)
SKIPPED: Final = Metric(
    "tidelog_connect_skipped_records_total",
    Kind.COUNTER,
    "Failed records without which the connector went on, by errors.tolerance=all.",
    labels=_CONNECTOR,
    kafka=(f"{_ERRORS} total-records-skipped",),
)
DEAD_LETTERS: Final = Metric(
    "tidelog_connect_dead_letters_total",
    Kind.COUNTER,
    "Failed records that were written to the dead-letter topic.",
    labels=_CONNECTOR,
    kafka=(f"{_ERRORS} deadletterqueue-produce-requests",),
)
LOGGED: Final = Metric(
    "tidelog_connect_logged_errors_total",
    Kind.COUNTER,
    "Failed records that were logged, each in a line.",
    labels=_CONNECTOR,
    kafka=(f"{_ERRORS} total-errors-logged",),
)
RETRIES: Final = Metric(
    "tidelog_connect_retries_total",
    Kind.COUNTER,
    "Repetitions of a connector's poll or put after an error that passes.",
    labels=_CONNECTOR,
    kafka=(f"{_ERRORS} total-retries",),
)
LAST_ERROR: Final = Metric(
    "tidelog_connect_last_error_timestamp_seconds",
    Kind.GAUGE,
    "The time of the last record that failed, in seconds since 1970; 0 without one.",
    unit="seconds",
    labels=_CONNECTOR,
    kafka=(f"{_ERRORS} last-error-timestamp",),
)
REQUESTS: Final = Metric(
    "tidelog_connect_rest_requests_total",
    Kind.COUNTER,
    "Requests to the REST API by method and status.",
    labels=("method", "status"),
)
DECLARED: Final = (
    ("Worker", (LEADS, EPOCH, LEADS_TAKEN, CONNECTORS, TASKS, STARTUPS, FAILURES)),
    ("Sources and sinks", (POLL_TIME, WRITE_TIME, WRITTEN, PUT_TIME)),
    ("Errors", (FAILED_RECORDS, SKIPPED, DEAD_LETTERS, LOGGED, RETRIES, LAST_ERROR)),
    ("REST API", (REQUESTS, *certificates.METRICS)),
)
"""The metrics of a worker by subject."""
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


@dataclass(slots=True)
class ConnectorCounts:
    """The counts of one connector, over all its runs on this worker."""

    poll: Histogram = field(default_factory=POLL_TIME.histogram)
    write: Histogram = field(default_factory=WRITE_TIME.histogram)
    put: Histogram = field(default_factory=PUT_TIME.histogram)
    written_records: int = 0
    failures: int = 0
    failed_records: int = 0
    skipped: int = 0
    dead_letters: int = 0
    logged: int = 0
    retries: int = 0
    last_error_s: float = 0.0

    def failed(self, count: int) -> None:
        """Count records that have failed now."""
        self.failed_records += count
        self.last_error_s = time.time()

    def retried(self) -> None:
        """Count a repetition."""
        self.retries += 1


class ConnectCounts:
    """The counts of a worker."""

    def __init__(self) -> None:
        self._connectors: dict[str, ConnectorCounts] = {}
        self._startups: Counter[tuple[str]] = Counter({("success",): 0, ("failure",): 0})
        self._requests: Counter[tuple[str, str]] = Counter()
        self._leads_taken = 0

    def of(self, connector: str) -> ConnectorCounts:
        """Return the counts of a connector."""
        return self._connectors.setdefault(connector, ConnectorCounts())

    def started(self, *, is_success: bool) -> None:
        """Count a start of a connector."""
        self._startups["success" if is_success else "failure",] += 1

    def leads(self) -> None:
        """Count that the worker begins to lead."""
        self._leads_taken += 1

    def requested(self, method: str, status: int) -> None:
        """Count a request."""
        self._requests[method if method in _METHODS else "other", str(status)] += 1

    def families(self, state: GroupState, *, leads: bool) -> Iterator[Family]:
        """Yield the metrics. Counts of connectors that do not exist any more end."""
        yield LEADS.of(int(leads))
        yield EPOCH.of(-1 if state.leader is None else state.leader.epoch)
        yield LEADS_TAKEN.of(self._leads_taken)
        yield STARTUPS.of(dict(self._startups))
        yield REQUESTS.of(dict(self._requests))
        for name in [each for each in list(self._connectors) if each not in state.connectors]:
            del self._connectors[name]
        if leads:
            yield from self._of_connectors(state)

    def _of_connectors(self, state: GroupState) -> Iterator[Family]:
        statuses = [state.connector_statuses.get(name) for name in list(state.connectors)]
        yield CONNECTORS.of(Counter(("UNASSIGNED" if each is None else each.state.value,) for each in statuses))
        yield TASKS.of(
            Counter(
                (name, status.state.value)
                for name, tasks in list(state.task_statuses.items())
                for status in list(tasks.values())
            )
        )
        counts = {(name,): each for name, each in list(self._connectors.items())}
        for metric, histogram in ((POLL_TIME, "poll"), (WRITE_TIME, "write"), (PUT_TIME, "put")):
            snapshots = {labels: getattr(each, histogram).snapshot() for labels, each in counts.items()}
            yield metric.of({labels: each for labels, each in snapshots.items() if any(each.counts)})
        sources = {labels: each for labels, each in counts.items() if any(each.write.snapshot().counts)}
        yield WRITTEN.of({labels: each.written_records for labels, each in sources.items()})
        yield FAILURES.of({labels: each.failures for labels, each in counts.items()})
        yield FAILED_RECORDS.of({labels: each.failed_records for labels, each in counts.items()})
        yield SKIPPED.of({labels: each.skipped for labels, each in counts.items()})
        yield DEAD_LETTERS.of({labels: each.dead_letters for labels, each in counts.items()})
        yield LOGGED.of({labels: each.logged for labels, each in counts.items()})
        yield RETRIES.of({labels: each.retries for labels, each in counts.items()})
        yield LAST_ERROR.of({labels: each.last_error_s for labels, each in counts.items()})
