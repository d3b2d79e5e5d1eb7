"""Both directions against the readers and writers of kafka-python and aiokafka, and Arrow's own codecs."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import aiokafka.record.memory_records as aiokafka_memory
import kafka.record.default_records as kafka_records
import kafka.record.memory_records as kafka_memory
import lz4.frame
import pyarrow
import pytest
import snappy
import zstandard
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from recompression import recompress

from tidelog_foundation.records import (
    CODECS,
    HEADER_SIZE,
    RecordBatchBuilder,
    assign_offsets,
    control_batch,
    encode_batch,
    inspect_produced,
    iter_headers,
    parse_header,
    read_control,
    read_records,
    to_arrow,
)

CODEC_IDS = dict(zip(CODECS, range(5), strict=True))
READERS = [pytest.param(aiokafka_records, codec, id=f"aiokafka-{codec}") for codec in CODECS] + [
    pytest.param(kafka_records, codec, id=f"kafka-python-{codec}") for codec in CODECS
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
    st.just((-1, -1, -1, False)),
    st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.booleans()),
)
NO_PRODUCER = (-1, -1, -1, False)


def reader_of(library: ModuleType) -> Any:
    return library.DefaultRecordBatch


def foreign_batch(library: ModuleType, codec: str, records: Any, producer: Any = NO_PRODUCER) -> bytes:
    *identity, is_transactional = producer
    builder = library.DefaultRecordBatchBuilder(2, CODEC_IDS[codec], is_transactional, *identity, 2**30)
    for offset, (key, value, headers, timestamp_ms) in enumerate(records):
        assert builder.append(offset, timestamp_ms, key, value, headers) is not None
    return bytes(builder.build())


def own_batch(codec: str, records: Any, producer: Any = NO_PRODUCER) -> bytes:
    builder = RecordBatchBuilder(codec)
    for expected, (key, value, headers, timestamp_ms) in enumerate(records):
        assert builder.append(key, value, headers, timestamp_ms) == expected
    return builder.build(*producer)


def foreign_rows(records: Any) -> list[Any]:
    return [(r.offset, r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) for r in records]


def own_rows(records: Any) -> list[Any]:
    return [(r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in records]


@pytest.mark.parametrize(("library", "codec"), READERS)
@settings(max_examples=examples(15), deadline=None)
@given(records=rows, producer=producers, base_offset=st.integers(0, 2**60))
def test_batch_reads_equal_in_kafka_clients_when_built_here(
    engine: ModuleType, library: ModuleType, codec: str, records: Any, producer: Any, base_offset: int
) -> None:
    batch = bytearray(own_batch(codec, records, producer))
    inspect_produced(batch)
    assign_offsets(batch, base_offset, 7)
    foreign = reader_of(library)(bytes(batch))
    assert foreign.validate_crc()
    header = parse_header(batch)
    assert (foreign.base_offset, foreign.next_offset) == (base_offset, header.next_offset)
    assert (foreign.first_timestamp, foreign.max_timestamp) == (header.base_timestamp, header.max_timestamp)
    assert (foreign.producer_id, foreign.producer_epoch, foreign.base_sequence) == producer[:3]
    assert (bool(foreign.is_transactional), bool(foreign.is_control_batch)) == (producer[3], False)
    assert foreign_rows(foreign) == own_rows(read_records(batch))


@pytest.mark.parametrize(("library", "codec"), READERS)
@settings(max_examples=examples(15), deadline=None)
@given(records=rows, producer=producers)
def test_batch_reads_equal_here_when_built_by_kafka_clients(
    engine: ModuleType, library: ModuleType, codec: str, records: Any, producer: Any
) -> None:
    batch = foreign_batch(library, codec, records, producer)
    header = inspect_produced(batch).header
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == producer
    assert [(r.key, r.value, list(r.headers), r.timestamp_ms) for r in read_records(batch)] == records


@settings(max_examples=examples(60), deadline=None)
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


RECORDS = [
    (None, b"value %d " % i * (i % 30), [("h", b"x"), ("n", None)][: i % 3], 1_700_000_000_000 + i) for i in range(800)
]
MEMORIES = [
    pytest.param(aiokafka_memory, aiokafka_records, id="aiokafka"),
    pytest.param(kafka_memory, kafka_records, id="kafka-python"),
]


def wrapped(codec: str, section: bytes) -> bytes:
    """Return the batch of ``RECORDS`` with a compressed section that somebody else made."""
    header = parse_header(own_batch("none", RECORDS))
    return encode_batch(header._replace(attributes=CODEC_IDS[codec]), section)


def plain_section() -> bytes:
    return own_batch("none", RECORDS)[HEADER_SIZE:]


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[place : place + size] for place in range(0, len(data), size)]


def xerial(data: bytes, block_size: int) -> bytes:
    """Compress as snappy-java does: a header of 16 bytes, then blocks behind their lengths."""
    blocks = [snappy.compress(block) for block in cut(data, block_size)]
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + b"".join(len(b).to_bytes(4, "big") + b for b in blocks)


def zstd_stream(data: bytes, **options: Any) -> bytes:
    """Compress without knowing the size before, as a streaming producer does."""
    compressor = zstandard.ZstdCompressor(**options).compressobj()
    return b"".join(compressor.compress(part) for part in cut(data, 10_000)) + compressor.flush()


FORMS: list[tuple[str, str, Callable[[bytes], bytes]]] = [
    ("gzip", "one member", gzip.compress),
    ("gzip", "several members", lambda data: b"".join(map(gzip.compress, cut(data, 20_000)))),
    ("gzip", "file name", lambda data: gzip_with_name(data)),
    ("gzip", "stored", lambda data: gzip.compress(data, 0)),
    ("snappy", "raw, as by librdkafka", snappy.compress),
    ("snappy", "xerial", lambda data: xerial(data, 32 * 1024)),
    ("snappy", "xerial of odd blocks", lambda data: xerial(data, 777)),
    ("lz4", "linked blocks", lambda data: lz4.frame.compress(data, block_linked=True)),
    ("lz4", "independent blocks", lambda data: lz4.frame.compress(data, block_linked=False)),
    ("lz4", "all checksums", lambda data: lz4.frame.compress(data, content_checksum=True, block_checksum=True)),
    ("lz4", "content size", lambda data: lz4.frame.compress(data, store_size=True)),
    ("lz4", "no content size", lambda data: lz4.frame.compress(data, store_size=False, compression_level=12)),
    ("lz4", "blocks of 4 MiB", lambda data: lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    ("zstd", "content size", zstandard.ZstdCompressor().compress),
    ("zstd", "no content size", zstd_stream),
    ("zstd", "checksum", lambda data: zstd_stream(data, write_checksum=True, level=19)),
    ("zstd", "several frames", lambda data: b"".join(map(zstandard.ZstdCompressor().compress, cut(data, 20_000)))),
]


def gzip_with_name(data: bytes) -> bytes:
    sink = io.BytesIO()
    with gzip.GzipFile("a name", "wb", fileobj=sink, mtime=5) as stream:
        stream.write(data)
    return sink.getvalue()


@pytest.mark.parametrize(("codec", "compressor"), [pytest.param(c, f, id=f"{c}: {name}") for c, name, f in FORMS])
def test_every_form_of_a_codec_is_read(engine: ModuleType, codec: str, compressor: Callable[[bytes], bytes]) -> None:
    batch = wrapped(codec, compressor(plain_section()))
    assert parse_header(batch).compression == codec
    assert own_rows(read_records(batch)) == own_rows(read_records(own_batch("none", RECORDS)))
    assert recompress(batch, "none") == own_batch("none", RECORDS)


@pytest.mark.parametrize(("memory", "library"), MEMORIES)
def test_several_batches_in_a_row_are_read_by_each_other(
    engine: ModuleType, memory: ModuleType, library: ModuleType
) -> None:
    log, offset = b"", 1000
    for i, codec in enumerate(CODECS * 2):
        rows_here = RECORDS[70 * i : 70 * i + 50]
        build = own_batch if i % 2 else partial(foreign_batch, library)
        batch = bytearray(build(codec, rows_here))
        assign_offsets(batch, offset, 3)
        marker = bytearray(control_batch(i % 2, 9, 1, 5, 77))
        assign_offsets(marker, offset + len(rows_here), 3)
        log, offset = log + batch + marker, offset + len(rows_here) + 1
    foreign, reader = [], memory.MemoryRecords(log)
    while reader.has_next():
        foreign.append(reader.next_batch())
    assert [bool(batch.is_control_batch) for batch in foreign] == [False, True] * 10
    own = [read_records(log, position) for position, _ in iter_headers(log)]
    for ours, theirs in zip(own, foreign, strict=True):
        assert foreign_rows(theirs) == own_rows(ours)
    markers = [read_control(log, position) for position, header in iter_headers(log) if header.is_control]
    assert [int(marker.kind) for marker in markers if marker] == [0, 1] * 5
    columns = to_arrow(log, 0, 2**62)
    assert columns.column("offset").to_pylist() == [r.offset for batch in own[::2] for r in batch]
    assert columns.column("value").to_pylist() == [r.value for batch in own[::2] for r in batch]


@pytest.mark.parametrize(("library", "codec"), READERS)
def test_recompressed_batch_is_read_by_kafka_clients(engine: ModuleType, library: ModuleType, codec: str) -> None:
    for source in CODECS:
        batch = recompress(foreign_batch(library, source, RECORDS[:200], (7, 1, 5, True)), codec)
        assert parse_header(batch).compression == codec
        foreign = reader_of(library)(batch)
        assert foreign.validate_crc()
        assert (foreign.producer_id, foreign.base_sequence, bool(foreign.is_transactional)) == (7, 5, True)
        assert foreign_rows(foreign) == own_rows(read_records(batch))
