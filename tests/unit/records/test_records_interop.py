"""Both directions against the readers and writers of kafka-python and aiokafka, and Arrow's own codecs."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_records
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.records import (
    CODECS,
    HEADER_SIZE,
    RecordBatchBuilder,
    assign_offsets,
    parse_header,
    read_records,
    validate_produced,
)

CODEC_IDS = dict(zip(CODECS, range(5), strict=True))
# kafka-python brings gzip alone; the other codecs need packages that Tidelog does not use.
READERS = [pytest.param(aiokafka_records, c, id=f"aiokafka-{c}") for c in CODECS] + [
    pytest.param(kafka_records, c, id=f"kafka-python-{c}") for c in ("none", "gzip")
]

contents = st.one_of(st.none(), st.binary(max_size=300))
rows = st.lists(
    st.tuples(
        contents,
        contents,
        st.lists(st.tuples(st.text(max_size=20), st.one_of(st.none(), st.binary(max_size=20))), max_size=3),
        st.integers(min_value=0, max_value=2**53),
    ),
    min_size=1,
    max_size=40,
)
producers = st.one_of(
    st.just((-1, -1, -1)),
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)),
)


def reader_of(library: ModuleType) -> Any:
    return library.DefaultRecordBatch


def foreign_batch(library: ModuleType, codec: str, records: Any, producer: Any = (-1, -1, -1)) -> bytes:
    builder = library.DefaultRecordBatchBuilder(2, CODEC_IDS[codec], False, *producer, 2**30)
    for offset, (key, value, headers, timestamp_ms) in enumerate(records):
        assert builder.append(offset, timestamp_ms, key, value, headers) is not None
    return bytes(builder.build())


def own_batch(codec: str, records: Any, producer: Any = (-1, -1, -1)) -> bytes:
    builder = RecordBatchBuilder(codec)
    for expected, (key, value, headers, timestamp_ms) in enumerate(records):
        assert builder.append(key, value, headers, timestamp_ms) == expected
    return builder.build(*producer)


def foreign_rows(records: Any) -> list[Any]:
    return [(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) for r in records]


def own_rows(records: Any) -> list[Any]:
    return [(r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in records]


@pytest.mark.parametrize(("library", "codec"), READERS)
@settings(max_examples=30, deadline=None)
@given(records=rows, producer=producers, base_offset=st.integers(0, 2**60))
def test_batch_reads_equal_in_kafka_clients_when_built_here(
    engine: ModuleType, library: ModuleType, codec: str, records: Any, producer: Any, base_offset: int
) -> None:
    batch = bytearray(own_batch(codec, records, producer))
    validate_produced(batch)
    assign_offsets(batch, base_offset, 7)
    foreign = reader_of(library)(bytes(batch))
    assert foreign.validate_crc()
    header = parse_header(batch)
    assert (foreign.base_offset, foreign.next_offset) == (base_offset, header.next_offset)
    assert (foreign.first_timestamp, foreign.max_timestamp) == (header.base_timestamp, header.max_timestamp)
    assert (foreign.producer_id, foreign.producer_epoch, foreign.base_sequence) == producer
    assert foreign_rows(foreign) == own_rows(read_records(batch))


@pytest.mark.parametrize(("library", "codec"), READERS)
@settings(max_examples=30, deadline=None)
@given(records=rows, producer=producers)
def test_batch_reads_equal_here_when_built_by_kafka_clients(
    engine: ModuleType, library: ModuleType, codec: str, records: Any, producer: Any
) -> None:
    batch = foreign_batch(library, codec, records, producer)
    header = validate_produced(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert [(r.key, r.value, list(r.headers), r.timestamp_ms) for r in read_records(batch)] == records


@settings(max_examples=60, deadline=None)
@given(records=rows, producer=producers)
def test_batch_is_byte_for_byte_the_one_of_kafka_clients_without_compression(
    engine: ModuleType, records: Any, producer: Any
) -> None:
    ours = own_batch("none", records, producer)
    assert ours == foreign_batch(aiokafka_records, "none", records, producer)
    with_epoch = bytearray(foreign_batch(kafka_records, "none", records, producer))
    assign_offsets(with_epoch, 0, -1)
    assert ours == with_epoch


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_compressed_section_reads_equal_in_arrow(engine: ModuleType, codec: str) -> None:
    records = [(None, b"value %d " % i * 20, [], i) for i in range(2000)]
    plain, packed = own_batch("none", records)[HEADER_SIZE:], own_batch(codec, records)[HEADER_SIZE:]
    assert len(packed) < len(plain)
    assert pyarrow.CompressedInputStream(pyarrow.BufferReader(packed), codec).read() == plain


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_records_read_when_arrow_compressed_them(engine: ModuleType, codec: str) -> None:
    records = [(None, b"value %d " % i * 20, [], i) for i in range(2000)]
    builder = RecordBatchBuilder(codec)
    for row in records:
        builder.append(*row)
    batch = builder.build()
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, codec) as stream:
        stream.write(own_batch("none", records)[HEADER_SIZE:])
    foreign = bytearray(batch[:HEADER_SIZE] + sink.getvalue().to_pybytes())
    foreign[8:12] = (len(foreign) - 12).to_bytes(4, "big")
    assign_offsets(foreign, 0, 0, 123)
    assert [r.value for r in read_records(foreign)] == [value for _, value, _, _ in records]
