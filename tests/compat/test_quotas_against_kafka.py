"""The delays of clients over their quotas, measured by the same requests to Kafka and to Tidelog."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from compat.jars import Unavailable
from compat.wire.pair import pair
from compat.wire.side import Side
from support.kafka_requests import ProducePartition, ProduceRequest, ProduceTopic

from tidelog_foundation.records import RecordBatchBuilder
from tidelog_node.kafka.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    QuotaAlterationData,
    QuotaEntityData,
    QuotaOpData,
)
from tidelog_node.kafka.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

pytestmark = pytest.mark.compat
_SETTINGS = {"quota.window.num": 3, "controller.quota.window.num": 1}
_RATE = 100_500.0
_BATCH_BYTES = 100_000


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    try:
        with pair(_SETTINGS) as both:
            yield both
    except Unavailable as error:
        pytest.skip(str(error))


def limit(side: Side, key: str, value: float) -> None:
    alteration = QuotaAlterationData([QuotaEntityData("user", "ANONYMOUS")], [QuotaOpData(key, value, not value)])
    [entry] = side.ask(AlterClientQuotasRequest([alteration]), 1).entries
    assert entry.error_code == 0, entry
    time.sleep(1)


def test_a_producer_is_delayed_as_long_as_by_kafka(sides: tuple[Side, Side]) -> None:
    told = []
    for side in sides:
        side.create(["measured"], 1)
        builder = RecordBatchBuilder()
        builder.append(None, bytes(_BATCH_BYTES))
        records = ProducePartition(0, builder.build())
        request = ProduceRequest(acks=1, timeout_ms=5_000, topics=[ProduceTopic("measured", partitions=[records])])
        limit(side, "producer_byte_rate", _RATE)
        begin = time.monotonic()
        delays = [side.ask(request, 9).throttle_time_ms for _ in range(4)]
        # The fourth request waits until the delay of the third has passed.
        told.append((*delays, time.monotonic() - begin))
        limit(side, "producer_byte_rate", 0)
    kafka, tidelog = told
    assert kafka[:2] == tidelog[:2] == (0, 0)
    assert tidelog[2] == pytest.approx(kafka[2], abs=150)
    for delays in told:
        assert delays[4] >= delays[2] / 1_000 - 0.1


def test_topics_over_the_quota_of_mutations_are_refused_as_by_kafka(sides: tuple[Side, Side]) -> None:
    told = []
    for side in sides:
        limit(side, "controller_mutation_rate", 2.0)
        answers = [side.ask(CreateTopicsRequest([CreatableTopic(f"mutation-{n}", 6, 1)], 5_000), 7) for n in range(2)]
        told.append([(answer.topics[0].error_code, answer.throttle_time_ms) for answer in answers])
        limit(side, "controller_mutation_rate", 0)
    kafka, tidelog = told
    assert [code for code, _ in kafka] == [code for code, _ in tidelog] == [0, 89]
    assert tidelog[1][1] == pytest.approx(kafka[1][1], abs=300)
