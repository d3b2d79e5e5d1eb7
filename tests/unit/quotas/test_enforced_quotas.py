"""Quotas on both listeners of a node in memory: the delays of clients that exceed them, and of no others."""

from __future__ import annotations

import importlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import pytest
from support.kafka_requests import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)
from support.metric_values import values

from tidelog import AdminClient, Consumer, KafkaException, Producer, TopicPartition
from tidelog.admin import (
    AlterConfigOpType,
    ClientQuotaAlteration,
    ClientQuotaAlterationOp,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from tidelog.testing import FakeCluster
from tidelog.v1 import admin_service_pb2, admin_service_pb2_grpc, log_service_pb2_grpc
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_foundation.transport.services import OF_NODE
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.messages.fetch_response import decode_response
from tidelog_node.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog_node.kafka.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.quotas.throttle_counts import THROTTLE_TIME, THROTTLED
from tidelog_testing.embedded import Settings

pytestmark = pytest.mark.costly
ALL = ClientQuotaEntity({"user": "ANONYMOUS"})
EACH = ClientQuotaEntity({"user": "ANONYMOUS", "client-id": None})
MEBIBYTE = 1024**2
_BATCH_BYTES = 100_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    """Return a node that measures rates over two seconds, so that they converge soon."""
    made = FakeCluster(auto_create_topics=True)
    node = {**made._settings.node, "quota.window.num": "3"}
    controller = {**made._settings.controller, "controller.quota.window.num": "1"}
    made._settings = Settings(controller, node)
    with made:
        with AdminClient({"bootstrap.servers": made.bootstrap_servers}) as admin:
            admin.create_topics([NewTopic("t", 1, 1), NewTopic("many", 1, 1)])["many"].result(10)
        yield made


@pytest.fixture
def limit(cluster: FakeCluster) -> Iterator[Callable[..., None]]:
    """Return a function that sets quotas; afterwards there are none."""
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:

        def set_quotas(entity: ClientQuotaEntity = ALL, **values: float | None) -> None:
            ops = [ClientQuotaAlterationOp(key, value) for key, value in values.items()]
            admin.alter_client_quotas([ClientQuotaAlteration(entity, ops)])[entity].result(10)

        yield set_quotas
        for entity, values in admin.describe_client_quotas(ClientQuotaFilter.all()).result(10).items():
            set_quotas(entity, **dict.fromkeys(values))
        assert not cluster._running.context.quotas.is_enabled


class Connection:
    """A connection of a Kafka client, which ignores what it is told about throttling."""

    def __init__(self, sock: socket.socket, client_id: str) -> None:
        self.sock = sock
        self.client_id = client_id.encode()

    def send(self, request: Any, version: int) -> None:
        writer = Writer()
        encode(request, writer, version)
        tags = b"\0" if version >= type(request).FLEXIBLE else b""
        head = struct.pack(">hhih", type(request).API_KEY, version, 1, len(self.client_id)) + self.client_id + tags
        body = head + b"".join(writer.chunks())
        self.sock.sendall(struct.pack(">i", len(body)) + body)

    def receive(self) -> Reader:
        size = struct.unpack(">i", self._exactly(4))[0]
        return Reader(memoryview(self._exactly(size)), 4)

    def receive_flexible(self) -> Reader:
        reader = self.receive()
        reader.position += 1
        return reader

    def ask(self, request: Any, version: int) -> Reader:
        self.send(request, version)
        return self.receive()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.sock.recv(size - len(data))
            assert part, "the node has closed the connection"
            data += part
        return data


@contextmanager
def connected(cluster: FakeCluster, client_id: str = "raw") -> Iterator[Connection]:
    host, port = cluster.kafka_bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        yield Connection(sock, client_id)


def batch(size: int = _BATCH_BYTES) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(None, bytes(size))
    return builder.build()


def produced(records: bytes, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks, timeout_ms=1_000, topics=[ProduceTopic(name="t", partitions=[ProducePartition(0, records)])]
    )


def throttle_of_produce(reader: Reader) -> int:
    return int(struct.unpack(">i", reader.view[-4:])[0])


def fetched(max_bytes: int = 10**8) -> FetchRequest:
    partition = FetchPartition(index=0, fetch_offset=0, max_bytes=max_bytes)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        topics=[FetchTopic(name="t", partitions=[partition])],
    )


def test_a_node_without_quotas_measures_nothing(cluster: FakeCluster) -> None:
    with connected(cluster) as client:
        assert throttle_of_produce(client.ask(produced(batch()), 7)) == 0
    assert len(cluster._running.context.quotas.produce) == 0


def test_a_producer_over_its_quota_is_answered_at_once_and_then_muted(cluster: FakeCluster, limit) -> None:
    limit(producer_byte_rate=100_500)
    throttled = cluster._running.context.quotas.throttled
    before = {metric: values(throttled.families(), metric)["produce",] for metric in (THROTTLED, THROTTLE_TIME)}
    with connected(cluster) as client, connected(cluster, "other") as other:
        # Two whole windows of the limit are free.
        begin = time.monotonic()
        throttles = [throttle_of_produce(client.ask(produced(batch()), 7)) for _ in range(3)]
        assert time.monotonic() - begin < 0.5, "the response that tells of the delay is not delayed"
        assert throttles[:2] == [0, 0]
        assert 900 <= throttles[2] <= 1_100
        counted = {metric: values(throttled.families(), metric)["produce",] for metric in before}
        assert counted[THROTTLED] == before[THROTTLED] + 1
        assert counted[THROTTLE_TIME] == pytest.approx(before[THROTTLE_TIME] + throttles[2] / 1000, abs=0.1)
        client.send(produced(batch(10)), 7)
        # Another connection goes on meanwhile, but with the same user it is told to wait as well.
        assert other.ask(MetadataRequest(topics=None), 9).remaining > 0
        assert time.monotonic() - begin < 0.8
        client.receive()
        assert time.monotonic() - begin >= throttles[2] / 1000 - 0.1


def test_a_producer_with_acks_0_is_muted_without_a_response(cluster: FakeCluster, limit) -> None:
    limit(producer_byte_rate=100_500)
    with connected(cluster) as client:
        begin = time.monotonic()
        for _ in range(3):
            client.send(produced(batch(), acks=0), 7)
        decode(MetadataResponse, client.ask(MetadataRequest(topics=None), 8), 8)
        assert time.monotonic() - begin >= 0.9


def test_a_producer_that_ignores_its_delays_converges_to_its_quota(cluster: FakeCluster, limit) -> None:
    limit(producer_byte_rate=200_000)
    with connected(cluster) as client:
        sent, begin, counted = batch(10_000), time.monotonic(), 0
        while (elapsed := time.monotonic() - begin) < 5:
            client.ask(produced(sent), 7)
            counted += len(sent) if elapsed >= 2 else 0
        assert counted / 3 == pytest.approx(200_000, rel=0.15)


def test_a_fetch_over_the_quota_is_empty_and_the_next_one_is_not(cluster: FakeCluster, limit) -> None:
    with connected(cluster) as client:
        client.ask(produced(batch()), 7)
        full = decode_response(client.ask(fetched(), 11), 11)
        [size] = {full.size}
        assert size > 100_000
        limit(consumer_byte_rate=60_000)
        first = decode_response(client.ask(fetched(110_000), 11), 11)
        assert (first.size > 100_000, first.throttle_time_ms) == (True, 0)
        over = decode_response(client.ask(fetched(110_000), 11), 11)
        assert (over.size, over.topics) == (0, {})
        assert 500 <= over.throttle_time_ms <= 2_000
        begin = time.monotonic()
        while not decode_response(client.ask(fetched(110_000), 11), 11).size:
            pass
        assert time.monotonic() - begin >= over.throttle_time_ms / 1000 - 0.1


def test_a_fetch_is_no_larger_than_the_quota_ever_permits(cluster: FakeCluster, limit) -> None:
    limit(consumer_byte_rate=200_000)
    with connected(cluster) as client:
        for _ in range(6):
            client.ask(produced(batch()), 7)
        first = decode_response(client.ask(fetched(), 11), 11)
        assert 0 < first.size <= 400_000, "two windows of the limit"
        assert first.throttle_time_ms == 0


def test_the_time_of_requests_is_limited_to_a_share_of_the_loop(cluster: FakeCluster, limit) -> None:
    limit(request_percentage=0.01)
    with connected(cluster) as client:
        throttles = [0]
        deadline = time.monotonic() + 10
        while not throttles[-1] and time.monotonic() < deadline:
            answer = decode(MetadataResponse, client.ask(MetadataRequest(topics=None), 8), 8)
            throttles.append(answer.throttle_time_ms)
        assert throttles[-1] > 0
        assert max(throttles) <= 1_000, "no delay is longer than a window"


@pytest.mark.parametrize(("version", "code"), [(5, 0), (6, 89)])
def test_topics_over_the_quota_of_mutations_are_refused_to_clients_that_know_the_error(
    cluster: FakeCluster, limit, version: int, code: int
) -> None:
    limit(EACH, controller_mutation_rate=4)
    with connected(cluster, f"creator-{version}") as client:

        def create(name: str) -> CreateTopicsResponse:
            request = CreateTopicsRequest([CreatableTopic(f"{name}-{version}", 6, 1)], 5_000)
            client.send(request, version)
            return decode(CreateTopicsResponse, client.receive_flexible(), version)

        first, second = create("a"), create("b")
        assert [t.error_code for t in first.topics] == [0]
        assert [t.error_code for t in second.topics] == [code]
        assert 100 <= second.throttle_time_ms <= 2_500
        begin = time.monotonic()
        client.ask(MetadataRequest(topics=None), 8)
        assert time.monotonic() - begin >= second.throttle_time_ms / 1000 - 0.1


def test_the_sdk_is_refused_mutations_over_the_quota(cluster: FakeCluster, limit) -> None:
    limit(EACH, controller_mutation_rate=1)
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "sdk"}) as admin:
        admin.create_topics([NewTopic("extended", 3, 1)])["extended"].result(10)
        with pytest.raises(KafkaException, match="THROTTLING_QUOTA_EXCEEDED"):
            admin.create_partitions([NewPartitions("extended", 4)])["extended"].result(10)
        begin = time.monotonic()
        admin.delete_topics(["extended"])["extended"].result(10)
        assert time.monotonic() - begin > 0.5, "the next mutation waits until the debt is paid"


@pytest.mark.parametrize("protocol", ["kafka", "grpc"])
def test_topics_that_a_client_requests_by_metadata_count_for_its_quota(
    cluster: FakeCluster, limit, protocol: str
) -> None:
    limit(EACH, controller_mutation_rate=0.01)

    def request(client_id: str, topic: str) -> None:
        if protocol == "kafka":
            with connected(cluster, client_id) as client:
                client.ask(MetadataRequest([MetadataRequestTopic(name=topic)]), 8)
            return
        agent = [("grpc.primary_user_agent", client_id)]
        with grpc.insecure_channel(cluster.bootstrap_servers, agent) as channel:
            metadata = pb.GetMetadataRequest(topics=[topic], allow_auto_topic_creation=True)
            log_service_pb2_grpc.LogServiceStub(channel).GetMetadata(metadata, timeout=5)

    def wait_for(topic: str) -> None:
        deadline = time.monotonic() + 10
        while topic not in cluster._running.context.metadata.image.topics:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    first, second, other = (f"{name}-{protocol}" for name in ("first", "second", "other"))
    request(f"greedy-{protocol}", first)
    wait_for(first)
    request(f"greedy-{protocol}", second)
    # Topics are created in the order of the requests.
    request(f"modest-{protocol}", other)
    wait_for(other)
    assert second not in cluster._running.context.metadata.image.topics


def test_mutations_of_clients_of_a_controller_count_for_their_quota(cluster: FakeCluster, limit) -> None:
    limit(EACH, controller_mutation_rate=0.01)
    [(host, port)] = cluster._running.context.voters.values()
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        create = admin_service_pb2_grpc.AdminServiceStub(channel).CreateTopics

        def code_of(name: str, **options: Any) -> int:
            topic = admin_service_pb2.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            request = admin_service_pb2.CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
            return int(create(request, timeout=10, **options).topics[0].error.code)

        exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED.code
        assert [code_of("direct-1"), code_of("direct-2")] == [0, exceeded]
        assert code_of("of-node", metadata=OF_NODE) == 0


def test_a_producer_of_the_sdk_converges_to_its_quota(cluster: FakeCluster, limit) -> None:
    limit(producer_byte_rate=200_000)
    acknowledged = []
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "batch.size": 5_000}) as producer:
        begin = time.monotonic()
        while time.monotonic() - begin < 5:
            for _ in range(20):
                producer.produce("t", bytes(1_000), on_delivery=lambda *_: acknowledged.append(time.monotonic()))
            producer.flush(10)
        end = time.monotonic()
    counted = sum(begin + 2 <= at < end for at in acknowledged)
    assert counted * 1_000 / (end - begin - 2) == pytest.approx(200_000, rel=0.15)


def test_a_fetch_over_grpc_is_empty_and_the_next_one_waits_unread(cluster: FakeCluster, limit) -> None:
    with connected(cluster) as client:
        client.ask(produced(batch()), 7)
    limit(consumer_byte_rate=60_000)
    request = pb.FetchRequest(
        min_bytes=1,
        max_bytes=110_000,
        topics=[
            pb.FetchTopic(
                name="t", partitions=[pb.FetchPartition(index=0, fetch_offset=0, partition_max_bytes=110_000)]
            )
        ],
    )
    with grpc.insecure_channel(cluster.bootstrap_servers) as channel:
        stub = log_service_pb2_grpc.LogServiceStub(channel)
        assert stub.Fetch(request).throttle_time_ms == 0
        over, call = stub.Fetch.with_call(request)
        assert (len(over.topics), over.throttle_time_ms > 300) == (0, True)
        assert int(dict(call.trailing_metadata())["tidelog-throttle-time-ms"]) > 300
        with pytest.raises(grpc.RpcError) as caught:
            stub.Fetch(request, timeout=0.1)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        # Calls that the quota does not govern do not wait.
        stub.GetMetadata(pb.GetMetadataRequest(all_topics=True), timeout=5)


def test_fetches_of_nodes_are_exempt_and_a_client_cannot_pass_for_one(cluster: FakeCluster, limit) -> None:
    limit(consumer_byte_rate=1)
    request = pb.FetchRequest(
        max_bytes=10**6,
        topics=[pb.FetchTopic(name="t", partitions=[pb.FetchPartition(index=0, partition_max_bytes=10**6)])],
    )
    with grpc.insecure_channel(cluster.bootstrap_servers) as channel:
        stub = log_service_pb2_grpc.LogServiceStub(channel)
        with pytest.raises(grpc.RpcError, match="a fetch between nodes names no replica"):
            stub.Fetch(request, metadata=(("tidelog-of-node", "1"),))
        request.replica.replica_id = 5
        for _ in range(3):
            assert stub.Fetch(request, timeout=1, metadata=(("tidelog-of-node", "1"),)).throttle_time_ms == 0


def test_quotas_of_a_client_id_leave_others_alone(cluster: FakeCluster, limit) -> None:
    limit(ClientQuotaEntity({"client-id": "greedy"}), producer_byte_rate=1_000)
    with connected(cluster, "greedy") as greedy, connected(cluster, "modest") as modest:
        assert throttle_of_produce(greedy.ask(produced(batch()), 7)) > 1_000
        begin = time.monotonic()
        for _ in range(20):
            assert throttle_of_produce(modest.ask(produced(batch(1_000)), 7)) == 0
        assert time.monotonic() - begin < 1


def test_connections_of_an_address_over_its_quota_are_held_and_closed(cluster: FakeCluster, limit) -> None:
    limit(ClientQuotaEntity({"ip": "127.0.0.1"}), connection_creation_rate=2)
    outcomes = []
    for _ in range(6):
        begin = time.monotonic()
        with connected(cluster) as client:
            try:
                client.ask(MetadataRequest(topics=None), 8)
                outcomes.append(0.0)
            except (AssertionError, ConnectionError):
                outcomes.append(time.monotonic() - begin)
    assert outcomes[:4] == [0.0] * 4, "two windows of the limit are free"
    assert all(0.1 <= held <= 1.5 for held in outcomes[4:5])
    limit(ClientQuotaEntity({"ip": "127.0.0.1"}), connection_creation_rate=None)
    with connected(cluster) as client:
        client.ask(MetadataRequest(topics=None), 8)


def test_a_listener_over_its_rate_accepts_later_and_refuses_none(cluster: FakeCluster) -> None:
    resource = ConfigResource("BROKER", "1", incremental_configs=[_setting("max.connection.creation.rate", "2")])
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.incremental_alter_configs([resource])[resource].result(10)
        try:
            begin = time.monotonic()
            for _ in range(7):
                with connected(cluster) as client:
                    client.ask(MetadataRequest(topics=None), 8)
            assert 0.3 <= time.monotonic() - begin <= 5
        finally:
            back = ConfigResource(
                "BROKER", "1", incremental_configs=[_setting("max.connection.creation.rate", "2147483647")]
            )
            admin.incremental_alter_configs([back])[back].result(10)


def test_an_address_has_no_more_grpc_connections_with_calls_than_the_limit(cluster: FakeCluster) -> None:
    def alter(admin: AdminClient, value: str) -> None:
        resource = ConfigResource("BROKER", "1", incremental_configs=[_setting("max.connections.per.ip", value)])
        admin.incremental_alter_configs([resource])[resource].result(10)

    partition = pb.FetchPartition(index=0, fetch_offset=0, partition_max_bytes=10**6)
    waiting = pb.FetchRequest(max_wait_ms=5_000, min_bytes=10**9, max_bytes=10**9)
    waiting.topics.add(name="many", partitions=[partition])
    everything = pb.GetMetadataRequest(all_topics=True)
    own = [("grpc.use_local_subchannel_pool", 1)]
    with (
        AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin,
        grpc.insecure_channel(cluster.bootstrap_servers, own) as first,
        grpc.insecure_channel(cluster.bootstrap_servers, own) as second,
    ):
        stubs = [log_service_pb2_grpc.LogServiceStub(channel) for channel in (first, second)]
        alter(admin, "1")
        try:
            pending = stubs[0].Fetch.future(waiting)
            deadline = time.monotonic() + 10
            refusal = None
            while refusal is None:
                assert time.monotonic() < deadline
                if pending.done():
                    # The administrator's call had not ended yet, or no refusal came while it waited.
                    pending = stubs[0].Fetch.future(waiting)
                try:
                    stubs[1].GetMetadata(everything, timeout=5)
                except grpc.RpcError as error:
                    refusal = str(error)
            assert "max.connections.per.ip" in refusal
            stubs[0].GetMetadata(everything, timeout=5)
            pending.cancel()
            while True:
                with suppress(grpc.RpcError):
                    stubs[1].GetMetadata(everything, timeout=5)
                    break
        finally:
            alter(admin, "2147483647")


def _setting(key: str, value: str) -> ConfigEntry:
    return ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)


@pytest.mark.parametrize("library", ["tidelog", "confluent_kafka"])
def test_a_consumer_over_its_quota_goes_on_at_about_its_rate(cluster: FakeCluster, limit, library: str) -> None:
    limit(consumer_byte_rate=200_000)
    client = importlib.import_module(library)
    servers = cluster.bootstrap_servers if library == "tidelog" else cluster.kafka_bootstrap_servers
    settings = {"bootstrap.servers": servers, "group.id": library, "max.partition.fetch.bytes": 20_000}
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.size": 10_000}) as producer:
        for _ in range(2_500):
            producer.produce("many", bytes(1_000), partition=0)
        producer.flush(30)
    consumer = client.Consumer(settings)
    consumer.assign([client.TopicPartition("many", 0, 0)])
    read: list[float] = []
    while not read or time.monotonic() - read[0] < 5:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            read.append(time.monotonic())
    consumer.close()
    assert sum(read[0] + 2 <= at for at in read) * 1_000 / 3 == pytest.approx(200_000, rel=0.4)


def test_throttle_cb_is_told_of_delays(cluster: FakeCluster, limit) -> None:
    limit(producer_byte_rate=50_000, consumer_byte_rate=50_000)
    servers, produced, fetched_events = {"bootstrap.servers": cluster.bootstrap_servers}, [], []
    with Producer({**servers, "throttle_cb": produced.append}) as producer:
        producer.produce("many", bytes(150_000), partition=0)
        producer.flush(10)
        producer.poll(0)
    with Consumer({**servers, "group.id": "g", "throttle_cb": fetched_events.append}) as consumer:
        consumer.assign([TopicPartition("many", 0, 0)])
        deadline = time.monotonic() + 10
        while not fetched_events and time.monotonic() < deadline:
            consumer.poll(0.2)
    for event in (produced[0], fetched_events[0]):
        assert (event.broker_name, event.broker_id) == (cluster.bootstrap_servers, 1)
        assert 0 < event.throttle_time < 10
