import asyncio
import contextlib
import gc
import sys
import threading
from types import SimpleNamespace

import grpc.aio
import pytest

from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.log_service_pb2_grpc import LogServiceStub
from tidelog_foundation.config.process import run_process
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.transport import error_from_rpc, open_channel, server_options
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_foundation.transport.services import Caller
from tidelog_node import handlers
from tidelog_node.server import log_service as log_service_module
from tidelog_node.server.log_service import RecordCalls, log_service, produce_charge


class Requests:
    """A client that always has one more request; counts how many were taken."""

    def __init__(self, request, limit=1_000_000):
        self.request = request
        self.limit = limit
        self.taken = 0

    def __aiter__(self):
        return self

    async def __anext__(self):
        request = await self.read()
        if request is grpc.aio.EOF:
            raise StopAsyncIteration
        return pb.ProduceStreamRequest.FromString(request)

    def peer(self):
        """Return the peer as a server's context does."""
        return "ipv4:127.0.0.1:1"

    async def read(self):
        """Return the next request as a server's context does."""
        await asyncio.sleep(0)
        if self.taken >= self.limit:
            return grpc.aio.EOF
        self.taken += 1
        return pb.ProduceStreamRequest(correlation_id=self.taken, request=self.request).SerializeToString()


@contextlib.asynccontextmanager
async def serving(context, budget):
    server = grpc.aio.server(options=server_options())
    log_service(context, budget).add_to(server, Intake(Charge(budget)))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            yield LogServiceStub(channel)
    finally:
        await server.stop(0)


def stream_tasks():
    return [t for t in asyncio.all_tasks() if t.get_name().startswith("produce-")]


def test_stream_reads_no_more_while_its_client_takes_no_responses(
    cluster_of, make_batch, make_produce_request, monkeypatch
):
    monkeypatch.setattr(log_service_module, "_MAX_PIPELINED", 10)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            requests = Requests(make_produce_request(make_batch(b"a")))
            calls = RecordCalls(cluster.nodes[1].context, produce_charge(ByteBudget(1 << 20)))
            responses = calls.produce_stream(requests.read, Caller(requests))
            assert (await anext(responses)).correlation_id == 1
            await asyncio.sleep(0.1)

            assert requests.taken <= 12, "the responses that nobody takes must not pile up"
            assert [(await anext(responses)).correlation_id for _ in range(30)] == list(range(2, 32))
            await responses.aclose()

    asyncio.run(run())


def test_stream_that_breaks_gives_back_what_its_requests_took(cluster_of, make_batch, make_produce_request, wait_for):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.add(2)
            budget = ByteBudget(1 << 20)
            async with serving(cluster.nodes[1].context, budget) as stub:
                call = stub.ProduceStream(Requests(make_produce_request(make_batch(b"a" * 100)), limit=50))
                await wait_for(lambda: cluster.partition(1).log.log_end_offset == 50)
                assert budget.taken > 50 * 100

                call.cancel()
                await wait_for(lambda: budget.taken == 0 and not stream_tasks())

    asyncio.run(run())


def test_stream_that_fails_before_a_request_began_to_wait_gives_back_what_it_took(
    cluster_of, make_batch, make_produce_request, caplog
):
    requests = Requests(make_produce_request(make_batch(b"a")), limit=1)

    async def read():
        request = await requests.read()
        if request is grpc.aio.EOF:
            raise ConnectionError
        return request

    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.add(2)
            budget = ByteBudget(1 << 20)
            stream = log_service_module._ProduceStream(cluster.nodes[1].context, produce_charge(budget), None)
            with pytest.raises(ExceptionGroup):
                await anext(stream.run(read))
            assert cluster.partition(1).log.log_end_offset == 1
            assert budget.taken == 0

    asyncio.run(run())
    gc.collect()
    assert "never retrieved" not in caplog.text, "somebody waited for a batch that nobody asks about"


def test_stream_ends_with_an_error_and_gives_back_everything_after_a_defect(
    cluster_of, make_batch, make_produce_request, replace_method, wait_for
):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            replace_method(cluster.nodes[1].context.partitions, "get", lambda *_: 1 // 0)
            budget = ByteBudget(1 << 20)
            async with serving(cluster.nodes[1].context, budget) as stub:
                call = stub.ProduceStream(Requests(make_produce_request(make_batch(b"a")), limit=1))
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await call.read()

                trailing = dict(raised.value.trailing_metadata())
                assert trailing["tidelog-error-code"] == str(ErrorCode.UNKNOWN_SERVER_ERROR.code)
                await wait_for(lambda: budget.taken == 0 and not stream_tasks())

    asyncio.run(run())


def test_stream_answers_each_request_and_keeps_their_order(cluster_of, make_batch, make_produce_request):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            async with serving(cluster.nodes[1].context, ByteBudget(1 << 20)) as stub:
                call = stub.ProduceStream(Requests(make_produce_request(make_batch(b"a")), limit=40))
                offsets = {r.correlation_id: r.response.topics[0].partitions[0].base_offset async for r in call}

            assert offsets == {i + 1: i for i in range(40)}

    asyncio.run(run())


def test_stream_tells_all_its_waiting_requests_when_leadership_moves(
    cluster_of, make_batch, make_produce_request, wait_for
):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.add(2)
            async with serving(cluster.nodes[1].context, ByteBudget(1 << 20)) as stub:
                call = stub.ProduceStream(Requests(make_produce_request(make_batch(b"a")), limit=5))
                await wait_for(lambda: cluster.partition(1).log.log_end_offset == 5)
                await cluster.elect(2)
                results = [r.response.topics[0].partitions[0] async for r in call]

            assert {r.error.code for r in results} == {ErrorCode.NOT_LEADER_OR_FOLLOWER.code}
            assert {r.base_offset for r in results} == {0, 1, 2, 3, 4}

    asyncio.run(run())


def test_request_that_waits_for_acks_counts_until_it_is_answered_or_given_up(
    cluster_of, make_batch, make_produce_request, wait_for
):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.add(2)
            budget = ByteBudget(1 << 20)
            async with serving(cluster.nodes[1].context, budget) as stub:
                request = make_produce_request(make_batch(b"a" * 10_000))
                given_up, answered = stub.Produce(request), stub.Produce(request)
                await wait_for(lambda: cluster.partition(1).log.log_end_offset == 2)
                assert budget.taken > 20_000
                given_up.cancel()
                await wait_for(lambda: 10_000 < budget.taken < 20_000)
                cluster.transport.cut_off.clear()
                assert (await answered).topics[0].partitions[0].error.code == 0
                await wait_for(lambda: budget.taken == 0)

    asyncio.run(run())


def test_stream_that_is_idle_holds_no_request(cluster_of, make_batch, make_produce_request, wait_for):
    """A thousand producers that once sent a large batch would else hold a thousand of them, outside of any budget."""
    held = []

    class Once(Requests):
        async def read(self):
            if self.taken:
                await asyncio.Event().wait()
            request = await super().read()
            held.append(request)
            return request

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            calls = RecordCalls(cluster.nodes[1].context, produce_charge(ByteBudget(1 << 20)))
            once = Once(make_produce_request(make_batch(b"a")))
            responses = calls.produce_stream(once.read, Caller(once))
            assert (await anext(responses)).correlation_id == 1
            # Beside the list and the argument here.
            await wait_for(lambda: sys.getrefcount(held[0]) == 2)
            await responses.aclose()

    asyncio.run(run())


@pytest.mark.parametrize("is_stream", [False, True])
def test_request_is_refused_when_too_many_wait_and_is_taken_when_sent_again(
    cluster_of, make_batch, make_produce_request, wait_for, is_stream
):
    """Waiting requests are in memory: many producers at once must not exceed a node's budget."""

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            budget = ByteBudget(20_000, waiting_limit=20_000)
            async with serving(cluster.nodes[1].context, budget) as stub:
                request = make_produce_request(make_batch(b"a" * 10_000))

                async def send():
                    if not is_stream:
                        return await stub.Produce(request)
                    call = stub.ProduceStream(Requests(request, limit=1))
                    return (await call.read()).response

                await budget.take(20_000)
                waiting = asyncio.create_task(send())
                await wait_for(lambda: budget.waiting > 10_000)
                if is_stream:
                    [refused] = (await send()).topics[0].partitions
                    assert (refused.error.code, refused.base_offset) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED.code, -1)
                else:
                    with pytest.raises(grpc.aio.AioRpcError) as raised:
                        await send()
                    error = error_from_rpc(raised.value)
                    assert error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
                    assert error.code.retriable
                assert cluster.partition(1).log.log_end_offset == 0
                budget.give_back(20_000)
                answers = [await waiting, await send()]
                assert [a.topics[0].partitions[0].base_offset for a in answers] == [0, 1]
                await wait_for(lambda: budget.taken == budget.waiting == 0)

    asyncio.run(run())


class OpenStreams:
    """A client in a thread of its own, with streams that have had one answer each and stay open until it is closed."""

    def __init__(self, port, request, count):
        self.answered = threading.Semaphore(0)
        self._port, self._request, self._count = port, request, count
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="client")
        self._thread.start()

    def close(self):
        self._is_over.set()
        self._thread.join(10)

    def _requests(self):
        yield pb.ProduceStreamRequest(correlation_id=1, request=self._request)
        self._is_over.wait(10)

    def _run(self):
        with grpc.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            calls = [LogServiceStub(channel).ProduceStream(self._requests()) for _ in range(self._count)]
            for call in calls:
                assert next(call).correlation_id == 1
                self.answered.release()
            self._is_over.wait(10)


@pytest.mark.parametrize("steps", range(5))
def test_stream_that_the_end_of_the_process_cuts_off_shows_no_traceback(
    cluster_of, make_batch, make_produce_request, tmp_path, caplog, capfd, steps
):
    """gRPC says that a server has stopped some steps before the tasks of its calls have ended."""

    async def main(_):
        server = grpc.aio.server(options=server_options())
        port = server.add_insecure_port("127.0.0.1:0")
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            budget = ByteBudget(1 << 20)
            log_service(cluster.nodes[1].context, budget).add_to(server, Intake(Charge(budget)))
            await server.start()
            client = OpenStreams(port, make_produce_request(make_batch(b"a")), count=8)
            clients.append(client)
            for _ in range(8):
                assert await asyncio.to_thread(client.answered.acquire, timeout=10)
        await server.stop(0)
        for _ in range(steps):
            await asyncio.sleep(0)

    clients = []
    properties = tmp_path / "server.properties"
    properties.write_text("")
    try:
        assert run_process(main, [str(properties)]) == 0
    finally:
        for client in clients:
            client.close()
    assert "Traceback" not in caplog.text + capfd.readouterr().err


def test_records_of_a_refused_batch_leave_the_memory_with_the_answer(cluster_of):
    """Not when cycles are collected: by then a client has sent many more."""
    records = bytes(1_000)
    batch = SimpleNamespace(index=0, records=records)
    topic = SimpleNamespace(name="t", partitions=[batch])
    request = SimpleNamespace(acks=pb.ACKS_ALL, timeout_ms=1_000, topics=[topic], transactional_id="")

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            pending = await handlers.begin_produce(cluster.nodes[1].context, request)
            [[outcome]] = [t.partitions for t in pending.outcomes]
            assert outcome.error is not None
            del pending, outcome, batch.records
            assert sys.getrefcount(records) == before - 1

    before = sys.getrefcount(records)
    gc.collect()
    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()
