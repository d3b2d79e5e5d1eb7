"""End to end through gRPC: one node, one replica, ``acks=all``, values of 1 KiB, compared with a bare gRPC stream.

The bare stream moves the same number of bytes in messages of the same size between two processes and does nothing else.
It is the limit of gRPC for Python on this machine at this moment.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from typing import Any

import grpc.aio
import pyarrow

from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.rounds import Rounds, alternate, timed
from tidelog.consumer import Consumer
from tidelog.message import TopicPartition
from tidelog.producer import Producer
from tidelog_foundation.transport import open_channel, run_sync, server_options

_VALUE = 1024
_MESSAGE = 1_000_000
_TOPIC = "stream"
_BARE = "a bare grpcio stream of the same message sizes"
_WINDOW = 5
_SHARE = 0.6


def run(options: Options, bootstrap_servers: str) -> list[Result]:
    """Measure bytes of values per second into the log and out of it."""
    count = options.pick(200_000, 50_000)
    values = pyarrow.array([bytes(_VALUE)] * count, pyarrow.binary())
    size = count * _VALUE
    with _BareStream() as bare, Producer({"bootstrap.servers": bootstrap_servers}) as producer:
        options.say("produce")
        produced = alternate(
            {
                "produce_batch": timed(lambda: producer.produce_batch(_TOPIC, values, partition=0)),
                "produce": timed(lambda: _produce(producer, count)),
                _BARE: timed(lambda: bare.send(size)),
            },
            options.pick(7, 3),
        )
        options.say("consume")
        consumed = alternate(
            {
                "consume_arrow": timed(lambda: _consume(bootstrap_servers, count)),
                _BARE: timed(lambda: bare.receive(size)),
            },
            options.pick(7, 3),
        )
    return [
        *_results("produce_batch(), 1 KiB, acks=all, one node", produced, "produce_batch", size, 100),
        *_results("produce(), 1 KiB, acks=all, one node", produced, "produce", size, None),
        *_results("consume_arrow(), 1 KiB, one node", consumed, "consume_arrow", size, 200),
        Result("bare grpcio stream, sent", size / produced.median(_BARE) / 1e6, "MB/s"),
        Result("bare grpcio stream, received", size / consumed.median(_BARE) / 1e6, "MB/s"),
    ]


def _results(name: str, taken: Rounds, variant: str, size: int, limit: float | None) -> list[Result]:
    """Return one line with the lower bar on this machine today: MB/s, or a share of the bare stream."""
    rate = size / taken.median(variant) / 1e6
    ratio = taken.speed_ratio(variant, _BARE)
    bar = None if limit is None else Bar.on_value(at_least=limit)
    if limit is not None and rate < limit:
        bar = Bar.on_ratio(at_least=_SHARE)
    return [Result(name, rate, "MB/s", _BARE, ratio, bar)]


def _produce(producer: Producer, count: int) -> None:
    value = bytes(_VALUE)
    for _ in range(count):
        while True:
            try:
                producer.produce(_TOPIC, value, partition=0)
                break
            except BufferError:
                producer.poll(0.001)
    assert producer.flush(60) == 0


def _consume(servers: str, count: int) -> None:
    with Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(_TOPIC, 0, 0)])
        left: Any = count
        while left > 0:
            left -= consumer.consume_arrow(min(left, 100_000), 1.0).num_rows


class _BareStream:
    """A gRPC server in a process of its own, and a channel to it."""

    def __enter__(self) -> _BareStream:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        self._address = f"127.0.0.1:{ours.recv()}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    def send(self, size: int) -> None:
        """Send messages, a few ahead of the answers, until ``size`` bytes are acknowledged."""
        run_sync(self._send(size))

    def receive(self, size: int) -> None:
        """Receive messages with ``size`` bytes in total."""
        run_sync(self._receive(size))

    async def _send(self, size: int) -> None:
        async with open_channel(self._address) as channel:
            call: Any = channel.stream_stream("/bare/send")()
            message = bytes(_MESSAGE)
            messages, answered = -(-size // _MESSAGE), 0
            for number in range(messages):
                await call.write(message)
                while number + 1 - answered >= _WINDOW:
                    await call.read()
                    answered += 1
            await call.done_writing()
            while answered < messages:
                await call.read()
                answered += 1

    async def _receive(self, size: int) -> None:
        async with open_channel(self._address) as channel:
            received = 0
            call: Any = channel.unary_stream("/bare/receive")
            async for message in call(str(size).encode()):
                received += len(message)


def _serve(pipe: Connection) -> None:
    import uvloop

    uvloop.run(_serve_forever(pipe))


async def _serve_forever(pipe: Connection) -> None:
    server = grpc.aio.server(options=server_options())
    handlers: Any = {
        "send": grpc.stream_stream_rpc_method_handler(_take),
        "receive": grpc.unary_stream_rpc_method_handler(_give),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pipe.send(port)
    await asyncio.Event().wait()


async def _take(messages: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
    async for message in messages:
        yield str(len(message)).encode()


async def _give(request: bytes, _: object) -> AsyncIterator[bytes]:
    message = bytes(_MESSAGE)
    for _number in range(-(-int(request) // _MESSAGE)):
        yield message
