"""The consumer for asyncio in a group: rebalances whose callbacks are awaited, commits, and closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from blockbuster import blockbuster_ctx

from tidelog import AdminClient, KafkaError, KafkaException, Producer, TopicPartition
from tidelog.admin import ConsumerGroupTopicPartitions
from tidelog.aio import Consumer
from tidelog.testing import FakeCluster

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
Run = Callable[[Coroutine[Any, Any, None]], None]
ALL = [TopicPartition("t", 0), TopicPartition("t", 1)]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t", 2)
        with Producer({"bootstrap.servers": running.bootstrap_servers}) as producer:
            for partition in (0, 1):
                for n in range(3):
                    producer.produce("t", f"{partition}-{n}", partition=partition)
        yield running


@pytest.fixture
def admin(cluster: FakeCluster) -> Iterator[AdminClient]:
    # With the last channel gRPC ends its poller, and the network thread waits for that: this keeps one open.
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        client.cluster_id()
        yield client


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest, admin: AdminClient) -> Run:
    """Run a test's coroutine in either loop, where each blocking call is an error."""

    def run_in_loop(test: Coroutine[Any, Any, None]) -> None:
        async def limited() -> None:
            async with asyncio.timeout(30):
                await test

        with blockbuster_ctx(), asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(limited())

    return run_in_loop


def settings(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    given = {key if key == "on_commit" else key.replace("_", "."): value for key, value in more.items()}
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "heartbeat.interval.ms": 50,
        **given,
    }


def committed(admin: AdminClient) -> dict[int, int]:
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])["g"].result(20)
    return {p.partition: p.offset for p in found.topic_partitions or ()}


def test_a_group_is_read_and_left_and_its_offsets_stay(cluster: FakeCluster, admin: AdminClient, run: Run) -> None:
    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            await consumer.subscribe(["t"])
            messages = await consumer.consume(6, 20)
            assert sorted(m.value() for m in messages) == [b"%d-%d" % (p, n) for p in (0, 1) for n in range(3)]
            assert await consumer.memberid()
            assert (await consumer.consumer_group_metadata()).group_id == "g"

    run(test())
    assert committed(admin) == {0: 3, 1: 3}
    assert admin.describe_consumer_groups(["g"])["g"].result(20).members == []


def test_rebalances_wait_for_callbacks_that_are_coroutines(cluster: FakeCluster, run: Run) -> None:
    told: list[tuple[str, list[TopicPartition]]] = []

    async def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assert isinstance(consumer, Consumer)
        told.append(("assign begins", partitions))
        await asyncio.sleep(0.02)
        await consumer.assign([TopicPartition(p.topic, p.partition, 2) for p in partitions])
        told.append(("assign ends", partitions))

    async def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        done = await consumer.commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=False)
        assert done is not None
        assert [p.error for p in done] == [None]
        told.append(("revoke", partitions))

    async def test() -> None:
        async with Consumer(settings(cluster, enable_auto_commit=False)) as consumer:
            consumer.subscribe(["t"], on_assign=assigned, on_revoke=revoked)
            messages = await consumer.consume(2, 20)
            # What the callback assigned holds, and nothing was read before it had ended.
            assert sorted(m.value() for m in messages) == [b"0-2", b"1-2"]
            assert [what for what, _ in told] == ["assign begins", "assign ends"]
            assert [p.offset for p in await consumer.committed(ALL)] == [-1001, -1001]
        assert told[2:] == [("revoke", ALL)]

    run(test())


def test_plain_callbacks_may_change_the_assignment_without_an_await(cluster: FakeCluster, run: Run) -> None:
    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign([TopicPartition(p.topic, p.partition, 2) for p in partitions])

    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            consumer.subscribe(["t"], on_assign=assigned)
            assert sorted(m.value() for m in await consumer.consume(2, 20)) == [b"0-2", b"1-2"]

    run(test())


def test_a_rebalance_goes_on_to_its_end_though_the_poll_is_cancelled(cluster: FakeCluster, run: Run) -> None:
    async def test() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            begun.set()
            await asyncio.sleep(0.05)
            ended.set()

        async with Consumer(settings(cluster)) as consumer:
            consumer.subscribe(["t"], on_assign=assigned)
            poll = asyncio.create_task(consumer.poll())
            await begun.wait()
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
            assert not ended.is_set()
            assert len(await consumer.consume(6, 20)) == 6
            assert ended.is_set()

    run(test())


def test_what_a_rebalances_callback_raises_comes_out_of_poll(cluster: FakeCluster, run: Run) -> None:
    async def fails(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        raise ValueError("as asked")

    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            consumer.subscribe(["t"], on_assign=fails)
            with pytest.raises(ValueError, match="as asked"):
                await consumer.poll()
            assert len(await consumer.consume(6, 20)) == 6

    run(test())


def test_poll_and_close_inside_of_a_rebalance_are_refused(cluster: FakeCluster, run: Run) -> None:
    refused: list[int] = []

    async def polls(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for call in (consumer.poll, consumer.close):
            with pytest.raises(KafkaException) as caught:
                await call()
            refused.append(caught.value.args[0].code())

    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            consumer.subscribe(["t"], on_assign=polls)
            assert await consumer.poll() is not None

    run(test())
    assert refused == [KafkaError._STATE] * 2


def test_commits_are_told_to_a_coroutine(cluster: FakeCluster, admin: AdminClient, run: Run) -> None:
    told: list[tuple[KafkaError | None, list[int]]] = []

    async def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        told.append((error, [p.offset for p in partitions]))

    async def test() -> None:
        async with Consumer(settings(cluster, enable_auto_commit=False, on_commit=on_commit)) as consumer:
            consumer.subscribe(["t"])
            (message,) = await consumer.consume(1, 20)
            await consumer.commit(message)
            while not told:
                await consumer.poll(0.02)
            with pytest.raises(KafkaException, match="_INVALID_ARG"):
                consumer.store_offsets(message)

    run(test())
    assert told == [(None, [1])]
    assert list(committed(admin).values()) == [1]


def test_a_consume_that_is_cancelled_commits_nothing_of_what_it_had(
    cluster: FakeCluster, admin: AdminClient, run: Run
) -> None:
    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await consumer.consume(100)

    run(test())
    assert all(offset == 0 for offset in committed(admin).values())


def test_two_members_share_the_topic_in_one_loop(cluster: FakeCluster, run: Run) -> None:
    async def test() -> None:
        async with Consumer(settings(cluster)) as first, Consumer(settings(cluster)) as second:
            first.subscribe(["t"])
            await first.poll()
            second.subscribe(["t"])

            async def keep_polling(consumer: Consumer) -> None:
                while True:
                    await consumer.poll()

            polling = [asyncio.create_task(keep_polling(consumer)) for consumer in (first, second)]
            while [len(await c.assignment()) for c in (first, second)] != [1, 1]:  # noqa: ASYNC110 - others change it
                await asyncio.sleep(0.01)
            for task in polling:
                task.cancel()
            await asyncio.gather(*polling, return_exceptions=True)

    run(test())
