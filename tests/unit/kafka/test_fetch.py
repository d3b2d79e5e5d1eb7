"""Fetch over Kafka's protocol, on real partitions: ids, sessions, errors, when it is answered, what stays behind."""

import asyncio
import dataclasses
from types import SimpleNamespace

import pytest

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import read_records
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_node.event_loop import Pending
from tidelog_node.fetching import FetchRequest, FetchSpec, SessionStep
from tidelog_node.kafka.apis.fetch import FetchApi
from tidelog_node.kafka.protocol.messages.fetch_request import encode_request
from tidelog_node.kafka.protocol.messages.fetch_response import decode_response
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Caller, KafkaNode, Request
from tidelog_node.shards.events import ClientIdentity
from tidelog_quorum.metadata.records import RegisterBrokerRecord, RemoveTopicRecord

T, U = b"0123456789abcdef", b"u" * 16
NEWEST = 18
LONG_MS = 30_000


def topic(ref, version):
    return ref if version >= 13 else {T: "t", U: "u"}[ref]


def make_request(offsets, version=NEWEST, session=None, forgotten=(), max_wait_ms=0, topic_id=T, **fields):
    key = topic(topic_id, version)
    wanted = {
        (key, index): FetchSpec(topic_id if version >= 13 else b"", offset, 1 << 20, fields.pop("leader_epoch", None))
        for index, offset in offsets.items()
    }
    step = SessionStep(*session) if session else SessionStep(0, -1)
    fields = {"max_bytes": 1 << 20, "min_bytes": 1, "max_wait_ms": max_wait_ms, **fields}
    return FetchRequest(wanted, session=step, forgotten=[(key, index) for index in forgotten], **fields)


def begin(node, request, version=NEWEST):
    writer = Writer()
    encode_request(request, writer, version)
    caller = Caller("PLAINTEXT", ClientIdentity("client", "host"), version)
    frame = Reader(memoryview(b"".join(writer.chunks())))
    return FetchApi().begin(KafkaNode(node.context, None), Request(caller, 1, frame))


def read(body, version=NEWEST):
    return decode_response(Reader(memoryview(b"".join(body))), version)


def fetch(node, offsets, version=NEWEST, **fields):
    """Fetch what is there at once."""
    body = begin(node, make_request(offsets, version, **fields), version)
    assert isinstance(body, list), "it waits"
    return read(body, version)


def values(result):
    return [record.value for record in read_records(bytes(result.records))] if result.records else []


def codes(response):
    return {index: result.error and result.error.code for (_, index), result in response.results.items()}


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 13, 18])
def test_fetch_of_each_version_is_answered_with_records_by_reference(cluster_of, version):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=2)
            await cluster.produce(1, b"v" * 10_000)
            body = begin(cluster.nodes[1], make_request({0: 0, 1: 0}, version), version)
            assert any(type(chunk) is bytes and len(chunk) > 10_000 for chunk in body), "not what the log has returned"
            results = read(body, version).results
            assert values(results[topic(T, version), 0]) == [b"v" * 10_000]
            assert values(results[topic(T, version), 1]) == []
            assert results[topic(T, version), 0].high_watermark == 1

    asyncio.run(run())


def test_topic_ids_that_are_unknown_or_have_become_another_topics_are_told_for_each_partition(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            node = cluster.nodes[1]
            unknown = fetch(node, {0: 0, 1: 0}, topic_id=U)
            assert codes(unknown) == dict.fromkeys((0, 1), ErrorCode.UNKNOWN_TOPIC_ID)
            assert unknown.error is None
            session = fetch(node, {0: 0}, session=(0, 0)).session_id
            await cluster.controller.change(RemoveTopicRecord(T))
            assert codes(fetch(node, {}, session=(session, 1))) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            await cluster.create_topic(replicas=(1,), topic_id=U)
            assert codes(fetch(node, {}, session=(session, 2))) == {0: ErrorCode.INCONSISTENT_TOPIC_ID}
            assert codes(fetch(node, {0: 0})) == {0: ErrorCode.UNKNOWN_TOPIC_ID}
            assert codes(fetch(node, {0: 0}, topic_id=U)) == {0: None}

    asyncio.run(run())


def test_session_finds_a_topic_that_is_there_later_than_its_id(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            node = cluster.nodes[1]
            full = fetch(node, {0: 0}, session=(0, 0))
            assert codes(full) == {0: ErrorCode.UNKNOWN_TOPIC_ID}
            await cluster.create_topic(replicas=(1,))
            assert codes(fetch(node, {}, session=(full.session_id, 1))) == {0: None}

    asyncio.run(run())


def test_session_goes_on_with_what_is_new_and_forgets(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=3)
            node = cluster.nodes[1]
            full = fetch(node, {0: 0, 1: 0, 2: 0}, session=(0, 0))
            assert len(full.results) == 3
            assert full.session_id > 0
            assert not fetch(node, {}, session=(full.session_id, 1)).topics
            await cluster.produce(1, b"a", index=1)
            assert list(fetch(node, {}, session=(full.session_id, 2)).results) == [(T, 1)]
            assert not fetch(node, {}, session=(full.session_id, 3), forgotten=[1]).topics
            for session, code in (
                ((full.session_id, 9), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
                ((full.session_id + 1, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            ):
                refused = fetch(node, {}, session=session)
                assert (refused.error.code, refused.session_id, refused.topics) == (code, 0, {})

    asyncio.run(run())


@pytest.mark.parametrize(("first", "then"), [(12, 13), (13, 12)])
def test_session_is_not_gone_on_with_by_a_version_that_names_topics_otherwise(cluster_of, first, then):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            full = fetch(cluster.nodes[1], {0: 0}, first, session=(0, 0))
            refused = fetch(cluster.nodes[1], {}, then, session=(full.session_id, 1))
            assert refused.error.code is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
            assert fetch(cluster.nodes[1], {}, first, session=(full.session_id, 1)).error is None

    asyncio.run(run())


def test_long_poll_is_answered_by_an_append_and_reads_it_then(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            waiting = begin(cluster.nodes[1], make_request({0: 0}, max_wait_ms=LONG_MS))
            assert isinstance(waiting, Pending)
            await asyncio.sleep(0)
            await cluster.produce(1, b"a")
            [result] = read(await asyncio.wait_for(waiting, 5)).results.values()
            assert values(result) == [b"a"]

    asyncio.run(run())


@pytest.mark.parametrize("steps", [0, 1])
def test_what_is_appended_before_the_wait_has_begun_answers_a_fetch_too(cluster_of, make_batch, steps):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            waiting = begin(cluster.nodes[1], make_request({0: 0}, max_wait_ms=LONG_MS))
            for _ in range(steps):
                await asyncio.sleep(0)
            cluster.partition(1).append(make_batch(b"a"), needs_all_replicas=False)
            [result] = read(await asyncio.wait_for(waiting, 5)).results.values()
            assert values(result) == [b"a"]

    asyncio.run(run())


def test_long_poll_ends_with_its_timer_whatever_the_clock_says(cluster_of):
    """A loop's timer may be early by as long as the loop's own time is old."""

    class Stopped:
        def monotonic_ms(self):
            return 1_000

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            context = dataclasses.replace(cluster.nodes[1].context, clock=Stopped())
            waiting = begin(SimpleNamespace(context=context), make_request({0: 0}, max_wait_ms=20))
            [result] = read(await asyncio.wait_for(waiting, 5)).results.values()
            assert values(result) == []

    asyncio.run(run())


@pytest.mark.parametrize("steps", [0, 1])
def test_fetch_that_is_cancelled_leaves_nothing_behind(cluster_of, make_batch, steps):
    """A client that goes away: its connection cancels what is under way."""

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            waiters = cluster.partition(1).waiters.high_watermark
            waiting = begin(cluster.nodes[1], make_request({0: 0}, max_wait_ms=LONG_MS))
            assert len(waiters) == 1
            for _ in range(steps):
                await asyncio.sleep(0)
            assert waiting.cancel()
            assert len(waiters) == 0
            cluster.partition(1).append(make_batch(b"a"), needs_all_replicas=False)
            await asyncio.sleep(0)
            assert waiting.is_cancelled, "it was answered all the same"

    asyncio.run(run())


def test_fetches_that_one_append_answers_keep_to_the_budget_together(cluster_of, make_batch):
    """Each is counted from when it has its records on, though its connection hears of it a step later."""

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            budget = cluster.nodes[1].context.response_budget
            budget._limit = 20_000
            sizes = []

            def take(answer):
                sizes.append(sum(map(len, answer.result())))
                budget.take(sizes[-1])

            waiting = [begin(cluster.nodes[1], make_request({0: 0}, max_wait_ms=LONG_MS)) for _ in range(50)]
            for answer in waiting:
                answer.then(take)
            await asyncio.sleep(0.01)
            cluster.partition(1).append(make_batch(b"v" * 1_000), needs_all_replicas=False)
            while any(not answer.is_settled for answer in waiting):
                await asyncio.sleep(0.01)
                assert 1 <= len(sizes) <= 8
                assert budget.taken <= 20_000
                while sizes:
                    budget.give_back(sizes.pop())
            assert budget.taken == 0

    asyncio.run(run())


def test_wait_for_more_bytes_than_may_be_answered_is_not_waited_for(cluster_of):
    """``fetch.max.bytes`` and the request's ``max_bytes`` bound ``min_bytes`` (KafkaApis.handleFetchRequest)."""

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"v" * 1_000)
            request = make_request({0: 0}, max_wait_ms=LONG_MS, min_bytes=1 << 30, max_bytes=500)
            assert isinstance(begin(cluster.nodes[1], request), list)

    asyncio.run(run())


@pytest.mark.parametrize(("version", "is_told"), [(15, False), (16, True), (18, True)])
def test_leader_and_its_endpoint_on_the_callers_listener_are_told(cluster_of, version, is_told):
    async def run():
        async with cluster_of(1, 2) as cluster:
            listeners = (
                ListenerEndpoint("GRPC", "grpc", 1, "GRPC"),
                ListenerEndpoint("PLAINTEXT", "leader", 9092, "PLAINTEXT"),
            )
            fields = {"fenced": False, "rack": "r", "listeners": listeners}
            await cluster.controller.change(RegisterBrokerRecord(2, b"i" * 16, 0, Endpoint("grpc", 1), **fields))
            await cluster.create_topic(replicas=(2, 1))
            await cluster.elect(2)
            body = begin(cluster.nodes[1], make_request({0: 0}, version, leader_epoch=0), version)
            [result] = read(body, version).results.values()
            assert result.error.code is ErrorCode.FENCED_LEADER_EPOCH
            assert (result.current_leader is not None) is is_told
            assert (b"leader" in b"".join(body)) is is_told

    asyncio.run(run())


def test_call_for_another_cluster_fails_whole(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            refused = fetch(cluster.nodes[1], {0: 0}, cluster_id="another")
            assert (refused.error.code, refused.topics) == (ErrorCode.INCONSISTENT_CLUSTER_ID, {})

    asyncio.run(run())


@pytest.mark.parametrize("version", [10, 11, NEWEST])
def test_consumer_may_read_from_a_follower_from_version_11_on(cluster_of, wait_for, version):
    """With and without a rack (``FetchParams.fetchOnlyLeader``)."""

    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            await cluster.produce(1, b"a")
            await wait_for(lambda: cluster.partition(2).high_watermark == 1)
            [result] = fetch(cluster.nodes[2], {0: 0}, version).results.values()
            if version < 11:
                assert result.error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            else:
                assert (result.error, values(result)) == (None, [b"a"])

    asyncio.run(run())


def test_consumer_that_says_what_it_has_is_told_where_that_leaves_the_log(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"a")
            await cluster.elect(1)
            await cluster.produce(1, b"b")
            for offset, epoch, end in ((2, 0, (0, 1)), (2, 1, None), (1, 0, None)):
                request = FetchRequest(
                    {(T, 0): FetchSpec(T, offset, 100, None, epoch)}, 100, session=SessionStep(0, -1)
                )
                [result] = read(begin(cluster.nodes[1], request)).results.values()
                found = result.diverging and (result.diverging.epoch, result.diverging.end_offset)
                assert (result.error, found) == (None, end)
                assert bool(values(result)) == (offset == 1)

    asyncio.run(run())


def test_leader_epochs_are_checked(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.elect(1)
            epoch = cluster.partition(1).state.leader_epoch
            assert codes(fetch(cluster.nodes[1], {0: 0}, leader_epoch=epoch)) == {0: None}
            assert codes(fetch(cluster.nodes[1], {0: 0}, leader_epoch=epoch - 1)) == {0: ErrorCode.FENCED_LEADER_EPOCH}
            assert codes(fetch(cluster.nodes[1], {0: 0}, leader_epoch=epoch + 1)) == {0: ErrorCode.UNKNOWN_LEADER_EPOCH}
            out = fetch(cluster.nodes[1], {0: 99})
            assert codes(out) == {0: ErrorCode.OFFSET_OUT_OF_RANGE}
            assert [r.high_watermark for r in out.results.values()] == [0]

    asyncio.run(run())
