"""Record batches as rows of the source: in parts, where they decompress to much."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidelog_foundation.records import RecordBatchBuilder, assign_offsets
from tidelog_spark.source.offsets import OffsetRange
from tidelog_spark.source.rows import read_rows

_SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
    }
)


def test_rows_come_in_parts_when_batches_decompress_to_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_spark.source.rows.MAX_DECODED_BYTES", 5_000)
    batches = []
    for first in range(0, 40, 4):
        builder = RecordBatchBuilder("zstd")
        builder.extend([bytes(1_000)] * 4, None, 1_000)
        batches.append(bytearray(builder.build()))
        assign_offsets(batches[-1], first, 2)
    parts = list(read_rows(b"".join(batches), OffsetRange("t", 0, 2, 39), _SCHEMA))
    assert [offset for part in parts for offset in part.column("offset").to_pylist()] == list(range(2, 39))
    assert max(part.num_rows for part in parts) <= 8
    assert list(read_rows(b"".join(batches), OffsetRange("t", 0, 50, 60), _SCHEMA)) == []
