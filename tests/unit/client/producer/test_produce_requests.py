"""Produce requests that are encoded by hand: protobuf reads what was to be sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tidelog.producer.core.events import Send
from tidelog.producer.requests import produce_request
from tidelog.v1 import log_service_pb2 as pb

BATCHES = st.dictionaries(
    st.tuples(st.text(max_size=5), st.integers(0, 2**31 - 1)),
    st.binary(max_size=20) | st.binary(max_size=3).map(lambda part: part * 9_000),
    max_size=5,
)


@given(batches=BATCHES, transactional_id=st.none() | st.text(max_size=3), correlation_id=st.integers(0, 2**63 - 1))
def test_request_is_read_by_protobuf_as_it_was_meant(
    batches: dict[tuple[str, int], bytes], transactional_id: str | None, correlation_id: int
) -> None:
    send: Any = SimpleNamespace(
        batches=[SimpleNamespace(topic=topic, partition=partition) for topic, partition in batches],
        transaction_version=2,
    )
    encoded = produce_request(cast(Send, send), list(batches.values()), pb.ACKS_ALL, 100, transactional_id)
    meant = pb.ProduceRequest(acks=pb.ACKS_ALL, timeout_ms=100)
    if transactional_id is not None:
        meant.transactional_id, meant.transaction_version = transactional_id, 2
    topics: dict[str, pb.ProduceTopic] = {}
    for (topic, partition), records in batches.items():
        if topic not in topics:
            topics[topic] = meant.topics.add(name=topic)
        topics[topic].partitions.add(index=partition, records=records)
    assert encoded.message() == meant
    streamed = pb.ProduceStreamRequest.FromString(encoded.stream_message(correlation_id))
    assert streamed == pb.ProduceStreamRequest(correlation_id=correlation_id, request=meant)
