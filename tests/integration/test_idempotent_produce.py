"""Idempotent batches against real nodes: sent again across restarts and changes of leader, each is stored once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from acknowledged import create_topic, isr_sizes, wait_for

from tidelog import Consumer, TopicPartition
from tidelog.cluster import LATEST_TIMESTAMP, ClusterClient
from tidelog.testing import LocalCluster
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_foundation.transport import run_sync

TOPIC = "payments"
PRODUCER_ID = 4_711
RETRY_S = 0.1
DEADLINE_S = 60


class RawProducer:
    """Sends one batch after the other until each is acknowledged, as an idempotent producer of one batch in flight."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._client = ClusterClient(cluster.bootstrap_servers)
        self.offsets: list[int] = []
        self.sequence = 0

    def close(self) -> None:
        run_sync(self._client.close())

    def send(self, count: int = 3) -> None:
        """Send the next batch until it is acknowledged."""
        sequence, self.sequence = self.sequence, self.sequence + count
        self.offsets += range(offset := self.retry(sequence, count), offset + count)

    def retry(self, sequence: int, count: int = 3) -> int:
        """Send a batch until it is acknowledged; return its base offset."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return self.send_once(sequence, count)
            except TidelogError as error:
                if not error.code.retriable or time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)
                with contextlib.suppress(TidelogError):
                    run_sync(self._client.refresh([TOPIC], timeout_ms=1_000), 5)

    def send_once(self, sequence: int, count: int, epoch: int = 0) -> int:
        """Send a batch to who leads as far as is known; raises the partition's error."""
        records = batch(sequence, count, epoch)

        async def call() -> pb.ProduceResponse:
            leader = await self._client.leader(TOPIC, 0, timeout_ms=2_000)
            item = pb.ProducePartition(index=0, records=records)
            topics = [pb.ProduceTopic(name=TOPIC, partitions=[item])]
            request = pb.ProduceRequest(acks=pb.ACKS_ALL, timeout_ms=2_000, topics=topics)
            connection = self._client.connection(leader.node_id)
            response: pb.ProduceResponse = await connection.call(lambda c: c.log.Produce(request, timeout=3))
            return response

        result = run_sync(call(), 10).topics[0].partitions[0]
        if result.HasField("error"):
            raise TidelogError(ErrorCode.of(result.error.code), result.error.message)
        return int(result.base_offset)

    def code_of(self, sequence: int, epoch: int = 0, count: int = 1) -> ErrorCode:
        """Return how a batch is refused."""
        try:
            self.send_once(sequence, count, epoch)
        except TidelogError as error:
            return error.code
        return ErrorCode.NONE

    def end_offset(self) -> int:
        found = run_sync(self._client.list_offsets({(TOPIC, 0): LATEST_TIMESTAMP}, timeout_ms=30_000), 40)
        return int(found[TOPIC, 0].offset)


def batch(sequence: int, count: int, epoch: int = 0) -> bytes:
    builder = RecordBatchBuilder()
    for number in range(sequence, sequence + count):
        builder.append(b"key", b"%d" % number, (), int(time.time() * 1000))
    return builder.build(producer_id=PRODUCER_ID, producer_epoch=epoch, base_sequence=sequence)


@contextlib.contextmanager
def raw_producer(cluster: LocalCluster) -> Iterator[RawProducer]:
    producer = RawProducer(cluster)
    try:
        yield producer
    finally:
        producer.close()


def assert_stored_once(cluster: LocalCluster, producer: RawProducer) -> None:
    """No duplicate, no gap: the log is the numbers in their order, and every answer named the offset of its records."""
    assert producer.offsets == list(range(producer.sequence))
    assert producer.end_offset() == producer.sequence
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        values = [m.value() for m in consumer.consume(producer.sequence, 30)]
    assert values == [b"%d" % number for number in range(producer.sequence)]


def test_a_node_knows_its_producers_after_a_stop_and_after_a_kill() -> None:
    with LocalCluster(controllers=1, nodes=1) as cluster:
        create_topic(cluster, TOPIC, 1, 1)
        node = cluster.nodes[1]
        with raw_producer(cluster) as producer:
            for end_process in (node.stop, node.kill):
                for _ in range(7):
                    producer.send()
                end_process()
                node.start()
                cluster.wait_ready()
                last = producer.sequence
                last_five = [last - 3 * back for back in range(1, 6)]
                assert [producer.retry(sequence) for sequence in last_five] == last_five
                assert producer.code_of(last - 18, count=3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                assert producer.code_of(last + 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                assert producer.code_of(0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                assert producer.code_of(last, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            producer.send()
            assert_stored_once(cluster, producer)
            assert producer.send_once(0, 1, epoch=1) == producer.sequence
            assert producer.code_of(producer.sequence) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_next_leader_knows_the_producers_of_the_one_that_was_killed(cluster: LocalCluster) -> None:
    create_topic(cluster, TOPIC, 1, 3, min_insync_replicas="2")
    with raw_producer(cluster) as producer:
        for _ in range(2):
            for _ in range(20):
                producer.send()
            leader = cluster.leader(TOPIC, 0)
            assert leader is not None
            killer = threading.Timer(0.05, cluster.nodes[leader].kill)
            killer.start()
            for _ in range(40):
                producer.send()
            killer.join()
            assert cluster.leader(TOPIC, 0) not in (leader, None)
            last = producer.sequence
            assert producer.retry(last - 3) == last - 3
            assert producer.code_of(last + 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            cluster.nodes[leader].start()
            wait_for(lambda: isr_sizes(cluster, TOPIC) == [3], "the ISR whole")
        assert_stored_once(cluster, producer)
