"""Records of one client, read by every other one, with each compression; and by Tidelog's own client over gRPC."""

from __future__ import annotations

import time
import uuid

import pytest
from compat.clients.all import NAMES, SDK, client
from compat.clients.client import Client
from compat.clients.record import CODECS, Headers, Received, Record
from compat.cluster import Deployment

BASE_MS = 1_700_000_000_123
CLOCKS_MS = 300_000


def sample(writer: Client, partition: int) -> list[Record]:
    """Return records that are hard to carry: nulls, nothing, headers twice, and enough that compressing pays."""
    headers: Headers = (("source", b"flights"), ("source", b"again"), ("empty", b""))
    if writer.takes_null_headers:
        headers = (*headers, ("null", None))
    plain = [
        Record(b"a value", b"a key", headers),
        Record(None, b"a deleted key", headers[:1]),
        Record(b"a value without a key"),
        *(Record(b"x" * 1_000, b"key %d" % i) for i in range(20)),
    ]
    times = [BASE_MS + i * 7 if writer.takes_timestamps else None for i in range(len(plain))]
    return [Record(r.value, r.key, r.headers, at, partition) for r, at in zip(plain, times, strict=True)]


@pytest.fixture(scope="session")
def written(cluster: Deployment) -> dict[str, str]:
    """The topics by the client that wrote them, as tests ask for them."""
    return {}


def topic_of(writer: Client, cluster: Deployment, written: dict[str, str]) -> str:
    """Return the topic that a client wrote, with a partition for each codec."""
    if writer.name not in written:
        topic = cluster.create(f"written-by-{writer.name}-{uuid.uuid4()}", partitions=len(CODECS), replicas=3)
        for partition, codec in enumerate(CODECS):
            writer.produce(cluster.servers, topic, sample(writer, partition), codec)
        written[writer.name] = topic
    return written[writer.name]


def assert_read(read: list[Received], writer: Client) -> None:
    by_partition = {p: [r for r in read if r.partition == p] for p in range(len(CODECS))}
    for partition, codec in enumerate(CODECS):
        got, expected = by_partition[partition], sample(writer, partition)
        assert [r.offset for r in got] == list(range(len(expected))), codec
        assert [(r.key, r.value, r.headers) for r in got] == [(r.key, r.value, r.headers) for r in expected], codec
        now = time.time() * 1000
        for record, sent in zip(got, expected, strict=True):
            wanted, allowed = (now, CLOCKS_MS) if sent.timestamp_ms is None else (sent.timestamp_ms, 0)
            assert abs(record.timestamp_ms - wanted) <= allowed


@pytest.mark.parametrize("reader", NAMES)
@pytest.mark.parametrize("writer", NAMES)
def test_records_by_one_client_are_read_by_another(
    cluster: Deployment, written: dict[str, str], writer: str, reader: str
) -> None:
    source = client(writer)
    topic = topic_of(source, cluster, written)
    count = sum(len(sample(source, p)) for p in range(len(CODECS)))
    assert_read(client(reader).consume(cluster.servers, topic, count, len(CODECS)), source)


@pytest.mark.parametrize("writer", NAMES)
def test_records_by_any_client_are_read_over_grpc(cluster: Deployment, written: dict[str, str], writer: str) -> None:
    if cluster.sdk_servers is None:
        pytest.skip("Apache Kafka has no gRPC")
    source = client(writer)
    topic = topic_of(source, cluster, written)
    count = sum(len(sample(source, p)) for p in range(len(CODECS)))
    assert_read(SDK.consume(cluster.sdk_servers, topic, count, len(CODECS)), source)


@pytest.mark.parametrize("reader", NAMES)
def test_records_written_over_grpc_are_read_by_any_client(
    cluster: Deployment, written: dict[str, str], reader: str
) -> None:
    if cluster.sdk_servers is None:
        pytest.skip("Apache Kafka has no gRPC")
    found = client(reader)
    if SDK.name not in written:
        topic = cluster.create("written-over-grpc", partitions=len(CODECS), replicas=3)
        for partition, codec in enumerate(CODECS):
            SDK.produce(cluster.sdk_servers, topic, sample(SDK, partition), codec)
        written[SDK.name] = topic
    count = sum(len(sample(SDK, p)) for p in range(len(CODECS)))
    assert_read(found.consume(cluster.servers, written[SDK.name], count, len(CODECS)), SDK)


@pytest.mark.parametrize("writer", NAMES)
def test_compressed_batches_stay_compressed(cluster: Deployment, written: dict[str, str], writer: str) -> None:
    """KAFKA-18659: librdkafka compresses nothing, without a word, where Produce starts with too new a version."""
    topic = topic_of(client(writer), cluster, written)
    found = [cluster.codecs_on_disk(topic, p) for p in range(len(CODECS))]
    # A batch of one small record may stay as it is: it would grow.
    assert [codecs - {"none"} or codecs for codecs in found] == [{codec} for codec in CODECS]
