"""The compiled short way of a connection has the answers, logs and counts of the general way."""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from itertools import zip_longest

import pytest
from appends import without_short_appends
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from unit.kafka.test_produce import NEWEST, TOPIC_ID, encode
from unit.kafka.test_produce_single import batch, with_byte
from unit.node.conftest import InProcessCluster

from tidelog_foundation.authorization import WRITE_TOPIC
from tidelog_foundation.config import TopicConfig
from tidelog_foundation.logs.limit import LogLimit
from tidelog_foundation.logs.request_id import current_request_id
from tidelog_foundation.logs.slow_requests import SlowRequests
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_node.handlers.response_budget import ResponseBudget
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages import produce as wire
from tidelog_node.kafka.protocol.messages.produce_single import MAX_BYTES
from tidelog_node.kafka.served import CloseConnection, KafkaNode
from tidelog_node.kafka.server.connection import Connection, Served
from tidelog_node.kafka.server.limits import ListenerLimits, RequestBudgets
from tidelog_node.kafka.server.request_times import RequestTimes
from tidelog_node.kafka.server.short_way import short_way_of
from tidelog_node.partitions import Partition
from tidelog_node.replication.events import FollowerFetched
from tidelog_quorum.metadata.records import PartitionChangeRecord, RegisterBrokerRecord

TOTAL = -1
MAX_REQUEST_BYTES = 80_000
WHOLE = 1 << 20
LONG_MS = 60_000
IDS = {"t": TOPIC_ID, "w": b"w" * 16, "missing": b"m" * 16, "__consumer_offsets": b"c" * 16}

pytestmark = pytest.mark.skipif(short_way_of(all_apis()) is None, reason="the short way is not compiled")


class Transport(asyncio.Transport):
    """A socket in memory, whose kernel takes nothing more while it ``is_full``."""

    def __init__(self, *, fills: bool = False) -> None:
        super().__init__()
        self.sent = bytearray()
        self.is_closed = False
        self.is_reading = True
        self.connection: Connection | None = None
        self._fills = fills

    def get_extra_info(self, name, default=None):
        return ("127.0.0.1", 5) if name == "peername" else self

    def fileno(self):
        return 3

    def set_write_buffer_limits(self, high=None, low=None):
        assert high == 0

    def write(self, data):
        self.sent += data
        if self._fills:
            self.connection.pause_writing()

    def writelines(self, chunks):
        self.write(b"".join(chunks))

    def get_write_buffer_size(self):
        return 0

    def pause_reading(self):
        self.is_reading = False

    def resume_reading(self):
        self.is_reading = True

    def abort(self):
        self.is_closed = True

    close = abort


class Owner:
    def admit(self, connection):
        return True

    def forget(self, connection):
        pass


class Session:
    """A session of SASL that expires after some requests."""

    def __init__(self, requests: int) -> None:
        self.left = requests
        self.has_token = False

    def takes(self, api_key: int) -> bool:
        if not self.left:
            raise CloseConnection("the session has expired")
        return False


class KnownAccess:
    """Permissions of a caller who may write to all topics but ``w``."""

    topic_name = None

    def has(self, right, name):
        return name != "w"

    def remembers(self, right, name):
        assert right is WRITE_TOPIC
        return name == "t"


class Guard:
    def access(self, api, caller):
        return KnownAccess()


LARGE = {b"too large for the short way": batch(MAX_BYTES), b"too large": batch(MAX_REQUEST_BYTES)}
"""Batches by their names, which keep the examples short."""
BATCHES = st.one_of(
    st.builds(batch, st.sampled_from((0, 5, 200)), count=st.integers(1, 3)),
    st.builds(batch, st.just(5), st.tuples(st.just(7), st.integers(0, 1), st.integers(0, 4)), st.integers(1, 2)),
    st.builds(with_byte, st.just(batch()), st.integers(0, len(batch()) - 1), st.integers(0, 255)),
    st.sampled_from((b"", batch()[:40], *LARGE)),
)
FETCH, ELECT = "a follower fetches", "another node leads"
REQUESTS = st.fixed_dictionaries(
    {
        "version": st.one_of(st.just(NEWEST), st.integers(wire.FIRST_SERVED - 1, NEWEST + 1)),
        "acks": st.sampled_from((-1, -1, 0, 1, 3)),
        "topic": st.sampled_from(("t", "t", "t", "w", "missing", "__consumer_offsets")),
        "txn": st.sampled_from((None, None, None, "x")),
        "timeout": st.sampled_from((LONG_MS, LONG_MS, 0)),
        "batches": st.lists(st.tuples(st.sampled_from((0, 0, 1, 9)), BATCHES), min_size=1, max_size=2),
        "client": st.sampled_from((b"client", b"client", b"client", b"other", b"", None, b"\xff")),
        "change": st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 120), st.integers(0, 255))),
        "api": st.sampled_from((0, 0, 0, 0, 18)),
    }
)
QUIET = {"joins": [], "fills": False, "guard": None, "session_requests": None, "limit": 1 << 30}
PLAIN = {
    "version": NEWEST,
    "acks": -1,
    "topic": "t",
    "txn": None,
    "timeout": LONG_MS,
    "batches": [(0, batch())],
    "client": b"client",
    "change": None,
    "api": 0,
}

WAITING = PLAIN | {"topic": "w"}


def frame(request, correlation_id: int) -> bytes:
    version, client = request["version"], request["client"]
    known = min(max(version, wire.FIRST_SERVED), NEWEST)
    batches = [(index, LARGE.get(records, records)) for index, records in request["batches"]]
    topic = request["topic"]
    body = encode(known, batches, request["acks"], request["timeout"], topic, IDS[topic], request["txn"])
    if request["api"] == ApiKey.API_VERSIONS:
        version, body = 0, b""
    head = struct.pack(">hhih", request["api"], version, correlation_id, -1 if client is None else len(client))
    data = bytearray(head + (client or b"") + (b"\0" if version >= wire.FLEXIBLE else b"") + body)
    if request["change"] is not None and request["change"][0] < len(data):
        data[request["change"][0]] = request["change"][1]
    return struct.pack(">i", len(data)) + data


class Run:
    """Requests to one connection of a node in memory, with the short way or without."""

    def __init__(
        self, cluster, *, is_short, fills=False, guard=None, session=None, limit=1 << 30, max_in_flight=3
    ) -> None:
        self.cluster = cluster
        apis = all_apis()
        log = LogLimit(logging.getLogger("test"), time.monotonic)
        self.times = RequestTimes(apis, SlowRequests(0))
        self.produced = ByteBudget(limit)
        self.responses = ResponseBudget()
        served = Served(
            apis,
            KafkaNode(cluster.nodes[1].context, None, guard),
            RequestBudgets(self.produced, limit),
            self.responses,
            ListenerLimits(request_max_bytes=MAX_REQUEST_BYTES, max_in_flight=max_in_flight),
            bytearray(1 << 18),
            log,
            log,
            self.times,
            short_way_of(apis) if is_short else None,
        )
        self.transport = Transport(fills=fills)
        self.connection = Connection(served, Owner(), "PLAINTEXT", session=session)
        self.transport.connection = self.connection
        self.unread = bytearray()
        self.connection.connection_made(self.transport)

    def receive(self, data: bytes) -> None:
        """Pass bytes of the client on, if the connection reads, else keep them for later."""
        self.unread += data
        while self.unread and self.transport.is_reading and not self.transport.is_closed:
            room = self.connection.get_buffer(-1)
            count = min(len(self.unread), len(room))
            room[:count] = self.unread[:count]
            del self.unread[:count]
            self.connection.buffer_updated(count)

    async def settle(self) -> None:
        """Let a follower have the records, the client take the answers, and wait until all requests are answered."""
        async with asyncio.timeout(10):
            while not self.transport.is_closed and (self.unread or not self.connection.is_idle):
                self.receive(b"")
                await happen(self.cluster, FETCH)
                if self.connection._outbox.is_paused:
                    self.connection.resume_writing()
                await asyncio.sleep(0.001)

    def found(self):
        """Return the observable outcome."""
        counts = self.times.of[ApiKey.PRODUCE]
        logs = []
        for key in (("t", 0), ("t", 1), ("w", 0)):
            partition = self.cluster.nodes[1].registry.get(*key)
            log, traffic = partition.log, partition.traffic
            logs.append((log.read(0, 1 << 22, log.log_end_offset), partition.high_watermark))
            logs.append((traffic.appends, traffic.bytes_in, traffic.messages_in))
        return (
            bytes(self.transport.sent),
            self.transport.is_closed,
            counts._uncounted,
            sum(counts.counts[TOTAL]),
            self.produced.taken if not self.transport.is_closed else None,
            self.responses.taken if not self.transport.is_closed else None,
            logs,
        )


async def happen(cluster, event: str) -> None:
    partition = cluster.nodes[1].registry.get("w", 0)
    if event == ELECT:
        await cluster.controller.change(PartitionChangeRecord(IDS["w"], 0, leader=2))
    elif partition.state.leader is not None:
        end = partition.log.log_end_offset
        partition.step(FollowerFetched(2, 0, end, 0))


async def outcome(folder, requests, cuts, joins=(), *, is_short, session_requests=None, **settings):
    """Return the outcome of requests. Each arrives in two parts; if it is joined, the second comes with the next."""
    async with asyncio.TaskGroup() as tasks:
        cluster = InProcessCluster(folder, tasks, TopicConfig(), 30_000)
        await cluster.start(1)
        await cluster.controller.change(RegisterBrokerRecord(2, b"i" * 16, 0, Endpoint("node", 2), fenced=False))
        await cluster.create_topic(replicas=(1,), partitions=2)
        await cluster.create_topic("w", replicas=(1, 2), topic_id=IDS["w"])
        session = None if session_requests is None else Session(session_requests)
        run = Run(cluster, is_short=is_short, session=session, **settings)
        later = b""
        for number, (request, cut, is_joined) in enumerate(zip_longest(requests, cuts[: len(requests)], joins)):
            if number == len(requests):
                break
            if isinstance(request, str):
                await happen(cluster, request)
                continue
            data = later + frame(request, number)
            run.receive(data[:cut])
            later = data[cut:] if is_joined else b""
            if not is_joined:
                run.receive(data[cut:])
            if cut % 2 and not later:
                await run.settle()
            if session is not None:
                session.left -= 1
        run.receive(later)
        await run.settle()
        found = run.found()
        run.connection.connection_lost(None)
        assert run.produced.taken == 0
        for each in cluster.nodes.values():
            await each.close()
    return found


@settings(max_examples=examples(150), deadline=None)
@given(
    requests=st.lists(st.one_of(REQUESTS, st.sampled_from((FETCH, FETCH, ELECT))), min_size=1, max_size=12),
    cuts=st.lists(st.one_of(st.just(WHOLE + 1), st.just(WHOLE), st.integers(0, 200)), min_size=12, max_size=12),
    joins=st.one_of(st.just([]), st.lists(st.booleans(), min_size=12, max_size=12)),
    fills=st.booleans(),
    guard=st.sampled_from((None, None, Guard())),
    session_requests=st.sampled_from((None, None, 3)),
    limit=st.sampled_from((1 << 30, 5_000)),
)
@example(requests=[PLAIN] * 12, cuts=[WHOLE] * 12, **QUIET)
@example(requests=[PLAIN | {"acks": 1}] * 12, cuts=[WHOLE] * 12, **QUIET | {"fills": True})
@example(requests=[PLAIN, PLAIN | {"acks": 0}, PLAIN | {"acks": 0, "batches": [(0, b"")]}], cuts=[WHOLE] * 12, **QUIET)
@example(requests=[PLAIN | {"acks": 0}] * 12, cuts=[0] * 12, **QUIET | {"joins": [True] * 11})
@example(requests=[PLAIN] * 12, cuts=[0, 0, 90, 0, 0, 40] * 2, **QUIET | {"joins": [True] * 11, "fills": True})
@example(requests=[PLAIN, PLAIN, WAITING] * 4, cuts=[0] * 12, **QUIET | {"joins": [True] * 11})
@example(requests=[WAITING] * 4, cuts=[WHOLE] * 12, **QUIET)
@example(requests=[PLAIN, WAITING, FETCH, WAITING, FETCH, WAITING, WAITING, FETCH], cuts=[WHOLE] * 12, **QUIET)
@example(requests=[PLAIN, WAITING | {"timeout": 0}, WAITING], cuts=[WHOLE + 1] * 12, **QUIET)
@example(requests=[PLAIN, WAITING, FETCH], cuts=[WHOLE] * 12, **QUIET | {"fills": True})
@example(requests=[PLAIN, WAITING, ELECT, WAITING], cuts=[WHOLE] * 12, **QUIET)
def test_short_way_equals_the_general_way(
    requests, cuts, joins, fills, guard, session_requests, limit, tmp_path_factory
) -> None:
    both = []
    for is_short in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not is_short:
                without_short_appends(patch)
            found = outcome(
                tmp_path_factory.mktemp("short" if is_short else "general"),
                requests,
                cuts,
                joins,
                is_short=is_short,
                fills=fills,
                guard=guard,
                session_requests=session_requests,
                limit=limit,
            )
            both.append(asyncio.run(found))
    assert both[0] == both[1]


@pytest.mark.parametrize("version", range(wire.FIRST_SERVED, NEWEST + 1))
def test_small_batches_take_the_short_way(version: int, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        general = []
        patch.setattr(Connection, "_begin", lambda *_: general.append(1))
        patch.setattr(Connection, "_count_sent", lambda *_: None)

        async def main() -> None:
            async with asyncio.TaskGroup() as tasks:
                cluster = InProcessCluster(tmp_path, tasks, TopicConfig(), 30_000)
                await cluster.start(1)
                await cluster.create_topic(replicas=(1,))
                run = Run(cluster, is_short=True)
                # The first request tells the connection its client's id.
                header = type("Header", (), {"client_id": b"client", "version": version})
                run.connection._callers.caller_of(header, has_token=False)
                for acks in (-1, 0, 1):
                    run.receive(frame(PLAIN | {"version": version, "acks": acks}, acks))
                assert run.cluster.partition(1).log.log_end_offset == 3
                for each in cluster.nodes.values():
                    await each.close()

        asyncio.run(main())
        assert not general


def test_many_requests_of_one_buffer_are_served_in_order(tmp_path) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            cluster = InProcessCluster(tmp_path, tasks, TopicConfig(), 30_000)
            await cluster.start(1)
            await cluster.create_topic(replicas=(1,))
            run = Run(cluster, is_short=True, max_in_flight=1_000)
            frames = [frame(PLAIN | {"acks": number % 2}, number) for number in range(700)]
            # The connection does not know its client before the first request.
            run.receive(frames[0])
            run.receive(b"".join(frames[1:]))
            log = cluster.partition(1).log
            assert log.log_end_offset > 100, "the short way serves most of a burst"
            async with asyncio.timeout(10):
                while log.log_end_offset < 700:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            await run.settle()
            sent, answered = bytes(run.transport.sent), []
            while sent:
                size, correlation_id = struct.unpack_from(">ii", sent)
                answered.append(correlation_id)
                sent = sent[4 + size :]
            assert answered == list(range(1, 700, 2))
            for each in cluster.nodes.values():
                await each.close()

    asyncio.run(main())


def test_lines_of_the_log_have_the_id_of_a_request_on_the_short_way(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    append = Partition.append

    def noting(self, *arguments):
        ids.append(current_request_id())
        return append(self, *arguments)

    monkeypatch.setattr(Partition, "append", noting)
    asyncio.run(outcome(tmp_path, [PLAIN] * 3, [WHOLE] * 3, is_short=True))
    assert ids == ["client/0", "client/1", "client/2"]
    assert current_request_id() == ""


def test_slow_requests_of_the_short_way_are_reported(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            cluster = InProcessCluster(tmp_path, tasks, TopicConfig(), 30_000)
            await cluster.start(1)
            await cluster.create_topic(replicas=(1,))
            run = Run(cluster, is_short=True)
            run.times.of[ApiKey.PRODUCE].slow.threshold_ns = 0
            for number in range(3):
                run.receive(frame(PLAIN, number))
            for each in cluster.nodes.values():
                await each.close()

    with caplog.at_level(logging.INFO):
        asyncio.run(main())
    assert sum("PRODUCE" in record.getMessage() for record in caplog.records) == 3
