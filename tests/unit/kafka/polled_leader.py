"""A follower's fetcher and a scripted leader over loopback, for comparisons of the ways that polls take."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from log_batches import replicated_batch

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerId, LeaderEpoch, PartitionEpoch
from tidelog_node.event_loop import SystemClock
from tidelog_node.fetching import FetchRequest, FetchResponse, FetchResult, PartitionKey
from tidelog_node.kafka.client.replica_transport import KafkaReplicaTransport
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.headers import read_request_header
from tidelog_node.kafka.protocol.messages.fetch_request import decode_request
from tidelog_node.kafka.protocol.messages.fetch_response import encode_response
from tidelog_node.kafka.protocol.reader import Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.partitions.fetchers.leader_fetcher import FetcherSettings, LeaderFetcher
from tidelog_node.partitions.partition import Partition
from tidelog_node.partitions.throttles import ReplicationThrottles, ThrottledSides
from tidelog_node.replication import EpochEnd, PartitionState
from tidelog_quorum.metadata.registrations import PartitionRegistration

PARTITIONS = 3
TOPIC_IDS = (b"a" * 16, b"b" * 16)
VERSION = 17
SESSION = 7
LEADER, FOLLOWER = BrokerId(2), BrokerId(1)
SOON_S = 5.0
RATE = 10_000
"""The limit of throttled replicas, in bytes per second."""
LONG_BATCH = b"v" * 10_000
HAS_WAITED_S = 0.004
MS_PER_STEP = 3
FAILURES = {
    "not-leader": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "out-of-range": ErrorCode.OFFSET_OUT_OF_RANGE,
    "unknown": ErrorCode.UNKNOWN_SERVER_ERROR,
}
SESSION_FAILURES = {
    "session-lost": ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    "session-epoch": ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    "refused": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
ANSWERS = (
    *("records", "records-committed", "several", "high-watermark", "empty", "large", "in-pieces"),
    *("log-start", "behind", "aborted", "preferred", "corrupt", "wrong-offset", "diverging", "throttle"),
    *("no-session", "another-session", "unknown-partition", "twice", "lost", "garbage", "two-answers", "numbered"),
    *FAILURES,
    *SESSION_FAILURES,
)


class ManualClock(SystemClock):
    """A clock whose time the test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000


@dataclass
class Poll:
    """A request that waits for its answer."""

    writer: asyncio.StreamWriter
    correlation_id: bytes
    request: FetchRequest


@dataclass
class Leader:
    """Keeps one session, and whole batches of each partition. ``polls`` and ``ending_waits`` have what has arrived."""

    polls: asyncio.Queue[Poll] = field(default_factory=asyncio.Queue)
    ending_waits: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    seen: list[bytes] = field(default_factory=list)
    session: dict[Any, Any] = field(default_factory=dict)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                [size] = struct.unpack(">i", await reader.readexactly(4))
                self._take(await reader.readexactly(size), writer)
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()
        self.writers.discard(writer)

    def _take(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header = read_request_header(frame)
        if header.api_key == ApiKey.API_VERSIONS:
            _write(writer, frame[4:8], struct.pack(">hihhh", 0, 1, ApiKey.FETCH, 4, VERSION))
            return
        request = decode_request(Reader(memoryview(frame), header.end + 1), VERSION)
        step = request.session
        assert step is not None, "the version has sessions"
        # A request may take any free connection, so its number does not matter.
        numberless = frame[:4] + frame[8:]
        if step.ends_wait:
            self.ending_waits.put_nowait(numberless)
            _write(writer, frame[4:8], b"\0" + _body(FetchResponse({}, SESSION)))
            return
        self.seen.append(numberless)
        if request.replica is not None:
            kept = {} if step.epoch == 0 else self.session
            self.session = {k: v for k, v in kept.items() if k not in request.forgotten} | request.wanted
        self.polls.put_nowait(Poll(writer, frame[4:8], request))


def _body(response: FetchResponse) -> bytes:
    body = Writer()
    encode_response(response, body, VERSION)
    return b"".join(body.chunks())


def _write(writer: asyncio.StreamWriter, correlation_id: bytes, body: bytes) -> None:
    writer.write(struct.pack(">i", 4 + len(body)) + correlation_id + body)


class Effects:
    """Directs the fetcher as the registry does."""

    def __init__(self) -> None:
        self.fetcher: LeaderFetcher | None = None

    def start_fetching(self, partition: Partition, leader_id: BrokerId, leader_epoch: LeaderEpoch) -> None:
        if self.fetcher is not None:
            self.fetcher.add(partition, leader_epoch)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class Lines(logging.Handler):
    """The lines of the log."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelname, record.getMessage()))


class Follower:
    """A fetcher and its partitions, with the leader's addresses, the present one first."""

    def __init__(self, folder: Path, addresses: list[str], timeout_ms: int, partitions: int) -> None:
        self.addresses: list[str | None] = [*addresses]
        self.replica_epoch = 0
        self.clock = ManualClock()
        self.transport = KafkaReplicaTransport("node-1-fetcher")
        self.effects = Effects()
        throttle = ReplicationThrottles(self.clock).follower
        throttle.change_rate(RATE)
        settings = FetcherSettings(max_wait_ms=50, partition_max_bytes=1 << 20, max_backoff_ms=4, timeout_ms=timeout_ms)
        self.fetcher = LeaderFetcher(
            LEADER,
            lambda: (FOLLOWER, self.replica_epoch),
            lambda _: self.addresses[0],
            "",
            self.transport,
            settings,
            self.clock,
            throttle,
        )
        self.partitions = [self._open(folder, index) for index in range(partitions)]
        self.effects.fetcher = self.fetcher

    def _open(self, folder: Path, number: int) -> Partition:
        """Open a partition. The first topic has every other one."""
        topic, index = number % 2, number // 2
        log = PartitionLog.open(folder / f"t{topic}-{index}", LogConfig())
        state = PartitionState(FOLLOWER, 0, 1, 30_000)
        partition = Partition(f"t{topic}", TOPIC_IDS[topic], index, log, state, self.effects, self.clock)
        self.elect(partition)
        return partition

    def elect(self, partition: Partition) -> None:
        """Begin the next leader epoch."""
        epoch = max(0, partition.state.leader_epoch + 1)
        partition.change_registration(
            PartitionRegistration(
                (LEADER, FOLLOWER), (LEADER, FOLLOWER), LEADER, LeaderEpoch(epoch), PartitionEpoch(epoch)
            )
        )

    def change(self, kind: str, index: int) -> None:
        """Change something while a poll waits."""
        partition, fetcher = self.partitions[index], self.fetcher
        if kind == "add":
            fetcher.add(partition, partition.state.leader_epoch)
        elif kind == "remove":
            fetcher.remove(partition)
        elif kind == "elect":
            self.elect(partition)
        elif kind == "retention":
            partition.log.advance_log_start_offset(partition.high_watermark)
        elif kind == "throttled":
            partition.throttled = ThrottledSides(leader=False, follower=not partition.throttled.follower)
        elif kind == "registration":
            self.replica_epoch += 1
        elif kind == "address":
            self.addresses.reverse()
        elif kind == "no-address":
            self.addresses.insert(0, None)
        elif kind == "time":
            self.clock.now_ms += (0, 9, 2_000)[index]

    def state(self) -> list[Any]:
        """Return all that the ways may change."""
        fetcher, session = self.fetcher, self.fetcher._session
        session.check_invariants()
        # The number of retries without an address depends on the time.
        found: list[Any] = [
            fetcher._failures > 0,
            fetcher._throttle.wait_ms(),
            fetcher._session_errors,
            len(fetcher._idle),
            len(fetcher._limited),
        ]
        found += [session.session_id, session.epoch, session.was_refused, list(session._changed)]
        found += [
            list(session._forgotten),
            *([(k, v[1:]) for k, v in d.items()] for d in (session._wanted, session._sent)),
        ]
        for partition in self.partitions:
            log, role = partition.log, partition.state.role
            found.append((log.log_start_offset, log.log_end_offset, log.epoch_entries, partition.high_watermark))
            found.append((role.leader_high_watermark, partition.traffic.replicated_in))
            found.append(log.read(log.log_start_offset, 1 << 30, log.log_end_offset) if log.log_end_offset else b"")
            fetched = fetcher._partitions.get(partition)
            if fetched is not None:
                found.append((fetched.pause_until_ms, fetched.backoff_ms, fetched.failing_with, fetched.is_in_sync))
        return found


def answer_to(
    poll: Poll, kind: str, chosen: int, session: dict[Any, Any], epochs: dict[PartitionKey, LeaderEpoch]
) -> FetchResponse:
    """Return an answer of this kind for the chosen partition of the session, and for all if the request is full."""
    if kind in SESSION_FAILURES:
        return FetchResponse(error=error_for(SESSION_FAILURES[kind]))
    if kind == "throttle":
        return FetchResponse({}, SESSION, throttle_time_ms=5)
    session_id = {"no-session": 0, "another-session": 8}.get(kind, SESSION)
    keys = list(session)
    named = keys[chosen % len(keys)] if keys else None
    response = FetchResponse({}, session_id)
    assert poll.request.session is not None
    for key, spec in session.items():
        is_named = key == named and kind not in ("empty",)
        if is_named or kind == "several" or poll.request.session.epoch == 0:
            form = kind if is_named or kind == "several" else "high-watermark"
            results = response.topics.setdefault(key[0], [])
            results.append(_result(form, key[1], spec, epochs[key]))
            results += [*results[-1:]] if kind == "twice" else []
    if kind == "unknown-partition":
        response.topics[b"?" * 16] = [FetchResult(0, high_watermark=0, log_start_offset=0)]
    return response


def _result(kind: str, index: int, spec: Any, epoch: int) -> FetchResult:
    offset = spec.fetch_offset
    result = FetchResult(index, None, offset, offset, 0)
    if kind in FAILURES:
        result.error = error_for(FAILURES[kind])
        result.log_start_offset = offset + 2
    elif kind == "diverging":
        result.diverging = EpochEnd(LeaderEpoch(0), max(0, offset - 1))
    elif kind == "log-start":
        result.log_start_offset = offset
    elif kind not in ("high-watermark", "empty"):
        begin = max(0, offset - 1) if kind == "wrong-offset" else offset
        value = LONG_BATCH if kind in ("large", "in-pieces") else b"v"
        producer = (9, 0, offset) if kind == "numbered" else (-1, -1, -1)
        records = bytearray(replicated_batch(begin, epoch, value, producer=producer))
        records += replicated_batch(begin + 1, epoch, b"w") if kind == "two-answers" else b""
        if kind == "corrupt":
            records[-1] ^= 1
        result.records = bytes(records)
        result.aborted = [(9, 0)] if kind == "aborted" else None
        result.preferred_replica = FOLLOWER if kind == "preferred" else None
        result.high_watermark += {"records-committed": 1, "behind": 9}.get(kind, 0)
    return result


async def send(kind: str, poll: Poll, response: FetchResponse) -> None:
    """Send an answer, or what is no answer."""
    body = b"\0" + _body(response)
    if kind == "lost":
        poll.writer.transport.abort()
    elif kind == "garbage":
        poll.writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    elif kind == "in-pieces":
        frame = struct.pack(">i", 4 + len(body)) + poll.correlation_id + body
        for begin, end in ((0, 3), (3, 60), (60, 5_000), (5_000, len(frame))):
            poll.writer.write(frame[begin:end])
            await poll.writer.drain()
            await asyncio.sleep(0.001)
    else:
        _write(poll.writer, poll.correlation_id, body)


Step = tuple[str, int, str, int]
"""A change and its partition, while a poll waits, and the poll's answer and its partition."""


class Run:
    """One history of a follower and its leader. ``states`` has the follower's state before each answer.

    ``reads_ahead`` adds the read-ahead, whose requests race with the polls.
    """

    def __init__(
        self, folder: Path, timeout_ms: int = 20_000, *, partitions: int = PARTITIONS, reads_ahead: bool = False
    ) -> None:
        self._folder = folder
        self._partitions = partitions
        self._timeout_ms = timeout_ms
        self._reads_ahead = reads_ahead
        self.leader = Leader()
        self.states: list[Any] = []
        self.ended: list[bytes] = []
        self.lines = Lines()

    async def run(self, steps: list[Step]) -> list[Any]:
        """Return all that was seen."""
        async with self.serving():
            for step in [*steps, ("none", 0, "empty", 0)]:
                await self.step(*step)
        told = [(level, line.replace(self.address, "the address")) for level, line in self.lines.lines]
        told = [(level, line.replace(self.other_address, "the other address")) for level, line in told]
        return [self.states, self.leader.seen, self.ended, told]

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Let the follower fetch all but one of its partitions."""
        with _added_to_log(self.lines):
            servers = [await asyncio.start_server(self.leader.serve, "127.0.0.1", 0) for _ in range(2)]
            self.address, self.other_address = (f"127.0.0.1:{s.sockets[0].getsockname()[1]}" for s in servers)
            self.follower = Follower(
                self._folder, [self.address, self.other_address], self._timeout_ms, self._partitions
            )
            fetcher = self.follower.fetcher
            for partition in self.follower.partitions[: max(2, self._partitions - 1)]:
                fetcher.add(partition, partition.state.leader_epoch)
            self.task = asyncio.create_task(
                fetcher.run() if self._reads_ahead else fetcher._poll_forever(), name="polls"
            )
            try:
                async with asyncio.timeout(SOON_S):
                    yield
            finally:
                self.task.cancel()
                await asyncio.wait([self.task])
                await self.follower.transport.close()
                for partition in self.follower.partitions:
                    partition.log.close()
                await self._end(servers)

    async def _end(self, servers: list[asyncio.Server]) -> None:
        for server in servers:
            server.close()
        for writer in list(self.leader.writers):
            writer.transport.abort()
        for server in servers:
            await server.wait_closed()
        while self.leader.writers:  # noqa: ASYNC110 what is waited for has no event
            await asyncio.sleep(0.001)

    async def step(self, change: str, changed: int, kind: str, chosen: int) -> None:
        """Answer the next poll after a change."""
        poll = await self.next_poll()
        self.states.append(self.follower.state())
        waits = self.follower.fetcher._waiting_poll is not None
        self.follower.clock.now_ms += MS_PER_STEP
        self.follower.change(change, changed)
        if poll is None:
            return
        if waits and self.follower.fetcher._waiting_poll is None:
            self.ended.append(await self.leader.ending_waits.get())
        await self.answer(poll, kind, chosen)

    async def answer(self, poll: Poll, kind: str, chosen: int = 0) -> None:
        """Answer a poll for a partition of the session."""
        epochs = {(p.topic_id, p.index): p.state.leader_epoch for p in self.follower.partitions}
        await send(kind, poll, answer_to(poll, kind, chosen, self.leader.session, epochs))

    async def next_poll(self) -> Poll | None:
        """Return the next poll, or None if the fetcher has no partition."""
        fetcher = self.follower.fetcher
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HAS_WAITED_S):
                    return await self.leader.polls.get()
            if self.follower.addresses[0] is None:
                del self.follower.addresses[0]
            if not fetcher._partitions:
                return None
            if not len(fetcher._session) and fetcher._idle:
                ends_ms = max(fetched.pause_until_ms for fetched in fetcher._idle.values())
                self.follower.clock.now_ms = max(self.follower.clock.now_ms, ends_ms)


@contextlib.contextmanager
def _added_to_log(lines: Lines) -> Iterator[None]:
    logger = logging.getLogger("tidelog_node.partitions.fetchers.leader_fetcher")
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)
