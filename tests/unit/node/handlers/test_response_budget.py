"""The node's budget for fetch responses: who gets records while others' responses have not left."""

import asyncio
import contextlib
import random

import grpc.aio
import pytest

from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.log_service_pb2_grpc import LogServiceStub
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.transport import open_channel, server_options
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_node.handlers.response_budget import ResponseBudget
from tidelog_node.server import log_service


def test_budget_counts_responses_twice_and_keeps_a_quarter_for_followers():
    budget = ResponseBudget(400)
    assert (budget.room(is_follower=False), budget.room(is_follower=True)) == (150, 200)
    budget.take(150)
    assert (budget.taken, budget.room(is_follower=False), budget.room(is_follower=True)) == (300, 0, 50)
    budget.give_back(150)
    assert budget.taken == 0


def test_budget_wakes_one_after_the_other_while_there_is_room():
    budget, woken = ResponseBudget(400), []
    wakes = [lambda n=n: woken.append(n) for n in range(3)]
    budget.take(300)
    for wake in wakes:
        budget.wait(wake, is_follower=False)
    budget.leave(wakes[1])
    budget.pass_on()
    assert woken == []
    budget.give_back(300)
    assert woken == [0]
    budget.take(300)
    budget.pass_on()
    assert woken == [0], "the first took all there was"
    budget.give_back(300)
    assert woken == [0, 2]


def test_budget_wakes_followers_where_consumers_have_no_room():
    budget, woken = ResponseBudget(400), []
    budget.take(150)
    budget.wait(lambda: woken.append("consumer"), is_follower=False)
    budget.wait(lambda: woken.append("follower"), is_follower=True)
    budget.take(20)
    budget.give_back(20)
    assert woken == ["follower"]


def test_budget_has_room_for_others_only_when_nobody_waits_or_they_were_called():
    """Whoever asks again and again must not overtake those that wait."""
    budget, first, second, other = ResponseBudget(400), lambda: None, lambda: None, lambda: None
    budget.take(200)
    budget.wait(first, is_follower=False)
    budget.wait(second, is_follower=False)
    budget.give_back(200)
    rooms = [budget.room_for(w, is_follower=False) for w in (first, second, other)]
    assert rooms == [150, 0, 0]
    assert budget.room_for(other, is_follower=True) == 200, "followers and consumers do not wait for each other"
    budget.leave(first)
    budget.pass_on()
    assert [budget.room_for(w, is_follower=False) for w in (second, other)] == [150, 150]
    budget.leave(second)
    assert budget._called == set()


@pytest.fixture
def crowded():
    """A cluster in whose node 1 the responses under way have taken ``taken`` of 10,000 bytes."""

    async def start(cluster, taken):
        await cluster.create_topic(replicas=(1, 2))
        budget = cluster.nodes[1].context.response_budget
        budget._limit = 10_000
        await cluster.produce(1, b"a" * 1_000)
        budget.take(taken)
        return budget

    return start


def test_fetch_waits_for_room_and_gets_its_records_then(cluster_of, crowded):
    async def run():
        async with cluster_of(1, 2) as cluster:
            budget = await crowded(cluster, 4_000)
            waiting = [asyncio.create_task(cluster.fetch(1, max_wait_ms=10_000)) for _ in range(3)]
            await asyncio.sleep(0.05)
            assert not any(task.done() for task in waiting)
            budget.give_back(4_000)
            results = await asyncio.wait_for(asyncio.gather(*waiting), 5)
            assert all(len(result.records) > 1_000 for result in results)
            assert budget._consumers == budget._followers == {}

    asyncio.run(run())


def test_fetch_that_waits_for_room_is_not_forgotten_with_the_one_before_it_in_its_session(cluster_of, crowded):
    async def run():
        async with cluster_of(1, 2) as cluster:
            budget = await crowded(cluster, 0)
            context = cluster.nodes[1].context
            item = pb.FetchPartition(index=0, fetch_offset=0, partition_max_bytes=1 << 20)
            request = pb.FetchRequest(max_bytes=1 << 20, topics=[pb.FetchTopic(name="t", partitions=[item])])
            request.session.epoch = 0
            session_id = (await log_service.fetch(context, request)).session_id
            budget.take(4_000)

            async def go_on(epoch):
                session = pb.FetchSession(id=session_id, epoch=epoch)
                request = pb.FetchRequest(max_wait_ms=10_000, min_bytes=1, max_bytes=1 << 20, session=session)
                return await log_service.fetch(context, request)

            first = asyncio.create_task(go_on(1))
            await asyncio.sleep(0.02)
            second = asyncio.create_task(go_on(2))
            assert (await asyncio.wait_for(first, 5)).error.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH.code
            assert not second.done()
            budget.give_back(4_000)
            response = await asyncio.wait_for(second, 5)
            assert len(response.topics[0].partitions[0].records) > 1_000

    asyncio.run(run())


@contextlib.asynccontextmanager
async def serving(context):
    server = grpc.aio.server(options=server_options())
    log_service.log_service(context, ByteBudget(1 << 20)).add_to(server, Intake(Charge(ByteBudget(1 << 20))))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            yield LogServiceStub(channel)
    finally:
        await server.stop(0)


def test_budget_is_whole_again_whenever_readers_give_up(cluster_of, crowded, wait_for):
    """Before the fetch is there, while it waits for room, while its answer is on its way, after it has it."""

    async def run():
        rng = random.Random(3)
        async with cluster_of(1, 2) as cluster:
            budget = await crowded(cluster, 0)
            cluster.nodes[2].fetchers.stop_all()
            item = pb.FetchPartition(index=0, fetch_offset=0, partition_max_bytes=1 << 20)
            topic = pb.FetchTopic(name="t", partitions=[item])
            request = pb.FetchRequest(max_wait_ms=20, min_bytes=1, max_bytes=1 << 20, topics=[topic])
            most = 0
            async with serving(cluster.nodes[1].context) as stub:
                # On a busy machine a round may end before the node has seen any of its calls.
                rounds = 0
                while rounds < 40 or not most:
                    rounds += 1
                    calls = [stub.Fetch(request) for _ in range(10)]
                    await asyncio.sleep(rng.random() * 0.01 * (1 + rounds // 40))
                    most = max(most, budget.taken)
                    for call in calls:
                        call.cancel()
                    await asyncio.gather(*calls, return_exceptions=True)
                await wait_for(lambda: budget.taken == 0)
                assert most > 0
                assert budget._consumers == budget._followers == {}
                assert budget._called == set()
                assert len((await stub.Fetch(request)).topics[0].partitions[0].records) > 1_000

    asyncio.run(run())


def test_fetch_without_room_is_answered_without_records_when_its_time_is_over(cluster_of, crowded):
    async def run():
        async with cluster_of(1, 2) as cluster:
            budget = await crowded(cluster, 4_000)
            for max_wait_ms in (0, 50):
                result = await cluster.fetch(1, max_wait_ms=max_wait_ms)
                assert (result.records, result.high_watermark) == (b"", 1)
                assert not result.HasField("error")
            assert budget._consumers == {}

    asyncio.run(run())


def test_replication_goes_on_while_slow_consumers_hold_their_share(cluster_of, crowded, wait_for):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await crowded(cluster, 3_750)
            assert (await cluster.produce(1, b"b" * 100)).error.code == 0
            await wait_for(lambda: cluster.partition(2).log.log_end_offset == 2)
            assert (await cluster.fetch(1)).records == b""

    asyncio.run(run())


def test_fetch_that_waits_holds_no_records(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            await cluster.produce(1, b"a" * 1_000)
            item = pb.FetchPartition(index=0, fetch_offset=0, partition_max_bytes=1 << 20)
            topic = pb.FetchTopic(name="t", partitions=[item])
            request = pb.FetchRequest(max_wait_ms=10_000, min_bytes=2_000, max_bytes=1 << 20, topics=[topic])
            waiting = asyncio.create_task(log_service.fetch(cluster.nodes[1].context, request))
            await asyncio.sleep(0.05)
            [(session, *_)] = cluster.partition(1).waiters.high_watermark.waiting
            assert session.state.take_changed() == []
            await cluster.produce(1, b"b" * 1_000)
            response = await asyncio.wait_for(waiting, 5)
            assert len(response.topics[0].partitions[0].records) > 2_000
            assert response.error.code == ErrorCode.NONE.code

    asyncio.run(run())
