"""The producer for asyncio: futures, callbacks, back-pressure, cancellation, and a loop that is never blocked."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from blockbuster import blockbuster_ctx

from tidelog import AdminClient, KafkaError, KafkaException, Message
from tidelog.aio import Producer
from tidelog.consumer import ConsumerGroupMetadata
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t", 2)
        yield running


@pytest.fixture(autouse=True)
def grpc_stays(cluster: FakeCluster) -> Iterator[None]:
    """Keep a channel open: with the last one gRPC ends its poller, and the network thread waits for that."""
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.cluster_id()
        yield


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a test's coroutine in either loop, where each blocking call is an error and each callback is quick."""

    def run_in_loop(test: Coroutine[Any, Any, None]) -> None:
        failures: list[dict[str, Any]] = []

        async def guarded() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
            async with asyncio.timeout(30):
                await test

        with blockbuster_ctx(), asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(guarded())
        assert failures == []

    return run_in_loop


def settings(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    given = {key.replace("__", "."): value for key, value in more.items()}
    return {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, **given}


def test_produce_returns_the_future_of_the_delivered_message(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        async with Producer(settings(cluster)) as producer:
            first = await producer.produce("t", b"a", partition=0, headers={"h": b"1"})
            second = await producer.produce("t", "b", "k", 0, timestamp=5_000)
            messages = await asyncio.gather(first, second)
        assert [(m.topic(), m.partition(), m.offset(), m.value()) for m in messages] == [
            ("t", 0, 0, b"a"),
            ("t", 0, 1, b"b"),
        ]
        assert messages[0].headers() == [("h", b"1")]
        assert messages[1].timestamp()[1] == 5_000

    run(test())


def test_callbacks_may_be_functions_and_coroutines_and_come_in_order(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    seen: list[tuple[str, int | None]] = []

    async def waits(error: KafkaError | None, message: Message) -> None:
        assert error is None
        seen.append(("begins", message.offset()))
        await asyncio.sleep(0.01)
        seen.append(("ends", message.offset()))

    async def test() -> None:
        async with Producer(settings(cluster, on_delivery=waits)) as producer:
            await producer.produce("t", b"a", partition=0)
            await producer.produce("t", b"b", partition=0, on_delivery=lambda e, m: seen.append(("plain", m.offset())))
            await producer.produce("t", b"c", partition=0, callback=waits)

    run(test())
    assert [offset for what, offset in seen if what != "ends"] == [1, 0, 2]
    assert [offset for what, offset in seen if what == "ends"] == [0, 2]


def test_a_failed_delivery_fails_its_future(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        cluster.fail_next("Produce", ErrorCode.INVALID_RECORD)
        async with Producer(settings(cluster)) as producer:
            delivery = await producer.produce("t", b"a")
            with pytest.raises(KafkaException) as caught:
                await delivery
            assert caught.value.args[0] == KafkaError.INVALID_RECORD

    run(test())


def test_a_failure_that_its_callback_was_told_is_not_told_by_the_loop_again(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    errors: list[KafkaError | None] = []

    async def test() -> None:
        cluster.fail_next("Produce", ErrorCode.INVALID_RECORD)
        async with Producer(settings(cluster)) as producer:
            await producer.produce("t", b"a", on_delivery=lambda error, _: errors.append(error))

    run(test())
    assert errors == [KafkaError.INVALID_RECORD]


def test_produce_waits_for_room_and_keeps_the_order_of_its_callers(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        async with Producer(settings(cluster, queue__buffering__max__messages=3)) as producer:
            cluster.pause()
            callers = [asyncio.create_task(producer.produce("t", str(n), partition=0)) for n in range(50)]
            await asyncio.sleep(0.05)
            assert [task.done() for task in callers] == [True] * 3 + [False] * 47
            cluster.resume()
            messages = await asyncio.gather(*[await task for task in callers])
        assert [message.offset() for message in messages] == list(range(50))
        assert [record.value for record in await asyncio.to_thread(cluster.records, "t")] == [
            str(n).encode() for n in range(50)
        ]

    run(test())


def test_produce_that_is_cancelled_while_it_waits_has_sent_nothing(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        async with Producer(settings(cluster, queue__buffering__max__messages=1)) as producer:
            cluster.pause()
            await producer.produce("t", b"first", partition=0)
            given_up = asyncio.create_task(producer.produce("t", b"given up", partition=0))
            last = asyncio.create_task(producer.produce("t", b"last", partition=0))
            await asyncio.sleep(0.01)
            given_up.cancel()
            cluster.resume()
            assert (await (await last)).offset() == 1
        stored = await asyncio.to_thread(cluster.records, "t")
        assert [record.value for record in stored] == [b"first", b"last"]

    run(test())


def test_produce_gives_up_waiting_for_room_after_max_block_ms(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        async with Producer(settings(cluster, queue__buffering__max__messages=1, max__block__ms=50)) as producer:
            cluster.pause()
            await producer.produce("t", b"a")
            with pytest.raises(BufferError, match=r"after 0\.05 seconds"):
                await producer.produce("t", b"b")
            cluster.resume()

    run(test())


def test_flush_waits_for_all_reports_and_not_beyond_its_timeout(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        async with Producer(settings(cluster, linger__ms=60_000)) as producer:
            cluster.pause()
            deliveries = [await producer.produce("t", b"v") for _ in range(10)]
            assert await producer.flush(0.05) == 10
            assert len(producer) == 10
            cluster.resume()
            assert await producer.flush() == 0
            assert all(delivery.done() for delivery in deliveries)
            assert await producer.poll() == 10
            assert await producer.poll() == 0

    run(test())


def test_purge_fails_what_is_not_sent(cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def test() -> None:
        async with Producer(settings(cluster, linger__ms=60_000)) as producer:
            delivery = await producer.produce("t", b"v")
            await producer.purge()
            with pytest.raises(KafkaException, match="_PURGE_QUEUE"):
                await delivery

    run(test())


def test_records_of_an_aborted_transaction_are_discarded_silently(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def fail(producer: Producer) -> None:
        async with producer.transaction():
            for _ in range(3):
                await producer.produce("t", b"v")
            raise ZeroDivisionError

    async def test() -> None:
        async with Producer(settings(cluster, linger__ms=60_000, transactional__id="silent")) as producer:
            await producer.init_transactions(10)
            with pytest.raises(ZeroDivisionError):
                await fail(producer)
        gc.collect()

    run(test())


def test_transactional_calls_need_a_transactional_id_and_valid_arguments(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        async with Producer(settings(cluster)) as producer:
            with pytest.raises(KafkaException, match="_NOT_CONFIGURED"):
                await producer.send_offsets_to_transaction([], ConsumerGroupMetadata("g", 3, "m", None))
            with pytest.raises(TypeError, match="must be a PreparedTransaction"):
                await producer.complete_transaction("1007:3")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="timeout must be a number of seconds"):
                await producer.commit_transaction(None)  # type: ignore[arg-type]

    run(test())


def test_close_that_is_cancelled_stops_all_the_same(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        producer = Producer(settings(cluster))
        cluster.pause()
        delivery = await producer.produce("t", b"v")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await producer.close()
        cluster.resume()
        with pytest.raises(KafkaException, match="_PURGE"):
            await delivery
        with pytest.raises(KafkaException, match="_DESTROY"):
            await producer.produce("t", b"v")
        assert await producer.close() == 0

    run(test())


def test_produce_that_waits_for_room_ends_with_the_producer(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    async def test() -> None:
        producer = Producer(settings(cluster, queue__buffering__max__messages=1))
        cluster.pause()
        first = await producer.produce("t", b"v")
        waiting = asyncio.create_task(producer.produce("t", b"v"))
        await asyncio.sleep(0)
        assert await producer.close(0) == 1
        cluster.resume()
        with pytest.raises(KafkaException, match="_DESTROY"):
            await waiting
        assert isinstance(first.exception(), KafkaException)

    run(test())


def test_statistics_reach_a_coroutine(cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def test() -> None:
        shown = asyncio.get_running_loop().create_future()

        async def show(text: str) -> None:
            if not shown.done():
                shown.set_result(json.loads(text))

        async with Producer(settings(cluster, stats_cb=show, statistics__interval__ms=10)):
            assert (await shown)["type"] == "producer"

    run(test())


def test_produce_batch_sends_rows_while_the_loop_serves_others(
    cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    threads: list[bool] = []

    async def test() -> None:
        ours = threading.get_ident()
        async with Producer(settings(cluster, queue__buffering__max__messages=100)) as producer:
            rows = asyncio.create_task(producer.produce_batch("t", [b"%d" % n for n in range(1_000)], partition=0))
            for _ in range(50):
                await producer.produce(
                    "t", b"v", partition=1, on_delivery=lambda *_: threads.append(threading.get_ident() == ours)
                )
            assert list(await rows) == list(range(1_000))

    run(test())
    assert threads == [True] * 50


def test_list_topics_does_not_block(cluster: FakeCluster, run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def test() -> None:
        async with Producer(settings(cluster)) as producer:
            assert set((await producer.list_topics()).topics) == {"t"}

    run(test())


def test_other_tasks_get_their_turn_while_records_are_taken_and_delivered(cluster: FakeCluster) -> None:
    taken = served = 0
    most: list[int] = [0, 0]

    def report(error: KafkaError | None, message: Message) -> None:
        nonlocal served
        served += 1

    async def watch() -> None:
        while True:
            before = (taken, served)
            await asyncio.sleep(0)
            most[:] = max(most[0], taken - before[0]), max(most[1], served - before[1])

    async def test() -> None:
        nonlocal taken
        watcher = asyncio.create_task(watch())
        async with Producer(settings(cluster, linger__ms=50, on_delivery=report)) as producer:
            for _ in range(5_000):
                await producer.produce("t", b"x" * 100)
                taken += 1
        watcher.cancel()

    asyncio.run(test())
    assert (taken, served) == (5_000, 5_000)
    assert 0 < max(most) <= 501


def test_a_raising_callback_is_the_loops_to_show_and_harms_no_other(cluster: FakeCluster) -> None:
    shown: list[dict[str, Any]] = []

    def fails(error: KafkaError | None, message: Message) -> None:
        raise ValueError("as asked")

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: shown.append(context))
        async with Producer(settings(cluster)) as producer:
            deliveries = [await producer.produce("t", b"v", partition=0, on_delivery=fails) for _ in range(2)]
            assert [(await delivery).offset() for delivery in deliveries] == [0, 1]

    asyncio.run(test())
    assert [str(context["exception"]) for context in shown] == ["as asked", "as asked"]


def test_the_producer_refuses_a_setting_that_would_leave_futures_open(cluster: FakeCluster) -> None:
    async def test() -> None:
        with pytest.raises(KafkaException, match="every record has a future"):
            Producer(settings(cluster, delivery__report__only__error=True))

    asyncio.run(test())


def test_the_producer_needs_a_running_loop(cluster: FakeCluster) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        Producer(settings(cluster))


def test_a_loop_that_closes_before_its_producer_harms_nobody(cluster: FakeCluster) -> None:
    kept: list[Producer] = []

    async def test() -> None:
        kept.append(Producer(settings(cluster)))
        await kept[0].produce("t", b"v")

    asyncio.run(test())
    kept[0]._producer.close()
    assert sum(len(cluster.records("t", partition)) for partition in (0, 1)) == 1
