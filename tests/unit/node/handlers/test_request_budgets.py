"""The measurements of the test of requests' budgets: the whole cost of each request."""

import asyncio
import contextlib
import functools
import os
import subprocess
import sys
import threading
import time

import pytest

from tests.support.kafka_requests import declarations, read_request
from tests.support.request_budgets import Process, Watch, cost_of
from tests.support.worst_requests import grpc_requests, kafka_frames
from tidelog.v1 import log_service_pb2 as pb
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.server.fetch_messages import request_from_proto

SIZE = 1_000
LONG_S, STRETCH_S = 0.6, 0.3
"""The first is longer than an idle process is watched."""


def spend(seconds: float) -> None:
    """Use a processor for so long."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


class Loop:
    """A server's event loop: it does what it has to do before it answers a ping."""

    def __init__(self):
        self.answered = None

    async def ping(self):
        await asyncio.sleep(0)
        answered, self.answered = self.answered, None
        if answered is not None:
            spend(STRETCH_S)
            answered.set()

    async def work(self):
        answered = self.answered = asyncio.Event()
        await answered.wait()

    async def after_a_thread(self, note_sent):
        """Have a thread work, and then the loop."""
        note_sent()
        await asyncio.to_thread(spend, LONG_S)
        await self.work()

    async def when_all_has_arrived(self, note_sent):
        """Have the loop work for a request that takes long to send."""
        await asyncio.sleep(LONG_S)
        note_sent()
        await self.work()


async def without_an_answer(note_sent):
    """Have a thread work when the caller has gone."""
    note_sent()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        threading.Thread(target=spend, args=(LONG_S,)).start()


class OwnProcess(Process):
    """The process of the test, whose first thread runs whenever it looks."""

    def is_runnable(self):
        return False


async def measured(send, ping):
    process = OwnProcess(os.getpid())
    watch = Watch(process, ping)
    cost = await cost_of(process, watch, "a request", SIZE, send)
    await watch.stop()
    return cost


@pytest.mark.costly
@pytest.mark.parametrize("send", [Loop.after_a_thread, Loop.when_all_has_arrived])
def test_cost_of_a_request_counts_the_loop_after_a_long_quiet_while(send):
    loop = Loop()
    cost = asyncio.run(measured(functools.partial(send, loop), loop.ping))
    assert cost.is_answered
    assert cost.loop_s >= STRETCH_S


@pytest.mark.costly
def test_cost_of_a_request_ends_with_what_is_done_for_it_without_an_answer():
    cost = asyncio.run(measured(without_an_answer, Loop().ping))
    assert not cost.is_answered
    assert cost.total_s >= LONG_S


async def rounds(ping, timeout_s):
    watch = Watch(OwnProcess(os.getpid()), ping)
    try:
        await watch.round(timeout_s)
    finally:
        with contextlib.suppress(ConnectionResetError):
            await watch.stop()


def test_end_of_the_process_is_an_error_of_the_round():
    async def ping():
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionError, match=f"process {os.getpid()} does not answer small requests: .*gone"):
        asyncio.run(rounds(ping, 60))


def test_round_without_an_answer_ends_at_its_deadline():
    with pytest.raises(TimeoutError, match=r"has not answered a small request for 0\.1 s"):
        asyncio.run(rounds(lambda: asyncio.sleep(60), 0.1))


def test_process_that_waits_for_a_processor_is_not_idle():
    assert Process(os.getpid()).is_runnable()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        deadline_s = time.monotonic() + 20
        while Process(child.pid).is_runnable():
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()


def test_worst_fetches_are_no_fetches_of_another_cluster():
    kind = declarations()[ApiKey.FETCH]
    by_kafka = [read_request(build(), kind) for _, build in kafka_frames(kind, kind.VERSIONS[1], SIZE)]
    by_grpc = [pb.FetchRequest.FromString(build()) for _, build in grpc_requests(pb.FetchRequest.DESCRIPTOR, SIZE)]
    for requests in (by_kafka, [request_from_proto(message) for message in by_grpc]):
        assert max(len(request.wanted) for request in requests if not request.cluster_id) > 10
