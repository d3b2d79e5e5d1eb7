"""The consumer for asyncio with assigned partitions, and the admin client: nothing blocks the loop."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from blockbuster import blockbuster_ctx

from tidelog import OFFSET_BEGINNING, AdminClient, KafkaError, KafkaException, NewTopic, Producer, TopicPartition
from tidelog import aio as tidelog_aio
from tidelog.aio import Consumer
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
Run = Callable[[Coroutine[Any, Any, None]], None]
START = TopicPartition("t", 0, OFFSET_BEGINNING)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t")
        # With the last channel gRPC ends its poller, and the network thread waits for that: keep one open.
        with AdminClient({"bootstrap.servers": running.bootstrap_servers}) as admin:
            admin.cluster_id()
            yield running


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a test's coroutine in either loop, where each blocking call is an error."""

    def run_in_loop(test: Coroutine[Any, Any, None]) -> None:
        async def limited() -> None:
            async with asyncio.timeout(30):
                await test

        with blockbuster_ctx(), asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(limited())

    return run_in_loop


def produce(cluster: FakeCluster, count: int, first: int = 0) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1}) as producer:
        for n in range(first, first + count):
            producer.produce("t", str(n), partition=0)


def settings(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, **{k.replace("__", "."): v for k, v in more.items()}}


def test_poll_waits_for_what_is_written_later(cluster: FakeCluster, run: Run) -> None:
    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            await consumer.assign([START])
            assert await consumer.poll(0.02) is None
            waiting = asyncio.create_task(consumer.poll())
            async with tidelog_aio.Producer(settings(cluster)) as producer:
                await producer.produce("t", b"later")
            message = await waiting
            assert message is not None
            assert message.value() == b"later"

    run(test())


def test_consume_returns_batches_in_order(cluster: FakeCluster, run: Run) -> None:
    produce(cluster, 1_200)

    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            consumer.assign([START])
            first = await consumer.consume(700, 20)
            rest = await consumer.consume(700, 0.2)
        assert [m.value() for m in [*first, *rest]] == [str(n).encode() for n in range(1_200)]
        assert len(first) == 700

    run(test())


def test_async_for_reads_until_the_consumer_is_closed(cluster: FakeCluster, run: Run) -> None:
    produce(cluster, 1_500)
    seen: list[bytes] = []

    async def test() -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        consumer = Consumer(settings(cluster))
        consumer.assign([START])
        async for message in consumer:
            seen.append(message.value())
            if len(seen) == 1_400:
                before = turns
            if len(seen) == 1_500:
                asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(consumer.close()))
        other.cancel()
        assert turns > before

    run(test())
    assert seen == [str(n).encode() for n in range(1_500)]


def test_async_for_raises_errors_and_shows_the_end_of_a_partition(cluster: FakeCluster, run: Run) -> None:
    produce(cluster, 1)

    async def test() -> None:
        async with Consumer(settings(cluster, enable__partition__eof=True, auto__offset__reset="error")) as consumer:
            consumer.assign([START])
            record = await anext(consumer)
            end = await anext(consumer)
            assert (record.error(), end.error()) == (None, KafkaError._PARTITION_EOF)
            consumer.assign([TopicPartition("t", 0, 77)])
            with pytest.raises(KafkaException) as caught:
                await anext(consumer)
            assert caught.value.args[0] == KafkaError._AUTO_OFFSET_RESET

    run(test())


def test_consume_that_is_cancelled_has_read_nothing(cluster: FakeCluster, run: Run) -> None:
    produce(cluster, 3)

    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            consumer.assign([START])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await consumer.consume(10)
            again = await consumer.consume(3, 20)
            assert [m.offset() for m in again] == [0, 1, 2]
            assert [p.offset for p in await consumer.position([START])] == [3]

    run(test())


def test_consume_arrow_that_is_cancelled_has_read_nothing(cluster: FakeCluster, run: Run) -> None:
    pytest.importorskip("pyarrow")
    produce(cluster, 3)

    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            consumer.assign([START])
            # pyarrow is imported here, which may take longer than the timeout.
            assert (await consumer.consume_arrow(0)).num_rows == 0
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await consumer.consume_arrow(10)
            table = await consumer.consume_arrow(3, 20)
            assert table.column("offset").to_pylist() == [0, 1, 2]

    run(test())


def test_two_tasks_that_read_take_turns_and_get_each_record_once(cluster: FakeCluster, run: Run) -> None:
    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            consumer.assign([START])

            async def read() -> list[int | None]:
                return [message.offset() for _ in range(50) if (message := await consumer.poll(20)) is not None]

            readers = [asyncio.create_task(read()) for _ in range(2)]
            async with tidelog_aio.Producer(settings(cluster)) as producer:
                for n in range(100):
                    await producer.produce("t", str(n))
            offsets = [offset for reader in readers for offset in await reader]
            assert sorted(o for o in offsets if o is not None) == list(range(100))

    run(test())


def test_close_ends_a_poll_that_waits(cluster: FakeCluster, run: Run) -> None:
    async def test() -> None:
        consumer = Consumer(settings(cluster))
        consumer.assign([START])
        waiting = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0.01)
        await consumer.close()
        assert await waiting is None
        await consumer.close()
        with pytest.raises(KafkaException, match="_DESTROY"):
            await consumer.poll()

    run(test())


def test_seek_pause_and_look_ups_do_not_block(cluster: FakeCluster, run: Run) -> None:
    produce(cluster, 5)

    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            consumer.assign([START])
            assert await consumer.assignment() == [START]
            await consumer.seek(TopicPartition("t", 0, 4))
            (message,) = await consumer.consume(1, 20)
            assert message.offset() == 4
            consumer.pause([START])
            consumer.seek(START)
            assert await consumer.poll(0.05) is None
            consumer.resume([START])
            assert await consumer.poll(20) is not None
            assert await consumer.get_watermark_offsets(START) == (0, 5)
            assert await consumer.get_watermark_offsets(START, cached=True) == (0, 5)
            found = await consumer.offsets_for_times([TopicPartition("t", 0, 1)])
            assert [p.offset for p in found] == [0]
            assert set((await consumer.list_topics()).topics) == {"t"}
            assert await consumer.cluster_id() == cluster.cluster_id

    run(test())


def test_what_is_done_with_the_call_may_be_awaited_or_made_a_task(cluster: FakeCluster, run: Run) -> None:
    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            done = consumer.assign([START])
            await done
            await done
            assignment = consumer.assignment()
            assert isinstance(assignment, Coroutine)
            assert await asyncio.create_task(assignment) == [START]
            task = asyncio.create_task(assignment)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(test())


def test_a_consumer_without_a_group_says_so(cluster: FakeCluster, run: Run) -> None:
    async def test() -> None:
        async with Consumer(settings(cluster)) as consumer:
            for call in (lambda: consumer.subscribe(["t"]), lambda: consumer.commit(asynchronous=False)):
                with pytest.raises(KafkaException) as caught:
                    await call()
                assert caught.value.args[0] == KafkaError._UNKNOWN_GROUP

    run(test())


def test_a_forgotten_client_is_collected_and_ends(cluster: FakeCluster) -> None:
    async def test() -> list[weakref.ref[Any]]:
        producer, consumer = tidelog_aio.Producer(settings(cluster)), Consumer(settings(cluster))
        await (await producer.produce("t", b"v"))
        consumer.assign([START])
        await consumer.poll(20)
        return [weakref.ref(producer), weakref.ref(consumer)]

    forgotten = asyncio.run(test())
    gc.collect()
    assert [ref() for ref in forgotten] == [None, None]


def test_admin_client_awaits_each_item(cluster: FakeCluster, run: Run) -> None:
    async def test() -> None:
        async with tidelog_aio.AdminClient(settings(cluster)) as admin:
            futures = admin.create_topics([NewTopic("a", 2, 1), NewTopic("t", 1, 1)])
            await futures["a"]
            with pytest.raises(KafkaException) as caught:
                await futures["t"]
            assert caught.value.args[0] == KafkaError.TOPIC_ALREADY_EXISTS
            described = await asyncio.gather(*admin.describe_topics(["a", "t"]).values())
            assert [len(topic.partitions) for topic in described] == [2, 1]
            assert set((await admin.list_topics()).topics) == {"a", "t"}
            assert await admin.cluster_id() == (await admin.describe_cluster()).cluster_id

    run(test())


def test_admin_client_that_is_cancelled_leaves_the_operation_to_itself(cluster: FakeCluster, run: Run) -> None:
    async def test() -> None:
        async with tidelog_aio.AdminClient(settings(cluster)) as admin:
            cluster.pause()
            future = admin.create_topics([NewTopic("a", 1, 1)])["a"]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await future
            cluster.resume()
            assert await future is None

    run(test())


def test_admin_client_that_is_closed_fails_what_is_under_way(cluster: FakeCluster, run: Run) -> None:
    async def test() -> None:
        admin = tidelog_aio.AdminClient(settings(cluster))
        cluster.pause()
        future = admin.describe_cluster()
        await asyncio.sleep(0.01)
        await admin.close()
        cluster.resume()
        with pytest.raises(KafkaException):
            await future
        with pytest.raises(KafkaException) as caught:
            await admin.list_topics()
        assert caught.value.code is ErrorCode._DESTROY

    run(test())
