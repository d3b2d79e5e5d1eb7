"""Requests begin in order, responses leave in order, and what may overlap does."""

import asyncio
import random

import pytest
from toy_listener import Client, open_listener, request, run

from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.server.limits import ListenerLimits

METADATA, FETCH, PRODUCE = ApiKey.METADATA, ApiKey.FETCH, ApiKey.PRODUCE


def test_responses_of_overlapping_requests_leave_in_the_order_of_the_requests() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            await client.send(b"".join(request(PRODUCE, n, b"wait") for n in range(5)))
            await listener.has_begun(0, 1, 2, 3, 4)
            for n in (3, 1, 4, 2):
                await listener.answer(n, b"%d" % n)
            await client_gets_nothing(client)
            await listener.answer(0, b"0")
            assert [await client.receive() for _ in range(5)] == [(n, b"%d" % n) for n in range(5)]

    run(main)


def test_request_that_does_not_overlap_waits_for_all_before_it_and_holds_up_all_behind() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            keys = (PRODUCE, PRODUCE, FETCH, PRODUCE, METADATA)
            await client.send(b"".join(request(key, n, b"wait") for n, key in enumerate(keys)))
            await listener.has_begun(0, 1)
            await listener.answer(1)
            await client_gets_nothing(client)
            assert len(listener.begun) == 2
            await listener.answer(0)
            await listener.has_begun(2)
            await client_receives(client, 0, 1)
            for n in (2, 3, 4):
                await listener.has_begun(n)
                await listener.answer(n)
                await client_receives(client, n)

    run(main)


def test_answer_that_is_there_at_once_waits_for_those_before_it() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            await client.send(request(PRODUCE, 1, b"wait") + request(PRODUCE, 2, b"echo x"))
            await listener.has_begun(1, 2)
            await client_gets_nothing(client)
            await listener.answer(1)
            assert await client.receive() == (1, b"done")
            assert await client.receive() == (2, b"echo x")

    run(main)


def test_request_without_a_response_gets_none_and_holds_nothing_up() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            await client.send(request(PRODUCE, 1, b"none") + request(METADATA, 2) + request(PRODUCE, 3, b"none"))
            await client.send(request(METADATA, 4))
            await client_receives(client, 2, 4)

    run(main)


def test_header_of_a_response_has_tagged_fields_in_flexible_versions_but_for_api_versions() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            await client.send(request(METADATA, 1, b"echo", version=8))
            assert await client.receive() == (1, b"echo")
            await client.send(request(METADATA, 2, b"echo", version=9))
            assert await client.receive() == (2, b"\0echo")
            await client.send(request(ApiKey.API_VERSIONS, 3, b"\0\x02a\x02b\0", version=3))
            correlation_id, body = await client.receive()
            assert (correlation_id, body[:2]) == (3, b"\0\0")

    run(main)


def test_connections_do_not_wait_for_each_other() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            slow, quick = await listener.connect(), await listener.connect()
            await slow.send(request(FETCH, 1, b"wait"))
            await listener.has_begun(1)
            for n in range(2, 5):
                await quick.send(request(METADATA, n))
                await client_receives(quick, n)
            await listener.answer(1)
            await client_receives(slow, 1)

    run(main)


@pytest.mark.parametrize("seed", range(4))
def test_any_cut_of_the_bytes_gives_the_same_requests(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((0, 1, 100, 5_000, 70_000, 200_000)) for _ in range(60)]
    bodies = [b"echo " + rng.randbytes(size) for size in sizes]
    sent = b"".join(request(rng.choice((PRODUCE, METADATA)), n, body) for n, body in enumerate(bodies))

    async def send(client: Client) -> None:
        position = 0
        while position < len(sent):
            end = position + rng.choice((1, 3, 7, 1_000, 66_000, 500_000))
            await client.send(sent[position:end])
            position = end

    async def main() -> None:
        async with open_listener() as listener:
            client, other = await listener.connect(), await listener.connect()
            sender = asyncio.create_task(send(client))
            for n, body in enumerate(bodies):
                if n % 7 == 0:
                    # The bytes that are received between belong to somebody else.
                    await other.send(request(METADATA, n, b"echo other")[:9])
                    await other.send(request(METADATA, n, b"echo other")[9:])
                    assert await other.receive() == (n, b"echo other")
                assert await client.receive() == (n, body)
            await sender

    run(main)


def test_many_requests_at_once_let_others_have_their_turn() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            greedy, other = await listener.connect(), await listener.connect()
            await greedy.send(b"".join(request(METADATA, n) for n in range(2_000)))
            await other.send(request(METADATA, -1))
            await client_receives(other, -1)
            assert [number for number, _ in listener.begun].index(-1) < 2_000
            await client_receives(greedy, *range(2_000))

    run(main)


def test_requests_in_flight_are_bounded() -> None:
    async def main() -> None:
        async with open_listener(ListenerLimits(max_in_flight=3)) as listener:
            client = await listener.connect()
            await client.send(b"".join(request(PRODUCE, n, b"wait") for n in range(6)))
            await listener.has_begun(0, 1, 2)
            # What is answered, but has not left, has its place still.
            await listener.answer(1)
            await client_gets_nothing(client)
            assert len(listener.begun) == 3
            await listener.answer(0)
            await listener.has_begun(3, 4)
            for n in (2, 3, 4, 5):
                await listener.answer(n)
            await client_receives(client, *range(6))

    run(main)


def test_requests_under_way_are_cancelled_when_their_connection_is_lost() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            await client.send(request(PRODUCE, 1, b"wait") + request(PRODUCE, 2, b"wait"))
            await listener.has_begun(1, 2)
            client.close()
            await listener.is_at_rest()
            assert all(future.cancelled() for future in listener.waiting.values())

    run(main)


def test_stop_answers_what_is_under_way_and_begins_nothing_more() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            busy, idle = await listener.connect(), await listener.connect()
            await idle.send(request(METADATA, 9))
            await client_receives(idle, 9)
            await busy.send(request(FETCH, 1, b"wait") + request(METADATA, 2))
            await listener.has_begun(9, 1)
            stop = asyncio.create_task(listener.listeners.stop(10))
            assert await idle.is_closed()
            await listener.answer(1)
            await client_receives(busy, 1)
            assert await busy.is_closed()
            await stop
            assert listener.begun[-1] == (1, "wait")

    run(main)


def test_stop_ends_what_takes_longer_than_its_grace() -> None:
    async def main() -> None:
        async with open_listener() as listener:
            client = await listener.connect()
            await client.send(request(FETCH, 1, b"wait"))
            await listener.has_begun(1)
            await listener.listeners.stop(0.01)
            assert await client.is_closed()
            await listener.is_at_rest()

    run(main)


async def client_receives(client: Client, *correlation_ids: int) -> None:
    assert [(await client.receive())[0] for _ in correlation_ids] == list(correlation_ids)


async def client_gets_nothing(client: Client) -> None:
    """Nothing is on its way: what the listener could do it has done, since another connection has been served."""
    for _ in range(20):
        await asyncio.sleep(0)
    client.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.sock.recv(1)
