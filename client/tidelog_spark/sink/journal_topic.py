"""The journal as a compacted topic: reads of one sink's state, and appends. Blocking."""

from __future__ import annotations

import time
import uuid
import zlib
from dataclasses import fields

from tidelog import AdminClient, NewTopic, Producer
from tidelog.cluster import LATEST_TIMESTAMP, ClusterClient
from tidelog.cluster.security import SecurityConfig
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import data_batches, iter_records
from tidelog_foundation.transport.loop import run_sync
from tidelog_spark.bounds import cluster_client
from tidelog_spark.fetcher import fetch_range
from tidelog_spark.offsets import OffsetRange
from tidelog_spark.options import SourceOptions
from tidelog_spark.sink.journal import Journal, SinkState, key_of
from tidelog_spark.sink.options import SinkPlan

JOURNAL_TOPIC = "__tidelog_spark_sinks"
_PARTITIONS = 16
_REPLICAS = 3
_SEGMENT_BYTES = 1024**2
"""Small segments are compacted soon, so a new process reads little."""
_TIMEOUT_MS = 60_000


class JournalTopic:
    """One sink's part of the topic. It keeps what it has read, and next reads only what is new."""

    def __init__(self, plan: SinkPlan, sink: str) -> None:
        self._plan = plan
        security = {field.name: getattr(plan.options, field.name) for field in fields(SecurityConfig)}
        servers = plan.options.bootstrap_servers
        self._source = SourceOptions(bootstrap_servers=servers, subscribe=(JOURNAL_TOPIC,), **security)
        self._partition = zlib.crc32(sink.encode()) % _PARTITIONS
        self._journal = Journal(sink)
        self._next_offset = 0
        self._exists = False

    def read(self, *, is_current: bool = False) -> SinkState:
        """Return the state; with ``is_current``, after all records that were acknowledged before the call.

        Raises:
            TidelogError: the journal cannot be read.
        """
        self._ensure_exists()
        end = self._end_after_a_marker() if is_current else self._end()
        if end > self._next_offset:
            planned = OffsetRange(JOURNAL_TOPIC, self._partition, self._next_offset, end)
            for fetched in fetch_range(self._source, planned):
                self._apply(fetched.records, end)
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
        return run_sync(client.list_offsets({key: LATEST_TIMESTAMP}, timeout_ms=_TIMEOUT_MS))[key].offset

    def _end_after_a_marker(self) -> int:
        return self._produce([f"{self._journal.sink}/marker".encode()], [None]) + 1

    def _produce(self, keys: list[bytes], values: list[bytes | None]) -> int:
        with Producer({**self._plan.client, "message.timeout.ms": _TIMEOUT_MS}) as producer:
            written = producer.produce_batch(JOURNAL_TOPIC, values, key=keys, partition=self._partition)
        return written.offsets[-1]

    def _apply(self, records: bytes, end: int) -> None:
        for position, _ in data_batches(records, []):
            for record in iter_records(records, position, self._next_offset):
                if record.offset < end and record.key is not None:
                    self._journal.apply(record.key, record.value)
        self._next_offset = end

    def _ensure_exists(self) -> None:
        if self._exists:
            return
        client = cluster_client(self._source.client)
        known = run_sync(client.refresh([JOURNAL_TOPIC], timeout_ms=_TIMEOUT_MS)).topics.get(JOURNAL_TOPIC)
        if known is None or known.error is not None:
            self._create()
            self._await_visible(client)
        self._exists = True

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
        with AdminClient(dict(self._plan.client)) as admin:
            nodes = len(admin.describe_cluster().result().nodes)
            replicas = min(_REPLICAS, nodes)
            config = {
                "cleanup.policy": "compact",
                "segment.bytes": str(_SEGMENT_BYTES),
                "min.insync.replicas": str(max(replicas - 1, 1)),
            }
            topic = NewTopic(JOURNAL_TOPIC, _PARTITIONS, replicas, config=config)
            try:
                admin.create_topics([topic])[JOURNAL_TOPIC].result()
            except TidelogError as error:
                # Another task may have created it.
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
