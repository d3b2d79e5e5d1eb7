"""A leader that is paused (SIGSTOP) holds up its partitions no longer than the cluster takes to replace it.

Of real processes alone: the fake has one node.
"""

from __future__ import annotations

import time

import pytest
from contract_security import SECURITY

from tidelog import OFFSET_BEGINNING, AdminClient, Consumer, KafkaError, Message, NewTopic, Producer, TopicPartition
from tidelog.testing import LocalCluster

PATIENCE_S = 15
"""Well below request.timeout.ms (30 s); about 5 s on an idle machine, of which 2 s are the election."""


@pytest.mark.timeout(120)
def test_producer_and_consumer_go_on_with_the_new_leader_of_a_partition_whose_leader_is_paused() -> None:
    values: list[bytes] = []
    errors: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)

    with LocalCluster(controllers=1, nodes=3, security=SECURITY) as cluster:
        server = cluster.client_settings()
        with AdminClient(server) as admin:
            admin.create_topics([NewTopic("t", 1, 3)])["t"].result(30)
        leader = cluster.leader("t", 0)
        assert leader is not None
        with Producer({**server, "linger.ms": 0}) as producer, Consumer(server) as consumer:
            consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])

            def send_and_read(count: int) -> list[bytes]:
                first = len(values)
                values.extend(b"%d" % n for n in range(first, first + count))
                for value in values[first:]:
                    producer.produce("t", value, on_delivery=report)
                assert producer.flush(PATIENCE_S) == 0
                return [m.value() for m in consumer.consume(count, PATIENCE_S) if not m.error()]

            read = send_and_read(10)
            cluster.nodes[leader].pause()
            started = time.monotonic()
            read += send_and_read(10)
            assert time.monotonic() - started < PATIENCE_S
            cluster.nodes[leader].resume()
            read += send_and_read(10)
            # A batch whose answer did not come was sent again, and may be there twice.
            while len(dict.fromkeys(read)) < len(values):
                more = consumer.consume(1, PATIENCE_S)
                assert more, "a record that was acknowledged is missing"
                read += [m.value() for m in more if not m.error()]
    assert not errors
    assert list(dict.fromkeys(read)) == values
