"""The compiled way of a follower's poll has the answers and leaves the state of the general way."""

from __future__ import annotations

import asyncio
import logging
import struct

import pytest
from appends import without_short_appends
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from unit.kafka.test_produce_single import batch
from unit.kafka.test_short_way import Run
from unit.node.conftest import InProcessCluster

from tidelog_foundation import time_slices
from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_node.fetching import FetchRequest, FetchSpec, SessionStep
from tidelog_node.handlers import fetch as fetch_module
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.messages.fetch_parts import VERSIONS
from tidelog_node.kafka.protocol.messages.fetch_request import encode_request
from tidelog_node.kafka.protocol.messages.fetch_response import decode_response
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.server.connection import Connection
from tidelog_node.kafka.server.short_way import short_way_of
from tidelog_node.log import log_reader
from tidelog_node.replication.events import FollowerFetched
from tidelog_quorum.metadata.records import PartitionChangeRecord, RegisterBrokerRecord

pytestmark = pytest.mark.skipif(short_way_of(all_apis()) is None, reason="the short way is not compiled")

FOLLOWER, OTHER = 2, 3
TOPIC_ID = b"w" * 16
VERSION = VERSIONS[1]
SESSION_ID = 77
LONG_MS, SHORT_MS = 60_000, 2
HEAD_BYTES = 9
FETCH = {
    "back": 0,
    "index": 0,
    "epoch": 0,
    "leader_epoch": 0,
    "last_epoch": 0,
    "log_start": 0,
    "wait": LONG_MS,
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "replica_epoch": 0,
    "committed": False,
    "waits_on": True,
}
FETCHES = st.fixed_dictionaries(
    {
        # The distance to the log's end, and the differences from a good follower's request.
        "back": st.sampled_from((0, 0, 0, 0, 1, 2, -1)),
        "index": st.sampled_from((0, 0, 0, 0, 1, 5)),
        "epoch": st.sampled_from((0, 0, 0, 0, 0, 1)),
        "leader_epoch": st.sampled_from((0, 0, 0, 0, 1, None)),
        "last_epoch": st.sampled_from((0, 0, 0, 0, 1, None)),
        "log_start": st.sampled_from((0, 0, 0, -1, 1)),
        "wait": st.sampled_from((LONG_MS, LONG_MS, LONG_MS, SHORT_MS, 0)),
        "min_bytes": st.sampled_from((1, 1, 1, 150, 0)),
        "max_bytes": st.sampled_from((1 << 20, 1 << 20, 10, 0)),
        "replica_epoch": st.sampled_from((0, 0, 0, 0, 0, 1)),
        "committed": st.sampled_from((False, False, False, True)),
        # Whether the answer is awaited before the next step.
        "waits_on": st.sampled_from((False, False, True)),
    }
)
STEPS = st.one_of(
    st.tuples(st.just("fetch"), FETCHES),
    st.tuples(st.just("fetch"), FETCHES),
    st.tuples(st.just("append"), st.sampled_from((0, 0, 0, 1)), st.sampled_from((5, 5, 100, 5_000))),
    st.tuples(st.just("append"), st.sampled_from((0, 0, 0, 1)), st.sampled_from((5, 5, 100, 5_000))),
    st.tuples(
        st.sampled_from(("other follows", "end wait", "elect", "start", "throttle", "shrink", "fill", "mark", "forbid"))
    ),
)


def fetch_frame(request: FetchRequest, correlation_id: int) -> bytes:
    writer = Writer()
    encode_request(request, writer, VERSION)
    body = b"".join(writer.chunks())
    head = struct.pack(">hhih", 1, VERSION, correlation_id, 6) + b"client" + b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


class Guard:
    """An authorizer that permits everything but while it is ``closed``, and keeps its decisions."""

    def __init__(self) -> None:
        self.decisions: list[object] = []
        self.is_closed = False

    def access(self, api, caller):
        return self

    def on_cluster(self, operation, *, log=True):
        if log:
            self.decisions.append((operation, not self.is_closed))
        return not self.is_closed


class Follower:
    """A follower of a node in memory, which polls with the short way or without, and other events meanwhile."""

    def __init__(self, cluster, *, is_short: bool, guard: Guard | None = None) -> None:
        self.cluster = cluster
        self.guard = guard
        self.context = cluster.nodes[1].context
        self.context.fetch_sessions.cache._draw_id = lambda: SESSION_ID
        self.run = Run(cluster, is_short=is_short, guard=guard)
        self.partitions = [cluster.nodes[1].registry.get("w", index) for index in range(2)]
        self.epoch = 1
        self.number = 0
        self.held = 0

    def spec(self, asked) -> FetchSpec:
        partition = self.partitions[asked["index"] % 2]
        log, leader_epoch = partition.log, partition.state.leader_epoch
        epochs = [
            None if asked[name] is None else max(0, epoch + asked[name])
            for name, epoch in (("leader_epoch", leader_epoch), ("last_epoch", log.latest_epoch))
        ]
        offset = max(0, log.log_end_offset - asked["back"])
        return FetchSpec(
            TOPIC_ID, offset, asked["max_bytes"], *epochs, max(-1, log.log_start_offset + asked["log_start"])
        )

    def identity(self, difference: int = 0) -> tuple[int, int]:
        return FOLLOWER, self.cluster.nodes[1].registry.get("w", 0).state._registered.get(FOLLOWER, 0) + difference

    def send(self, request: FetchRequest) -> None:
        self.number += 1
        self.run.receive(fetch_frame(request, self.number))

    def open_session(self) -> None:
        specs = {(TOPIC_ID, index): self.spec(FETCH | {"index": index}) for index in range(2)}
        session = SessionStep(0, 0)
        self.send(FetchRequest(specs, 1 << 20, 0, 1, self.identity(), session=session, uses_topic_ids=True))

    async def fetch(self, asked) -> None:
        index = asked["index"]
        request = FetchRequest(
            {(TOPIC_ID, index): self.spec(asked)},
            1 << 20,
            asked["wait"],
            asked["min_bytes"],
            self.identity(asked["replica_epoch"]),
            asked["committed"],
            session=SessionStep(SESSION_ID, self.epoch + asked["epoch"]),
            uses_topic_ids=True,
        )
        state = self.context.fetch_sessions.session_of(SESSION_ID)
        is_first = self.run.connection.is_idle
        self.send(request)
        await self.turn()
        if state is not None:
            self.epoch = state.state.epoch
        if is_first and asked["wait"] == SHORT_MS:
            async with asyncio.timeout(10):
                while not (self.run.transport.is_closed or self.run.connection.is_idle):  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
        elif asked["waits_on"] or asked["wait"] == SHORT_MS:
            self.append(0, 5)
            await self.answered()

    def append(self, index: int, size: int) -> None:
        partition = self.partitions[index]
        if partition.state.leader is not None:
            partition.append(memoryview(bytearray(batch(size))), needs_all_replicas=False)

    async def happen(self, event: str) -> None:
        partition = self.partitions[0]
        session = self.context.fetch_sessions.session_of(SESSION_ID)
        match event:
            case "end wait":
                step = SessionStep(SESSION_ID, self.epoch - 1, ends_wait=True)
                self.context.fetch_sessions.end_wait(step.id, step.epoch, "User:ANONYMOUS")
            case "elect":
                await self.cluster.controller.change(PartitionChangeRecord(TOPIC_ID, 0, leader=2))
                await self.cluster.controller.change(PartitionChangeRecord(TOPIC_ID, 0, leader=1))
            case "start" if partition.state.leader is not None and partition.high_watermark:
                partition.log.advance_log_start_offset(partition.high_watermark)
            case "throttle":
                is_on = not self.partitions[0].throttled.leader
                partition.throttled = type(partition.throttled)(is_on, partition.throttled.follower)
            case "shrink":
                await self.cluster.controller.change(PartitionChangeRecord(TOPIC_ID, 0, isr=(1,)))
            case "fill":
                budget = self.context.response_budget
                budget._limit = 100 if budget._limit > 100 else 1 << 30
            case "forbid" if self.guard is not None:
                self.guard.is_closed = not self.guard.is_closed
            case "mark" if session is not None:
                session.state.mark((TOPIC_ID, 1))
                session.recheck()

    async def turn(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    async def answered(self) -> None:
        async with asyncio.timeout(10):
            while not self.run.transport.is_closed and (self.run.unread or not self.run.connection.is_idle):
                self.run.receive(b"")
                await asyncio.sleep(0.001)
                self.append(0, 100)
                if self.context.response_budget._limit == 100:
                    self.context.response_budget._limit = 1 << 30
                    self.context.response_budget.pass_on()
                session = self.context.fetch_sessions.session_of(SESSION_ID)
                if session is not None:
                    session.wait_ended_epoch = session.state.epoch - 1
                    session.recheck()

    def found(self):
        """Return the observable state."""
        states = []
        for partition in self.partitions:
            leader = partition.state.leader
            followers = leader and {
                replica: (each.log_end_offset, each.log_start_offset, each.broker_epoch, each.lease is not None)
                for replica, each in leader.followers.items()
            }
            states.append(
                (partition.high_watermark, partition.log.log_end_offset, followers, len(partition.waiters.log_end))
            )
            states.append(partition.traffic.replicated_out)
        session = self.context.fetch_sessions.session_of(SESSION_ID)
        if session is not None:
            state = session.state
            entries = {key: (each.spec, each.told, each.must_answer) for key, each in state.partitions.items()}
            states.append((state.epoch, list(state.changed), list(session._looked_at), session._turn, entries))
            states.append((session._sleeper is None, state.cached_size, session.is_changing))
        return states, self.run.transport.is_closed, self.run.responses.taken, self.context.response_budget._taken

    def answers(self) -> list[object]:
        """Return the bytes that the connection has sent since the last call, by response."""
        sent, found = bytes(self.run.transport.sent), []
        self.run.transport.sent.clear()
        while sent:
            [size] = struct.unpack_from(">i", sent)
            found.append(sent[: 4 + size])
            sent = sent[4 + size :]
        return found


async def history(folder, steps, *, is_short: bool, guard: Guard | None = None) -> list[object]:
    found: list[object] = []
    async with asyncio.TaskGroup() as tasks:
        cluster = InProcessCluster(folder, tasks, TopicConfig(), 30_000)
        await cluster.start(1)
        for broker in (FOLLOWER, OTHER):
            record = RegisterBrokerRecord(broker, b"i" * 16, 0, Endpoint("node", broker), fenced=False)
            await cluster.controller.change(record)
        await cluster.create_topic("w", replicas=(1, FOLLOWER, OTHER), topic_id=TOPIC_ID, partitions=2)
        follower = Follower(cluster, is_short=is_short, guard=guard)
        follower.append(0, 5)
        follower.open_session()
        await follower.turn()
        for step in steps:
            match step:
                case "fetch", asked:
                    await follower.fetch(asked)
                case "append", index, size:
                    follower.append(index, size)
                case ("other follows",):
                    leader = follower.partitions[0].state.leader
                    if leader is not None:
                        follow(follower.partitions[0])
                case (event,):
                    try:
                        await follower.happen(event)
                    except TidelogError as error:
                        found.append(error.code)
            await follower.turn()
            found += [step[0], follower.answers(), follower.found()]
        await follower.answered()
        found += [follower.answers(), follower.found()]
        follower.run.connection.connection_lost(None)
        found += [follower.found(), guard and guard.decisions]
        for each in cluster.nodes.values():
            await each.close()
    return found


def follow(partition) -> None:
    """Let the other follower have the whole log."""
    epoch = partition.state._registered.get(OTHER, 0)
    partition.step(FollowerFetched(OTHER, epoch, partition.log.log_end_offset, 0))


PLAIN = ("fetch", FETCH | {"waits_on": False})
HISTORY = [PLAIN, ("append", 0, 5), PLAIN, ("other follows",), ("append", 0, 5_000), ("append", 0, 5), PLAIN]


@settings(max_examples=examples(120), deadline=None)
@given(
    steps=st.lists(STEPS, min_size=1, max_size=14),
    has_guard=st.booleans(),
    # Whether a change of metadata gives way to other tasks in its middle.
    slice_s=st.sampled_from((0.0, 60.0)),
)
@example(steps=HISTORY, has_guard=False, slice_s=60.0)
@example(
    steps=[PLAIN, ("append", 0, 5), PLAIN, ("forbid",), ("append", 0, 5), PLAIN, ("forbid",), PLAIN],
    has_guard=True,
    slice_s=60.0,
)
@example(
    steps=[*HISTORY, ("fetch", FETCH | {"wait": SHORT_MS}), PLAIN, ("end wait",), PLAIN], has_guard=False, slice_s=60.0
)
@example(
    steps=[PLAIN, ("append", 1, 5), ("append", 0, 5), PLAIN, ("mark",), PLAIN, ("append", 0, 5)],
    has_guard=False,
    slice_s=60.0,
)
@example(steps=[PLAIN, ("elect",), ("append", 0, 5), PLAIN, PLAIN], has_guard=False, slice_s=60.0)
@example(steps=[PLAIN, ("elect",), ("append", 0, 5), PLAIN, PLAIN], has_guard=False, slice_s=0.0)
@example(
    steps=[PLAIN, ("append", 0, 5), ("fetch", FETCH | {"back": 1, "waits_on": False}), PLAIN],
    has_guard=False,
    slice_s=60.0,
)
@example(steps=[PLAIN, ("fill",), ("append", 0, 100), PLAIN, ("fill",), PLAIN], has_guard=False, slice_s=60.0)
@example(
    steps=[PLAIN, ("throttle",), ("append", 0, 5), PLAIN, ("shrink",), PLAIN, ("append", 0, 5), PLAIN],
    has_guard=False,
    slice_s=60.0,
)
def test_short_poll_equals_the_general_way(steps, has_guard, slice_s, tmp_path_factory) -> None:
    both = []
    for is_short in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time_slices, "SLICE_S", slice_s)
            if not is_short:
                without_short_appends(patch)
            folder = tmp_path_factory.mktemp("short" if is_short else "general")
            both.append(asyncio.run(history(folder, steps, is_short=is_short, guard=Guard() if has_guard else None)))
    assert both[0] == both[1]


def test_polls_take_the_short_way(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    begin = Connection._begin

    def noting(self, *arguments):
        begun.append(1)
        return begin(self, *arguments)

    monkeypatch.setattr(Connection, "_begin", noting)
    found = asyncio.run(history(tmp_path, [PLAIN, ("append", 0, 5)] * 5 + [("append", 0, 5_000), PLAIN], is_short=True))
    assert len(begun) == 1, "only the request that opens the session takes the other way"
    answers = [answer for each in found if isinstance(each, list) for answer in each]
    records = [decode_response(Reader(memoryview(answer), HEAD_BYTES), VERSION) for answer in answers]
    assert len(records) >= 7
    assert all(response.size > 0 for response in records[1:])


def test_polls_of_records_that_may_be_on_the_disk_take_the_general_way(tmp_path, monkeypatch) -> None:
    steps = [PLAIN, ("append", 0, 5)] * 3 + [("fetch", FETCH | {"back": 1, "waits_on": False}), PLAIN]
    both = [asyncio.run(history(tmp_path / "near", steps, is_short=True))]
    looked = []
    look = fetch_module.uncached_records
    monkeypatch.setattr(fetch_module, "uncached_records", lambda *asked: looked.append(1) or look(*asked))
    monkeypatch.setattr(log_reader, "_RECENT_BYTES", 0)
    both.append(asyncio.run(history(tmp_path / "far", steps, is_short=True)))
    assert both[0] == both[1]
    assert len(looked) > 1, "the poll that is behind the end is looked at, and not only the one that opens the session"


def test_slow_polls_are_reported(tmp_path, monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    opened = Follower.open_session

    def opening(self):
        self.run.times.of[ApiKey.FETCH].slow.threshold_ns = 0
        opened(self)

    monkeypatch.setattr(Follower, "open_session", opening)
    with caplog.at_level(logging.INFO):
        asyncio.run(history(tmp_path, [PLAIN, ("append", 0, 5)] * 3, is_short=True))
    assert sum("FETCH" in record.getMessage() for record in caplog.records) == 4


def test_abandoned_poll_leaves_the_session_to_the_next_connection(tmp_path) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            cluster = InProcessCluster(tmp_path, tasks, TopicConfig(), 30_000)
            await cluster.start(1)
            record = RegisterBrokerRecord(FOLLOWER, b"i" * 16, 0, Endpoint("node", FOLLOWER), fenced=False)
            await cluster.controller.change(record)
            await cluster.create_topic("w", replicas=(1, FOLLOWER), topic_id=TOPIC_ID, partitions=2)
            follower = Follower(cluster, is_short=True)
            follower.append(0, 5)
            follower.open_session()
            await follower.turn()
            await follower.fetch(FETCH | {"waits_on": False})
            session = follower.context.fetch_sessions.session_of(SESSION_ID)
            assert session is not None
            assert session._sleeper is not None
            follower.run.connection.connection_lost(None)
            assert session._sleeper is None
            follower.append(0, 5)
            await follower.turn()
            for each in cluster.nodes.values():
                await each.close()

    asyncio.run(main())
