"""The builder of one RecordBatch v2 from records appended one by one."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records._engine import engine
from tidelog_foundation.records.compression import CODECS, check_level, codec_id, compress
from tidelog_foundation.records.header import (
    COVERED_STRUCT,
    HEADER_SIZE,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    encode_prefix,
)
from tidelog_foundation.records.sources import Contents, Timestamps, content_source, rows_of, timestamp_source

Headers = Sequence[tuple[str, bytes | None]]
"""A record's headers, in order and with duplicates; a value may be null."""

_MAX_RECORD_OVERHEAD = 21
_MAX_VARINT = 5


class RecordBatchBuilder:
    """A batch under construction: one thread appends records until it is full, then builds it.

    ``append(key, value, headers=(), timestamp_ms=-1) -> int`` encodes one record and returns its offset in the batch.
    It is the engine's own method, because a wrapper would double its cost. A call that raises changes nothing:
    TypeError for a key or value that is not bytes or None, INVALID_TIMESTAMP below -1, MESSAGE_TOO_LARGE beyond 2 GiB.

    The base timestamp is the first record's and offsets count from 0, as produce requests require. Records are encoded
    on :attr:`append` and compressed in :meth:`build`; a batch that compression does not shrink stays uncompressed.
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
        """The number of records appended."""
        return self._encoder.count

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the batch without compression: exact for ``none``, an upper bound for the other codecs."""
        return HEADER_SIZE + self._encoder.size

    def emptied(self) -> RecordBatchBuilder:
        """Return a new builder with the same codec and level."""
        return RecordBatchBuilder(self._compression, self._level)

    def extend(
        self,
        values: Contents,
        keys: Contents | None = None,
        timestamp_ms: Timestamps = NO_TIMESTAMP,
        *,
        start: int = 0,
        max_bytes: int | None = None,
    ) -> int:
        """Append the records of whole columns from row ``start`` on, and return the row for the next call.

        ``values`` and ``keys`` are sequences of bytes and None, or Arrow arrays of binary or string, read from their
        buffers; ``timestamp_ms`` is one for all rows or one for each. With ``max_bytes`` it stops before the record
        that would push :attr:`size_in_bytes` beyond it, but an empty builder takes one record of any size. To spread a
        column over batches, call it on new builders until it returns the number of rows. A call that raises changes
        nothing.

        Raises:
            TypeError: a content that is not bytes or None, an Arrow array of another type, or a chunked one.
            ValueError: columns of different lengths, or a start beyond them.
            TidelogError: INVALID_TIMESTAMP below -1; MESSAGE_TOO_LARGE beyond 2 GiB.
        """
        value_source = content_source(values, "value")
        rows = rows_of(value_source)
        key_source = None if keys is None else content_source(keys, "key")
        if key_source is not None and rows_of(key_source) != rows:
            raise ValueError(f"{rows_of(key_source)} keys for {rows} values")
        if not 0 <= start <= rows:
            raise ValueError(f"start {start} of {rows} values")
        max_size = None if max_bytes is None else max_bytes - HEADER_SIZE
        times = timestamp_source(timestamp_ms, rows)
        return self._encoder.extend(value_source, key_source, times, start, max_size)

    def build(
        self,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
    ) -> bytes:
        """Return the batch. Repeated calls are allowed, for example with another sequence.

        Raises:
            TidelogError: _STATE if no record was appended, or for a transaction without a producer id.
        """
        encoder = self._encoder
        if not encoder.count:
            raise error_for(ErrorCode._STATE, "a batch needs at least one record")
        if is_transactional and producer_id == NO_PRODUCER_ID:
            raise error_for(ErrorCode._STATE, "a transactional batch needs a producer id")
        packed = self._compressed()
        attributes = (0 if packed is None else self._codec) | (TRANSACTIONAL_MASK if is_transactional else 0)
        timestamps = (encoder.base_timestamp, encoder.max_timestamp)
        producer = (producer_id, producer_epoch, base_sequence)
        covered = COVERED_STRUCT.pack(attributes, encoder.count - 1, *timestamps, *producer, encoder.count)
        if packed is None:
            return encoder.batch(covered)
        return encode_prefix(0, NO_PARTITION_LEADER_EPOCH, covered, packed) + packed

    def _compressed(self) -> bytes | None:
        if self._codec == 0:
            return None
        records = self._encoder.records()
        packed = compress(self._compression, records, self._level)
        return packed if len(packed) < len(records) else None


def record_size_upper_bound(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """Return the most bytes that a record can add to :attr:`RecordBatchBuilder.size_in_bytes`."""
    size = _MAX_RECORD_OVERHEAD + 3 * _MAX_VARINT + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += 2 * _MAX_VARINT + len(name.encode()) + len(content or b"")
    return size
