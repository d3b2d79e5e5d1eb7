"""A reader's view of fetch sessions and leader epochs, on the fake and on real nodes (KIP-227, KIP-320)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tidelog import Consumer, TopicPartition
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.transport import run_sync

if TYPE_CHECKING:
    from conftest import Deployment


class Reader:
    """A reader of a topic's partitions that counts its session's epochs by itself."""

    def __init__(self, cluster: Deployment, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic

    def fetch(
        self, session: tuple[int, int] | None, offsets: dict[int, int] | None = None, **fields: Any
    ) -> pb.FetchResponse:
        items = [
            pb.FetchPartition(index=index, fetch_offset=offset, partition_max_bytes=1_000)
            for index, offset in (offsets or {}).items()
        ]
        request = pb.FetchRequest(min_bytes=1, max_bytes=10_000, **fields)
        if items:
            request.topics.add(name=self._topic, partitions=items)
        if session is not None:
            request.session.id, request.session.epoch = session

        async def call() -> pb.FetchResponse:
            leader = await self._cluster.client.leader(self._topic, 0)
            response: pb.FetchResponse = await self._cluster.client.fetch(leader.node_id, request)
            return response

        return run_sync(call(), 20)


def results(response: pb.FetchResponse) -> dict[int, pb.FetchPartitionResult]:
    return {result.index: result for topic in response.topics for result in topic.partitions}


@pytest.fixture
def reader(cluster: Deployment) -> Reader:
    topic = cluster.topic(3)
    cluster.send(topic, [b"a"], partition=1)
    return Reader(cluster, topic)


def test_a_session_tells_what_is_new(cluster: Deployment, reader: Reader) -> None:
    full = reader.fetch((0, 0), {0: 0, 1: 0, 2: 0})
    assert full.session_id > 0
    assert sorted(results(full)) == [0, 1, 2]
    session_id = full.session_id
    assert list(results(reader.fetch((session_id, 1)))) == [1], "its record was not taken"
    assert list(results(reader.fetch((session_id, 2), {1: 1}))) == [1], "what is named is answered"
    assert list(results(reader.fetch((session_id, 3)))) == []
    cluster.send(reader._topic, [b"b"], partition=2)
    news = results(reader.fetch((session_id, 4), max_wait_ms=10_000))
    assert [(index, result.high_watermark) for index, result in news.items()] == [(2, 1)]


def test_a_session_without_partitions_ends(reader: Reader) -> None:
    session_id = reader.fetch((0, 0), {1: 0}).session_id
    forgotten = [pb.ForgottenTopic(name=reader._topic, partitions=[1])]
    assert reader.fetch((session_id, 1), forgotten_topics=forgotten, max_wait_ms=10_000).session_id == 0
    assert reader.fetch((session_id, 2)).error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.code


def test_a_session_refuses_what_it_does_not_expect(reader: Reader) -> None:
    session_id = reader.fetch((0, 0), {0: 0, 1: 0}).session_id
    wrong = reader.fetch((session_id, 9))
    assert (wrong.error.code, len(wrong.topics)) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH.code, 0)
    unknown = reader.fetch((session_id ^ 1, 1))
    assert unknown.error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.code
    assert not reader.fetch((session_id, 1)).HasField("error"), "the session is as it was"


def test_a_full_request_ends_the_session_that_it_names(reader: Reader) -> None:
    first = reader.fetch((0, 0), {1: 0}).session_id
    second = reader.fetch((first, 0), {1: 0}).session_id
    assert second not in (0, first)
    assert reader.fetch((first, 1)).error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.code
    assert reader.fetch((second, -1), {1: 0}).session_id == 0
    assert reader.fetch((second, 1)).error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.code


def test_a_request_without_a_session_gets_none(reader: Reader) -> None:
    for _ in range(2):
        response = reader.fetch(None, {0: 0, 1: 0})
        assert (response.session_id, sorted(results(response))) == (0, [0, 1])


def test_an_error_in_a_session_is_told_each_time(reader: Reader) -> None:
    session_id = reader.fetch((0, 0), {0: 0, 7: 0}).session_id
    for epoch in (1, 2):
        [(index, result)] = results(reader.fetch((session_id, epoch), max_wait_ms=10_000)).items()
        assert (index, result.error.code) == (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code)


def test_every_request_with_a_leader_epoch_is_checked(cluster: Deployment) -> None:
    topic = cluster.topic()
    item: Any = pb.FetchPartition(index=0, partition_max_bytes=1_000, current_leader_epoch=9)
    request = pb.FetchRequest(max_bytes=1_000, topics=[pb.FetchTopic(name=topic, partitions=[item])])
    offset = pb.ListOffsetsPartition(index=0, timestamp_ms=-1, current_leader_epoch=9)
    offsets = pb.ListOffsetsRequest(topics=[pb.ListOffsetsTopic(name=topic, partitions=[offset])])
    end = pb.OffsetForLeaderPartition(index=0, leader_epoch=0, current_leader_epoch=9)
    ends = pb.OffsetForLeaderEpochRequest(topics=[pb.OffsetForLeaderTopic(name=topic, partitions=[end])])

    async def call() -> list[int]:
        leader = await cluster.client.leader(topic, 0)
        log = cluster.client.connection(leader.node_id).log
        answers: list[Any] = [
            await log.Fetch(request),
            await log.ListOffsets(offsets),
            await log.OffsetForLeaderEpoch(ends),
        ]
        return [answer.topics[0].partitions[0].error.code for answer in answers]

    assert run_sync(call(), 20) == [ErrorCode.UNKNOWN_LEADER_EPOCH.code] * 3


def test_a_consumer_reads_many_partitions_in_one_session(cluster: Deployment) -> None:
    topic = cluster.topic(8)
    consumer: Consumer = cluster.consumer(fetch_wait_max_ms=50, enable_partition_eof=True)
    with consumer:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(8)])
        ends = consumer.consume(8, 20)
        assert {m.partition() for m in ends if m.error()} == set(range(8)), "an end is reported though nothing is new"
        for round_number in range(3):
            for index in (1, 5, 1):
                cluster.send(topic, [b"v"], partition=index)
            seen = [m for m in (consumer.poll(10) for _ in range(6)) if m is not None and not m.error()]
            assert len(seen) >= 2, round_number
