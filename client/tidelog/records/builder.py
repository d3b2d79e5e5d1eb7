"""Builds one RecordBatch v2 out of records appended one by one."""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c

from tidelog.errors import ErrorCode, error_for
from tidelog.records._engine import engine
from tidelog.records.compression import CODECS, check_level, codec_id, compress
from tidelog.records.header import (
    COVERED_STRUCT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_MASK,
    UNCOVERED_STRUCT,
)

Headers = Sequence[tuple[str, bytes | None]]
"""A record's headers: order and duplicates are kept, a value may be null."""

_MAX_RECORD_OVERHEAD = 21
_MAX_VARINT = 5


class RecordBatchBuilder:
    """A batch in the making: used by one thread, appended to until full, then built.

    ``append(key, value, headers=(), timestamp_ms=-1) -> int`` encodes one record and returns its offset in the
    batch; it is the engine's own method, because a call in between would cost as much again. It changes nothing when
    it raises: TypeError for a key or value that is not bytes or None, INVALID_TIMESTAMP below -1, MESSAGE_TOO_LARGE
    beyond 2 GiB.

    The base timestamp is the first record's and offsets count from 0, as a produce request asks. Records are encoded as
    they are appended and compressed in :meth:`build`; a batch that compression does not make smaller is sent without.
    """

    __slots__ = ("_codec", "_compression", "_encoder", "_level", "append")

    def __init__(self, compression: str = "none", level: int | None = None) -> None:
        self._codec = codec_id(compression)
        self._compression = CODECS[self._codec]
        self._level = check_level(self._compression, level)
        self._encoder = engine.RecordEncoder()
        self.append = self._encoder.append

    @property
    def count(self) -> int:
        """How many records were appended."""
        return self._encoder.count

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the batch without compression: exact for ``none``, an upper bound for the other codecs."""
        return HEADER_SIZE + self._encoder.size

    def build(
        self,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
    ) -> bytes:
        """Return the batch. May be called again, for instance with another sequence.

        Raises:
            TidelogError: _STATE when no record was appended, or for a transaction without a producer id.
        """
        encoder = self._encoder
        if not encoder.count:
            raise error_for(ErrorCode._STATE, "a batch is built of at least one record, none was appended")
        if is_transactional and producer_id == NO_PRODUCER_ID:
            raise error_for(ErrorCode._STATE, "a transactional batch needs a producer id")
        codec, records = self._compressed()
        attributes = codec | TRANSACTIONAL_MASK if is_transactional else codec
        timestamps = (encoder.base_timestamp, encoder.max_timestamp)
        producer = (producer_id, producer_epoch, base_sequence)
        covered = COVERED_STRUCT.pack(attributes, encoder.count - 1, *timestamps, *producer, encoder.count)
        length = HEADER_SIZE - LOG_OVERHEAD + len(records)
        crc = crc32c(records, crc32c(covered))
        return b"".join((UNCOVERED_STRUCT.pack(0, length, NO_PARTITION_LEADER_EPOCH, MAGIC, crc), covered, records))

    def _compressed(self) -> tuple[int, bytes | memoryview]:
        records = self._encoder.records()
        if self._codec == 0:
            return 0, records
        compressed = compress(self._compression, records, self._level)
        return (self._codec, compressed) if len(compressed) < len(records) else (0, records)


def record_size_upper_bound(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return the most that a record can add to :attr:`RecordBatchBuilder.size_in_bytes`, in bytes."""
    size = _MAX_RECORD_OVERHEAD + 3 * _MAX_VARINT + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 2 * _MAX_VARINT + len(name.encode()) + len(content or b"")
    return size
