"""Record batches with valid checksums that cost a leader much: compression bombs, garbage, many records.

It also has the requests that carry them, in both protocols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.support.kafka_requests import ProducePartition, ProduceRequest, ProduceTopic
from tests.support.worst_requests import serialized
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.records import HEADER_SIZE, RecordBatchBuilder, encode_batch, parse_header

_MIB = 1024**2
_RATIO = 900
_LARGEST_VALUE = 60 * _MIB
_LARGEST_BATCH = 1_000_000
_BY_NAME = 12
"""The last version of Produce with topic names."""


def hostile_batches(size: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each batch. None exceeds ``size`` by more than its header."""
    size = min(size, _LARGEST_BATCH)
    for codec in ("gzip", "zstd"):
        yield f"a bomb of {codec}", _batch([bytes(min(size * _RATIO, _LARGEST_VALUE))], codec)
    yield "a bomb of zstd above the limit", _batch([bytes(2 * _LARGEST_VALUE)], "zstd")
    yield "many empty records", _batch([b""] * (size // 8), "none")
    yield "many empty records of zstd", _batch([b""] * min(100 * size, 1_000_000), "zstd")
    plain = _batch([b""], "none")
    for codec in range(1, 5):
        header = parse_header(plain)._replace(attributes=codec, record_count=2**31 - 1, last_offset_delta=2**31 - 2)
        yield f"garbage of codec {codec}", encode_batch(header, b"\xff" * max(7, size - HEADER_SIZE))


def kafka_produce(topic: str, records: Sequence[bytes]) -> bytes:
    """Return the frame that appends a batch to each of a topic's first partitions."""
    partitions = [ProducePartition(index, batch) for index, batch in enumerate(records)]
    request = ProduceRequest(None, -1, 30_000, [ProduceTopic(topic, bytes(16), partitions)])
    return serialized(request, ProduceRequest, _BY_NAME)


def grpc_produce(topic: str, records: Sequence[bytes]) -> bytes:
    """Return the corresponding gRPC request."""
    partitions = [pb.ProducePartition(index=index, records=batch) for index, batch in enumerate(records)]
    topics = [pb.ProduceTopic(name=topic, partitions=partitions)]
    return pb.ProduceRequest(acks=pb.ACKS_ALL, timeout_ms=30_000, topics=topics).SerializeToString()


def _batch(values: Sequence[bytes], codec: str) -> bytes:
    builder = RecordBatchBuilder(codec)
    for value in values:
        builder.append(b"k", value, (), 1_000)
    return builder.build()
