"""Decides the fate of each batch in a cleaning (Kafka's Cleaner.cleanInto and MemoryRecords.filterTo). Pure: no I/O.

A record stays if it has a key, the offset map has no later record of that key, and it is not a tombstone whose delete
horizon has passed. The first cleaning that finds a tombstone, or a marker with nothing left of its transaction, sets
the horizon (KIP-534): the time of that cleaning plus ``delete.retention.ms``, in place of the base timestamp. A batch
whose records all stay keeps its bytes. Any other batch keeps its base offset, last offset, leader epoch, producer
fields and codec. An empty batch goes, with two exceptions that keep their header: a producer's last batch, which holds
its sequence and epoch, and the batch at the end of the range, which holds the log's end.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog_foundation.records import NO_TIMESTAMP, RecordBatchHeader, parse_header, validate_batch
from tidelog_foundation.records.compression import check_level, compress, decompress
from tidelog_foundation.records.control import read_control
from tidelog_foundation.records.header import (
    COMPRESSION_MASK,
    DELETE_HORIZON_MASK,
    LOG_APPEND_TIME,
    MAX_INT64,
    NO_PRODUCER_ID,
    Buffer,
    encode_batch,
)
from tidelog_foundation.records.validation import record_section
from tidelog_node.log.cleaner._engine import engine
from tidelog_node.log.cleaner.transactions import CleanedTransactions
from tidelog_node.log.producers.entries import ProducerEntry

KeptBatch = tuple[RecordBatchHeader, Buffer]
"""A batch that stays: its header and its bytes."""


class BatchFilter:
    """The decisions of one cleaning; :meth:`filter` receives the batches of a log in order, from its first segment on.

    ``producers`` has the active producers by id; ``end_offset`` is the end of the cleanable range. The counters count
    records: read, kept, and removed because they have no key.
    """

    def __init__(
        self,
        offset_map: engine.OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, ProducerEntry],
        *,
        end_offset: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self.records_read = 0
        self.records_kept = 0
        self.keyless = 0
        self._selector = engine.RecordSelector(offset_map)
        self._transactions = transactions
        self._producers = producers
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._new_horizon_ms = min(now_ms + delete_retention_ms, MAX_INT64)

    def filter(self, buffer: Buffer, position: int) -> KeptBatch | None:
        """Return the remaining part of the batch at a position; None if nothing remains.

        Raises:
            CorruptRecordError: the batch, or a record in it, has changed since it was written.
            TidelogError: UNSUPPORTED_COMPRESSION_TYPE.
        """
        header = validate_batch(buffer, position)
        self.records_read += header.record_count
        may_discard = self._may_discard(buffer, position, header)
        if may_discard and (not header.is_control or self._is_horizon_passed(header)):
            return self._emptied(header)
        section = decompress(header.compression, record_section(buffer, position, header))
        selector = self._selector
        if header.is_control:
            selector.select_all(section, header)
        else:
            selector.select(section, header, self._is_horizon_passed(header))
        self.keyless += selector.keyless
        self.records_kept += selector.count
        if not selector.count:
            return self._emptied(header)
        needs_horizon = not header.has_delete_horizon and (selector.has_tombstones or may_discard)
        if selector.count == header.record_count and not needs_horizon:
            return header, memoryview(buffer)[position : position + header.size_in_bytes]
        return self._rebuilt(header, needs_horizon)

    def _may_discard(self, buffer: Buffer, position: int, header: RecordBatchHeader) -> bool:
        if header.is_control:
            return self._transactions.may_discard_marker(header, read_control(buffer, position))
        return self._transactions.may_discard_data(header)

    def _is_horizon_passed(self, header: RecordBatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp <= self._now_ms

    def _emptied(self, header: RecordBatchHeader) -> KeptBatch | None:
        """Return the header alone if it must stay. It is uncompressed, because codecs turn no bytes into some."""
        if header.next_offset != self._end_offset and not self._is_last_of_producer(header):
            return None
        attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_MASK)
        batch = encode_batch(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")
        return parse_header(batch), batch

    def _is_last_of_producer(self, header: RecordBatchHeader) -> bool:
        if header.producer_id == NO_PRODUCER_ID:
            return False
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return False
        if producer.last_offset >= 0:
            return header.last_offset == producer.last_offset
        return header.is_control and header.producer_epoch == producer.producer_epoch

    def _rebuilt(self, header: RecordBatchHeader, needs_horizon: bool) -> KeptBatch:
        selector = self._selector
        base_timestamp = self._new_horizon_ms if needs_horizon else header.base_timestamp
        records = selector.copy(base_timestamp)
        if header.attributes & COMPRESSION_MASK:
            records = compress(header.compression, records, check_level(header.compression, None))
        is_append_time = header.timestamp_type == LOG_APPEND_TIME
        rebuilt = header._replace(
            attributes=header.attributes | DELETE_HORIZON_MASK if needs_horizon else header.attributes,
            base_timestamp=base_timestamp,
            max_timestamp=header.max_timestamp if is_append_time else selector.max_timestamp,
            record_count=selector.count,
        )
        batch = encode_batch(rebuilt, records)
        return parse_header(batch), batch
