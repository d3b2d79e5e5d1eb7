"""The messages of fetched batches; ``_fast_message_reader`` is the compiled twin."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.message import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.records import Record, RecordBatchHeader, data_batches, read_parts

_TIMESTAMP_TYPES = (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME)
_UNKNOWN = (TIMESTAMP_NOT_AVAILABLE, -1)


class MessageReader:
    """Reads the messages of a partition's batches from front to end, on the application's thread.

    ``next_offset`` is the next offset to search, and ``leader_epoch`` that of the record before it; -1 if it is
    unknown. A batch is checked as a whole before the first of its messages is returned.
    """

    def __init__(
        self, topic: str, partition: int, records: bytes, aborted: tuple[tuple[int, int], ...], next_offset: int
    ) -> None:
        """Begin at ``next_offset``, and leave out control records and those of the ``aborted`` transactions."""
        self.next_offset = next_offset
        self.leader_epoch = -1
        self._topic = topic
        self._partition = partition
        self._data = records
        self._batches: Iterator[tuple[int, RecordBatchHeader]] = data_batches(records, aborted)
        self._parts: Iterator[list[Record]] = iter(())
        self._records: list[Record] = []
        self._at = 0
        self._epoch = -1
        self._failure: TidelogError | None = None

    def read(self, most: int) -> list[Message]:
        """Return up to ``most`` messages, fewer only at the end or before a batch that cannot be read.

        Raises:
            TidelogError: the next batch is damaged or cannot be decoded.
        """
        messages: list[Message] = []
        while len(messages) < most:
            if self._at == len(self._records) and not self._next_records(has_read=bool(messages)):
                break
            records = self._records[self._at : self._at + most - len(messages)]
            self._at += len(records)
            self.next_offset, self.leader_epoch = records[-1].offset + 1, self._epoch
            messages += map(self._message, records)
        return messages

    def _next_records(self, *, has_read: bool) -> bool:
        """Decode more records and return True if there are any. An error waits for the next call after ``has_read``."""
        if self._failure is None:
            try:
                self._records, self._at = self._decoded(), 0
            except TidelogError as error:
                self._failure = error
        if self._failure is not None and not has_read:
            raise self._failure
        return self._failure is None and bool(self._records)

    def _decoded(self) -> list[Record]:
        """Return the next records. A large batch is decoded in parts, because records take many times its bytes."""
        while not (records := next(self._parts, None)):
            header = next(self._batches, None)
            if header is None:
                return []
            if header[1].next_offset > self.next_offset:
                self._parts = read_parts(self._data, header[0], self.next_offset)
                self._epoch = header[1].partition_leader_epoch
        return records

    def _message(self, record: Record) -> Message:
        timestamp_ms = record.timestamp_ms
        return Message(
            self._topic,
            self._partition,
            record.offset,
            record.key,
            record.value,
            list(record.headers) or None,
            None,
            (_TIMESTAMP_TYPES[record.timestamp_type], timestamp_ms) if timestamp_ms >= 0 else _UNKNOWN,
            None,
            self._epoch if self._epoch >= 0 else None,
        )
