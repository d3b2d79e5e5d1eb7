"""The journal as a compacted topic: reads of one sink's state, and appends. Blocking."""

from __future__ import annotations

import os
import time
import uuid
import zlib
from collections import OrderedDict
from dataclasses import dataclass, fields

from tidelog import NewTopic
from tidelog.cluster import LATEST_TIMESTAMP, ClusterClient
from tidelog.cluster.config import ClientConfig
from tidelog.cluster.security import SecurityConfig
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import data_batches, iter_records
from tidelog_foundation.transport.loop import run_sync
from tidelog_spark.clients import cluster_client
from tidelog_spark.sink.clients import JOURNAL_TIMEOUT_MS, drop_journal_producer, journal_producer, shared_admin
from tidelog_spark.sink.journal import Journal, SinkState, key_of
from tidelog_spark.sink.options import SinkPlan
from tidelog_spark.source.fetcher import Fetched, fetch_range
from tidelog_spark.source.offsets import OffsetRange
from tidelog_spark.source.options import SourceOptions

JOURNAL_TOPIC = "__tidelog_spark_sinks"
_PARTITIONS = 16
_REPLICAS = 3
_SEGMENT_BYTES = 1024**2
"""Small segments are compacted soon, so a new process reads little."""
_TIMEOUT_MS = JOURNAL_TIMEOUT_MS


_MAX_KEPT = 64
"""The sinks whose state a process keeps."""


class JournalTopic:
    """One sink's part of the topic. It keeps what it has read, and next reads only what is new."""

    def __init__(self, plan: SinkPlan, sink: str) -> None:
        self._plan = plan
        self._source = _source_options(plan)
        self._partition = zlib.crc32(sink.encode()) % _PARTITIONS
        self._journal = Journal(sink)
        self._next_offset = 0
        self._exists = False
        self._known_by_s = 0.0
        """The time by which all nodes should know the topic."""

    def read(self, *, is_current: bool = False) -> SinkState:
        """Return the state; with ``is_current``, after all records that were acknowledged before the call.

        Raises:
            TidelogError: the journal cannot be read.
        """
        self._ensure_exists()
        end = self._end_after_a_marker() if is_current else self._end()
        if end < self._next_offset:
            # The topic was deleted and created again, or a leader does not know that it was replaced.
            self._journal, self._next_offset = Journal(self._journal.sink), 0
        if end > self._next_offset:
            planned = OffsetRange(JOURNAL_TOPIC, self._partition, self._next_offset, end)
            for fetched in fetch_range(self._source, planned):
                self._apply(fetched, end)
            self._next_offset = end
        return self._journal.state

    def append(self, state: SinkState) -> None:
        """Append a state, and delete the one before the current one.

        Raises:
            TidelogError: the outcome is unknown; the record may arrive later.
        """
        key = key_of(self._journal.sink, state.version, uuid.uuid4().hex)
        replaced = self._journal.replaced_key
        deleted = [] if replaced is None else [replaced]
        self._produce([key, *deleted], [state.to_json(), *(None for _ in deleted)])

    def _end(self) -> int:
        key = (JOURNAL_TOPIC, self._partition)
        client = cluster_client(self._source.client)
        while True:
            try:
                return run_sync(client.list_offsets({key: LATEST_TIMESTAMP}, timeout_ms=_TIMEOUT_MS))[key].offset
            except TidelogError as error:
                # A node may learn of the topic later than the one that was asked whether it exists.
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                if time.monotonic() >= self._known_by_s:
                    # It was deleted. The next read creates it anew.
                    self._exists = False
                    raise

    def _end_after_a_marker(self) -> int:
        return self._produce([f"{self._journal.sink}/marker".encode()], [None]) + 1

    def _produce(self, keys: list[bytes], values: list[bytes | None]) -> int:
        producer = journal_producer(self._plan)
        try:
            written = producer.produce_batch(JOURNAL_TOPIC, values, key=keys, partition=self._partition)
        except TidelogError:
            drop_journal_producer(self._plan, producer)
            raise
        return written.offsets[-1]

    def _apply(self, fetched: Fetched, end: int) -> None:
        for position, _ in data_batches(fetched.records, []):
            for record in iter_records(fetched.records, position, fetched.offset):
                if record.offset < end and record.key is not None:
                    self._journal.apply(record.key, record.value)

    def _ensure_exists(self) -> None:
        if self._exists:
            return
        client = cluster_client(self._source.client)
        if not _is_known(client):
            self._create()
            self._await_visible(client)
        self._exists, self._known_by_s = True, time.monotonic() + _TIMEOUT_MS / 1000

    def _await_visible(self, client: ClusterClient) -> None:
        deadline = time.monotonic() + _TIMEOUT_MS / 1000
        while True:
            try:
                run_sync(client.topic(JOURNAL_TOPIC, timeout_ms=_TIMEOUT_MS))
            except TidelogError as error:
                # A node may learn of the topic later than the one that has created it.
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or time.monotonic() >= deadline:
                    raise
            else:
                return

    def _create(self) -> None:
        admin = shared_admin(self._plan)
        nodes = len(admin.describe_cluster().result().nodes)
        replicas = min(_REPLICAS, nodes)
        config = {
            "cleanup.policy": "compact",
            "segment.bytes": str(_SEGMENT_BYTES),
            "min.insync.replicas": str(max(replicas - 1, 1)),
        }
        try:
            admin.create_topics([NewTopic(JOURNAL_TOPIC, _PARTITIONS, replicas, config=config)])[JOURNAL_TOPIC].result()
        except TidelogError as error:
            # Another task may have created it.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


@dataclass(frozen=True, slots=True)
class ReadSink:
    """A sink's state, and the time of its record in milliseconds since 1970."""

    sink: str
    state: SinkState
    changed_ms: int


def read_sinks(plan: SinkPlan) -> list[ReadSink]:
    """Return all sinks of the journal; none if there is no journal. Nothing is created.

    Raises:
        TidelogError: the journal cannot be read.
    """
    client = cluster_client(plan.client_config)
    if not _is_known(client):
        return []
    keys = {(JOURNAL_TOPIC, index): LATEST_TIMESTAMP for index in range(_PARTITIONS)}
    ends = run_sync(client.list_offsets(keys, timeout_ms=_TIMEOUT_MS))
    found: list[ReadSink] = []
    for (name, index), end in ends.items():
        if end.offset:
            found += _sinks_of(_source_options(plan), OffsetRange(name, index, 0, end.offset))
    return sorted(found, key=lambda each: each.sink)


def _sinks_of(options: SourceOptions, planned: OffsetRange) -> list[ReadSink]:
    journals: dict[str, Journal] = {}
    changed_ms: dict[str, int] = {}
    for fetched in fetch_range(options, planned):
        for position, _ in data_batches(fetched.records, []):
            for record in iter_records(fetched.records, position, fetched.offset):
                if record.key is None or record.value is None:
                    continue
                sink = record.key.partition(b"/")[0].decode()
                journal = journals.setdefault(sink, Journal(sink))
                before = journal.state
                journal.apply(record.key, record.value)
                if journal.state is not before:
                    changed_ms[sink] = record.timestamp_ms
    return [ReadSink(name, journal.state, changed_ms[name]) for name, journal in journals.items() if name in changed_ms]


def _is_known(client: ClusterClient) -> bool:
    known = run_sync(client.refresh([JOURNAL_TOPIC], timeout_ms=_TIMEOUT_MS)).topics.get(JOURNAL_TOPIC)
    return known is not None and known.error is None


def _source_options(plan: SinkPlan) -> SourceOptions:
    security = {field.name: getattr(plan.options, field.name) for field in fields(SecurityConfig)}
    return SourceOptions(bootstrap_servers=plan.options.bootstrap_servers, subscribe=(JOURNAL_TOPIC,), **security)


_kept: OrderedDict[tuple[int, ClientConfig, str], JournalTopic] = OrderedDict()


def journal_of(plan: SinkPlan, sink: str) -> JournalTopic:
    """Return this process's journal of a sink, so that a batch reads only what is new since the one before."""
    key = (os.getpid(), plan.client_config, sink)
    if key not in _kept:
        _kept[key] = JournalTopic(plan, sink)
        while len(_kept) > _MAX_KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key]
