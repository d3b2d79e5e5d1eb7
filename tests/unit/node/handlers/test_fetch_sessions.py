"""Fetch sessions between nodes, replicas that consumers read from, and a partition that fails alone."""

import asyncio

import pytest

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_node.partitions.fetchers.leader_fetcher import FetcherSettings
from tidelog_node.replication import ReplicaSelector
from tidelog_node.server import log_service
from tidelog_quorum.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)

LONG_MS = 60_000


def session_request(session=None, offsets=None, forgotten=(), max_wait_ms=0, **fields):
    items = [
        pb.FetchPartition(index=i, fetch_offset=o, partition_max_bytes=1 << 20) for i, o in (offsets or {}).items()
    ]
    request = pb.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, **fields)
    if items:
        request.topics.add(name="t", partitions=items)
    if forgotten:
        request.forgotten_topics.add(name="t", partitions=forgotten)
    if session is not None:
        request.session.id, request.session.epoch = session
    return request


def results_of(response):
    return {r.index: r for topic in response.topics for r in topic.partitions}


def set_fetchers(cluster, **settings):
    for node in cluster.nodes.values():
        node.fetchers._settings = FetcherSettings(**settings)


def rack_aware(cluster):
    for node in cluster.nodes.values():
        object.__setattr__(node.context, "replica_selector", ReplicaSelector("RackAwareReplicaSelector"))


async def register_with_racks(cluster, *node_ids):
    records = [
        RegisterBrokerRecord(i, b"i" * 16, 0, Endpoint("node", i), rack=f"rack-{i}", fenced=False) for i in node_ids
    ]
    await cluster.controller.change(*records)


@pytest.mark.parametrize("is_evicted", [False, True])
def test_replication_goes_on_in_a_session_and_after_its_end(cluster_of, wait_for, is_evicted):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2), partitions=3)
            sessions = cluster.nodes[1].context.fetch_sessions
            await wait_for(lambda: len(sessions.cache) == 1)
            for round_number in range(5):
                for index in range(3):
                    result = await cluster.produce(1, b"v", index=index)
                    assert (result.error.code, result.base_offset) == (0, round_number)
                if is_evicted:
                    for session in sessions.cache:
                        sessions._close(session.id)
            await wait_for(lambda: all(cluster.partition(2, i).high_watermark == 5 for i in range(3)))

    asyncio.run(run())


def test_replication_goes_on_where_the_leader_keeps_no_sessions(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            cluster.nodes[1].context.fetch_sessions.cache._slots = 0
            await cluster.create_topic(replicas=(1, 2), partitions=2)
            for index in (0, 1, 0):
                assert (await cluster.produce(1, b"v", index=index)).error.code == 0
            assert len(cluster.nodes[1].context.fetch_sessions.cache) == 0

    asyncio.run(run())


def test_partition_that_is_added_is_fetched_before_the_poll_would_end(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            set_fetchers(cluster, max_wait_ms=LONG_MS)
            await cluster.create_topic(replicas=(1, 2))
            assert (await cluster.produce(1, b"v")).error.code == 0
            await wait_for(lambda: len(cluster.nodes[1].context.fetch_sessions.cache) == 1)
            for index in (1, 2, 3):
                await cluster.controller.change(PartitionRecord(b"0123456789abcdef", index, (1, 2), (1, 2), 1))
                assert (await cluster.produce(1, b"v", index=index, timeout_ms=3_000)).error.code == 0
            assert len(cluster.nodes[1].context.fetch_sessions.cache) == 1, "the session went on"

    asyncio.run(run())


def test_bad_partition_never_stops_the_fetcher_of_the_others(cluster_of, wait_for, replace_method, caplog):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2), partitions=3)
            failures = iter([error_for(ErrorCode.CORRUPT_MESSAGE, "bad")] * 3 + [ValueError("worse")] * 3)

            bad = cluster.partition(2, 1)
            original = type(bad.log).append_as_follower

            def append_or_fail(*arguments):
                failure = next(failures, None)
                if failure is not None:
                    raise failure
                return original(bad.log, *arguments)

            replace_method(bad.log, "append_as_follower", append_or_fail)
            waiting = asyncio.create_task(cluster.produce(1, b"v", index=1))
            for _ in range(10):
                for index in (0, 2):
                    assert (await cluster.produce(1, b"v", index=index)).error.code == 0
            assert (await waiting).error.code == 0, "and the bad one goes on when it is well again"
            assert next(failures, None) is None

    asyncio.run(run())


def test_bad_partition_of_a_leader_never_stops_the_fetch_of_the_others(cluster_of, wait_for, replace_method, caplog):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2), partitions=3)
            bad = cluster.partition(1, 1).log
            original = type(bad).read
            is_bad = [True]
            replace_method(bad, "read", lambda *a: 1 // 0 if is_bad[0] else original(bad, *a))
            waiting = asyncio.create_task(cluster.produce(1, b"v", index=1))
            for _ in range(5):
                for index in (0, 2):
                    assert (await cluster.produce(1, b"v", index=index)).error.code == 0
            assert (await cluster.fetch(1, index=1)).error.code == 0, "nothing is committed"
            is_bad[0] = False
            assert (await waiting).error.code == 0
            is_bad[0] = True
            error = (await cluster.fetch(1, index=1)).error
            assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR.code
            assert "division" not in error.message
            assert error.message.rpartition(" ")[2] in caplog.text

    asyncio.run(run())


def test_consumer_session_tells_only_what_is_new(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=3)
            await cluster.produce(1, b"a", index=1)

            async def fetch(*arguments, **fields):
                return await log_service.fetch(cluster.nodes[1].context, session_request(*arguments, **fields))

            full = await fetch((0, 0), {0: 0, 1: 0, 2: 0})
            assert full.session_id > 0
            assert sorted(results_of(full)) == [0, 1, 2]
            again = await fetch((full.session_id, 1))
            assert list(results_of(again)) == [1], "its records were not taken"
            taken = await fetch((full.session_id, 2), {1: 1})
            assert list(results_of(taken)) == [1], "what is named is answered"
            assert results_of(await fetch((full.session_id, 3))) == {}
            await cluster.produce(1, b"b", index=2)
            assert list(results_of(await fetch((full.session_id, 4), forgotten=[1]))) == [2]
            await cluster.produce(1, b"c", index=1)
            assert list(results_of(await fetch((full.session_id, 5), {2: 1}))) == [2], "1 was forgotten"
            wrong = await fetch((full.session_id, 5))
            assert (wrong.error.code, len(wrong.topics)) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH.code, 0)
            unknown = await fetch((full.session_id + 1, 1))
            assert unknown.error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.code
            closed = await fetch((full.session_id, -1))
            assert (closed.session_id, len(cluster.nodes[1].context.fetch_sessions.cache)) == (0, 0)
            assert len(cluster.partition(1, 0).waiters.high_watermark) == 0

    asyncio.run(run())


def test_consumer_session_without_partitions_ends(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            context = cluster.nodes[1].context
            full = await log_service.fetch(context, session_request((0, 0), {0: 0}))
            last = await log_service.fetch(
                context, session_request((full.session_id, 1), forgotten=[0], max_wait_ms=LONG_MS)
            )
            assert (last.session_id, len(context.fetch_sessions.cache)) == (0, 0)

    asyncio.run(run())


def test_request_that_waits_has_no_say_after_the_next_one_of_its_session(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            context = cluster.nodes[1].context
            full = await log_service.fetch(context, session_request((0, 0), {0: 0}))
            first = asyncio.create_task(
                log_service.fetch(context, session_request((full.session_id, 1), max_wait_ms=LONG_MS))
            )
            await asyncio.sleep(0.02)
            second = asyncio.create_task(
                log_service.fetch(context, session_request((full.session_id, 2), max_wait_ms=LONG_MS))
            )
            response = await asyncio.wait_for(first, 5)
            assert response.error.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH.code
            await cluster.produce(1, b"a")
            assert len(results_of(await asyncio.wait_for(second, 5))[0].records) > 0

    asyncio.run(run())


def test_request_that_waits_leaves_what_it_found_to_the_next_one_of_its_session(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            context = cluster.nodes[1].context
            full = await log_service.fetch(context, session_request((0, 0), {0: 0}))
            request = session_request((full.session_id, 1), max_wait_ms=LONG_MS)
            request.min_bytes = 10_000
            first = asyncio.create_task(log_service.fetch(context, request))
            await asyncio.sleep(0.02)
            await cluster.produce(1, b"a")
            await asyncio.sleep(0.02)
            assert not first.done(), "it has seen the record, and waits for more"
            second = await log_service.fetch(context, session_request((full.session_id, 2)))
            assert len(results_of(second)[0].records) > 0
            assert (await first).error.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH.code

    asyncio.run(run())


def test_session_of_another_registration_of_its_follower_is_not_found(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            sessions = cluster.nodes[1].context.fetch_sessions
            await wait_for(lambda: len(sessions.cache) == 1)
            cluster.nodes[2].fetchers.stop_all()
            [session] = sessions.cache
            for replica_id, replica_epoch in ((2, 1), (3, 0), (None, None)):
                request = session_request((session.id, session.epoch))
                if replica_id is not None:
                    request.replica.replica_id, request.replica.replica_epoch = replica_id, replica_epoch
                answer = await log_service.fetch(cluster.nodes[1].context, request)
                assert answer.error.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.code
            assert list(sessions.cache) == [session], "it is as it was"

    asyncio.run(run())


def test_request_that_is_given_up_leaves_its_news_to_the_next(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            context = cluster.nodes[1].context
            full = await log_service.fetch(context, session_request((0, 0), {0: 0}))
            request = session_request((full.session_id, 1), max_wait_ms=LONG_MS)
            request.min_bytes = 10_000
            waiting = asyncio.create_task(log_service.fetch(context, request))
            await asyncio.sleep(0.02)
            await cluster.produce(1, b"a")
            await asyncio.sleep(0.02)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert (
                len(results_of(await log_service.fetch(context, session_request((full.session_id, 2))))[0].records) > 0
            )

    asyncio.run(run())


def test_deleted_partition_is_an_error_in_its_session_and_a_new_one_of_its_name_is_found(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            context = cluster.nodes[1].context
            full = await log_service.fetch(context, session_request((0, 0), {0: 0}))
            await cluster.controller.change(RemoveTopicRecord(b"0123456789abcdef"))
            for epoch in (1, 2):
                response = await log_service.fetch(context, session_request((full.session_id, epoch)))
                assert results_of(response)[0].error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
            await cluster.create_topic(replicas=(1,), topic_id=b"f" * 16)
            await cluster.produce(1, b"new")
            response = await log_service.fetch(context, session_request((full.session_id, 3)))
            assert len(results_of(response)[0].records) > 0

    asyncio.run(run())


@pytest.mark.parametrize("is_follower", [False, True])
@pytest.mark.parametrize(
    ("change", "codes"),
    [
        (lambda cluster: cluster.elect(2), [ErrorCode.FENCED_LEADER_EPOCH]),
        (lambda cluster: cluster.elect(1), [ErrorCode.FENCED_LEADER_EPOCH]),
        (
            lambda cluster: cluster.controller.change(RemoveTopicRecord(b"0123456789abcdef")),
            [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER],
        ),
    ],
    ids=["another leader", "another epoch", "deletion"],
)
def test_request_that_waits_is_answered_at_once_when_its_partition_cannot_be_read_any_more(
    cluster_of, is_follower, change, codes
):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.update((1, 2))
            request = session_request(None, {0: 0}, max_wait_ms=LONG_MS)
            request.topics[0].partitions[0].current_leader_epoch = 0
            if is_follower:
                request.replica.replica_id = 2
            waiting = asyncio.create_task(log_service.fetch(cluster.nodes[1].context, request))
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await change(cluster)
            answer = await asyncio.wait_for(waiting, 5)
            assert results_of(answer)[0].error.code in [code.code for code in codes]

    asyncio.run(run())


def test_leader_sends_a_consumer_to_the_replica_of_its_rack(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, 3) as cluster:
            rack_aware(cluster)
            await register_with_racks(cluster, 1, 2, 3)
            await cluster.create_topic()
            await cluster.produce(1, b"a")

            async def fetch(node_id, rack, offset=0, max_wait_ms=0):
                request = session_request(None, {0: offset}, rack_id=rack, max_wait_ms=max_wait_ms)
                return results_of(await log_service.fetch(cluster.nodes[node_id].context, request))[0]

            sent = await fetch(1, "rack-2", max_wait_ms=LONG_MS)
            assert (sent.preferred_read_replica, sent.records, sent.high_watermark) == (2, b"", 1)
            for rack in ("", "rack-1", "rack-9"):
                assert not (await fetch(1, rack)).HasField("preferred_read_replica")
                assert len((await fetch(1, rack)).records) > 0
            await wait_for(lambda: cluster.partition(2).high_watermark == 1)
            assert len((await fetch(2, "rack-2")).records) > 0
            assert (await fetch(2, "")).error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
            assert (await fetch(2, "rack-2", offset=9)).error.code == ErrorCode.OFFSET_NOT_AVAILABLE.code

            await cluster.elect(1, isr=(1, 3))
            assert not (await fetch(1, "rack-2")).HasField("preferred_read_replica"), "2 is not in sync"
            await cluster.controller.change(BrokerRegistrationChangeRecord(3, 0, fenced=True))
            assert not (await fetch(1, "rack-3")).HasField("preferred_read_replica"), "3 is fenced"

    asyncio.run(run())


def test_follower_that_serves_consumers_learns_at_once_what_is_committed(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            rack_aware(cluster)
            set_fetchers(cluster, max_wait_ms=LONG_MS)
            await register_with_racks(cluster, 1, 2)
            await cluster.create_topic(replicas=(1, 2))
            await wait_for(lambda: len(cluster.nodes[1].context.fetch_sessions.cache) == 1)
            request = session_request(None, {0: 0}, rack_id="rack-2", max_wait_ms=LONG_MS)
            reading = asyncio.create_task(log_service.fetch(cluster.nodes[2].context, request))
            await asyncio.sleep(0.02)
            assert (await cluster.produce(1, b"a")).error.code == 0
            assert len(results_of(await asyncio.wait_for(reading, 5))[0].records) > 0

    asyncio.run(run())


def test_follower_that_serves_consumers_learns_at_once_what_another_follower_has_let_be_committed(cluster_of, wait_for):
    async def run():
        async with cluster_of(1, 2, 3) as cluster:
            rack_aware(cluster)
            set_fetchers(cluster, max_wait_ms=LONG_MS, max_backoff_ms=50)
            cluster.transport.cut_off.add(3)
            await cluster.create_topic()
            await wait_for(lambda: len(cluster.nodes[1].context.fetch_sessions.cache) == 1)
            await cluster.produce(1, b"a", acks=pb.ACKS_LEADER)
            await wait_for(lambda: cluster.partition(1).state.leader.followers[2].log_end_offset == 1)
            assert cluster.partition(2).high_watermark == 0
            cluster.transport.cut_off.clear()
            await wait_for(lambda: cluster.partition(2).high_watermark == 1)

    asyncio.run(run())
