"""A client's calls to a cluster: it finds nodes and leaders, and retries where that helps.

Producer, consumer, admin client and the Spark connector each own one :class:`ClusterClient`. All methods run on the
network thread (``tidelog_foundation.transport.loop``). Each has a deadline, before which it retries transient errors
with back-off, perhaps at another node. Its errors name the addresses or the partitions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from tidelog.cluster.attempts import TopicPartitionKey
from tidelog.cluster.bootstrap import PROBED, Bootstrap, parse_bootstrap_servers, with_address
from tidelog.cluster.connections import Connection, Connections
from tidelog.cluster.loop_time import now_ms
from tidelog.cluster.metadata import Broker, ClusterMetadata, Topic
from tidelog.cluster.offsets import OffsetAndTimestamp, search_offsets
from tidelog.cluster.security import OPEN, ClientSecurity
from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.common_pb2 import LeaderIdAndEpoch
from tidelog_foundation.backoff import Backoff
from tidelog_foundation.errors import UNREACHABLE, ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import BrokerId, TopicId
from tidelog_foundation.transport import call_soon
from tidelog_foundation.waiting import ReportedWait

T = TypeVar("T")
_METADATA_ATTEMPT_MS = 3_000
"""The longest wait for one node's metadata before the next is asked, so that a paused node does not block a client."""
_UNKNOWN_TOPIC_GRACE_MS = 1_000
"""The time in which a newly created topic reaches all nodes."""


class ClusterClient:
    """A client's view of one cluster, and its connections until :meth:`close`."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str = "tidelog",
        request_timeout_ms: int = 30_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
        channel_options: Iterable[tuple[str, int | str]] = (),
        security: ClientSecurity = OPEN,
    ) -> None:
        self._bootstrap = Bootstrap(parse_bootstrap_servers(bootstrap_servers), security.tls_context)
        self.security = security
        """The security of connections, also to controllers."""
        self.request_timeout_ms = request_timeout_ms
        # Its own generator, so that it does not disturb the application's random numbers.
        self._dice = random.Random()
        self.backoff = Backoff(retry_backoff_ms, retry_backoff_max_ms, self._dice.random)
        self._connections = Connections(client_id, channel_options, security)
        self.failures = self._connections.failures
        """The failures of connections."""
        self.measures = self._connections.measures
        """The requests and connections, for the client's telemetry."""
        self.metadata = ClusterMetadata()
        """The current metadata."""
        self.answered_last: str | None = None
        """The address of the node that last answered a request that any node can answer."""
        self._doubted: str | None = None

    def learn_leader(self, topic: str, partition: int, leader: LeaderIdAndEpoch) -> bool:
        """Record a leader named in a node's error (KIP-951); return True if it is news."""
        before = self.metadata
        self.metadata = before.with_leader(topic, partition, leader.leader_id, leader.leader_epoch)
        return self.metadata is not before

    def doubt(self, node_id: int) -> None:
        """Ask a node only after all others, until one of them has answered: it may have lost the leadership
        unknowingly.

        A leader that is cut off from the others keeps answering, and names itself as the leader.
        """
        broker = self.metadata.brokers.get(BrokerId(node_id))
        self._doubted = self._doubted if broker is None else broker.address

    def metadata_error(self, topic: str, partition: int) -> TidelogError | None:
        """Return the error of a partition in the metadata: its topic's error, or that it does not exist."""
        known = self.metadata.topics.get(topic)
        if known is None or known.error is not None:
            return _topic_error(topic, known)
        return None if partition in known.partitions else unknown_partition(topic, partition, len(known.partitions))

    async def refresh(
        self,
        topics: Iterable[str] | None = None,
        *,
        timeout_ms: float | None = None,
        allow_auto_topic_creation: bool = False,
    ) -> ClusterMetadata:
        """Request the named topics (None: all) from any node and return the updated metadata.

        A topic's own error, for example of an unknown one, is in the metadata. An empty list requests brokers only.
        With ``allow_auto_topic_creation``, nodes with auto-creation create missing named topics; request them again
        then.

        Raises:
            TidelogError: no node answered within the deadline: _ALL_BROKERS_DOWN, _TIMED_OUT or _RESOLVE with the
                addresses; INCONSISTENT_CLUSTER_ID if a node of another cluster answers.
        """
        request = pb.GetMetadataRequest(
            topics=sorted(topics or ()),
            all_topics=topics is None,
            allow_auto_topic_creation=allow_auto_topic_creation,
        )

        async def ask(connection: Connection, timeout_s: float) -> pb.GetMetadataResponse:
            return await connection.log.GetMetadata(request, timeout=timeout_s)

        response = await self.ask_any(ask, timeout_ms=timeout_ms, attempt_ms=_METADATA_ATTEMPT_MS)
        self.metadata = self.metadata.apply(response, all_topics=topics is None)
        return self.metadata

    async def topic(self, name: str, *, timeout_ms: float | None = None) -> Topic:
        """Return a topic, after requesting its metadata if necessary.

        Raises:
            TidelogError: the topic's own error, such as UNKNOWN_TOPIC_OR_PARTITION, or an error of :meth:`refresh`.
        """
        known = self.metadata.topics.get(name)
        if known is not None and known.error is None:
            return known
        deadline = self._deadline(timeout_ms)
        grace = min(deadline, now_ms() + _UNKNOWN_TOPIC_GRACE_MS)
        with ReportedWait(f'topic "{name}"') as wait:
            attempt = 0
            while True:
                metadata = await self.refresh([name], timeout_ms=deadline - now_ms())
                known = metadata.topics.get(name)
                if known is not None and known.error is None:
                    return known
                error = _topic_error(name, known)
                wait.note(error)
                attempt += 1
                wait_ms = self.backoff.wait_ms(attempt)
                give_up = grace if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else deadline
                if not error.code.retriable or now_ms() + wait_ms >= give_up:
                    raise error
                await asyncio.sleep(wait_ms / 1000)

    async def leader(self, topic: str, partition: int, *, timeout_ms: float | None = None) -> Broker:
        """Return a partition's leader; wait for an election if there is none.

        Raises:
            TidelogError: UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE after the deadline, or an error of
                :meth:`refresh`.
        """
        deadline = self._deadline(timeout_ms)
        with ReportedWait(f"a leader of {topic}-{partition}"):
            attempt = 0
            while True:
                known = await self.topic(topic, timeout_ms=deadline - now_ms())
                if partition not in known.partitions:
                    raise unknown_partition(topic, partition, len(known.partitions))
                leader = self.metadata.leader(topic, partition)
                if leader is not None:
                    return leader
                attempt += 1
                wait_ms = self.backoff.wait_ms(attempt)
                if now_ms() + wait_ms >= deadline:
                    raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
                await asyncio.sleep(wait_ms / 1000)
                await self.refresh([topic], timeout_ms=deadline - now_ms())

    async def list_offsets(
        self,
        timestamps_ms: Mapping[TopicPartitionKey, int],
        *,
        timeout_ms: float | None = None,
        read_committed: bool = False,
        topic_ids: Mapping[str, TopicId] | None = None,
    ) -> dict[TopicPartitionKey, OffsetAndTimestamp]:
        """Return the first offset of each (topic, partition) whose timestamp is at least the given one.

        ``LATEST_TIMESTAMP`` (-1) means the high watermark, ``EARLIEST_TIMESTAMP`` (-2) the first offset,
        ``MAX_TIMESTAMP`` (-3) the record with the largest timestamp. With ``read_committed``, the latest is the last
        stable offset, the limit of readers that wait for transactions. Topics in ``topic_ids`` must have these ids.

        Raises:
            TidelogError: a partition's error that is not retriable, or the last one at the deadline.
                INCONSISTENT_TOPIC_ID if a leader has a topic of another id, because it lags behind, or because the
                topic was deleted and created again.
        """
        left_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        outcomes = await search_offsets(
            self,
            timestamps_ms,
            read_committed=read_committed,
            timeout_ms=left_ms,
            needs_all=True,
            topic_ids=topic_ids or {},
        )
        found: dict[TopicPartitionKey, OffsetAndTimestamp] = {}
        for key, outcome in outcomes.items():
            if isinstance(outcome, TidelogError):
                raise outcome
            found[key] = outcome
        return found

    async def fetch(
        self, node_id: int, request: pb.FetchRequest, *, timeout_ms: float | None = None
    ) -> pb.FetchResponse:
        """Fetch from one node, once; the response contains the errors of partitions.

        Raises:
            TidelogError: the whole call failed, or the node is unknown.
        """
        timeout_s = (self.request_timeout_ms + request.max_wait_ms if timeout_ms is None else timeout_ms) / 1000
        return await self.connection(node_id).call(lambda c: c.log.Fetch(request, timeout=timeout_s))

    def connection(self, node_id: int) -> Connection:
        """Return the connection to a broker.

        Raises:
            TidelogError: LEADER_NOT_AVAILABLE if its address is unknown.
        """
        broker = self.metadata.brokers.get(BrokerId(node_id))
        if broker is None:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"the address of broker {node_id} is not known")
        return self._connections.get(broker.address)

    def connection_to(self, address: str) -> Connection:
        """Return the connection to ``host:port``. Raise _DESTROY after :meth:`close`."""
        return self._connections.get(address)

    async def ask_any(
        self,
        ask: Callable[[Connection, float], Awaitable[T]],
        *,
        timeout_ms: float | None = None,
        attempt_ms: float | None = None,
    ) -> T:
        """Ask known brokers and bootstrap servers one after another until one answers.

        ``ask(connection, timeout_s)`` makes the call. After a retriable error or a refused login it asks the next node,
        with a back-off after each round.

        Raises:
            TidelogError: the first error that is not retriable. _AUTHENTICATION if no node answered in a round and one
                refused the login. At the deadline, the last error of a node, or without one _ALL_BROKERS_DOWN,
                _TIMED_OUT, _RESOLVE or _SSL with the addresses. At once, _ALL_BROKERS_DOWN if every address belongs to
                something other than Tidelog.
        """
        with ReportedWait("a broker to answer") as wait:
            return await self._ask_until(ask, self._deadline(timeout_ms), attempt_ms or self.request_timeout_ms, wait)

    def replace_credentials(self, username: str, password: str) -> None:
        """Use another name and password for later logins. Thread-safe.

        Raises:
            TidelogError: As for :meth:`ClientSecurity.replace_credentials`.
        """
        self.security.replace_credentials(username, password)
        call_soon(self._connections.forget_refusals)

    async def close(self) -> None:
        """Close all connections; later calls raise _DESTROY."""
        await self._connections.close()

    async def _ask_until(
        self,
        ask: Callable[[Connection, float], Awaitable[T]],
        deadline: float,
        attempt_ms: float,
        wait: ReportedWait,
    ) -> T:
        failures: dict[str, TidelogError] = {}
        attempt = 0
        while True:
            for address in self._addresses():
                timeout_s = min(max(deadline - now_ms(), 1), attempt_ms) / 1000
                wait.note(_reasons(failures) or address)
                try:
                    return await self._ask_one(address, ask, timeout_s)
                except TidelogError as error:
                    if not error.code.retriable and error.code is not ErrorCode._AUTHENTICATION:
                        raise
                    failures[address] = error
                if now_ms() >= deadline:
                    raise _no_answer(failures)
            if (refused := _refused_login(failures)) is not None:
                raise refused
            attempt += 1
            wait_ms = self.backoff.wait_ms(attempt)
            if now_ms() + wait_ms >= deadline or self._bootstrap.are_foreign(self._addresses()):
                raise _no_answer(failures)
            wait.note(_reasons(failures))
            await asyncio.sleep(wait_ms / 1000)

    async def _ask_one(self, address: str, ask: Callable[[Connection, float], Awaitable[T]], timeout_s: float) -> T:
        deadline = now_ms() + timeout_s * 1000
        try:
            answer = await self._ask_at(self._bootstrap.target(address), ask, timeout_s)
        except TidelogError as error:
            is_known = address in self._broker_addresses()
            if error.code not in PROBED or is_known or address not in self._bootstrap.servers:
                raise
            target = await self._bootstrap.find(address, error, (deadline - now_ms()) / 1000)
            if target is None:
                raise
            self.failures.answered(address)
            await self._connections.drop(address)
            answer = await self._ask_at(target, ask, max(deadline - now_ms(), 1) / 1000)
        self.answered_last = address
        if not self._may_be_doubted(address):
            self._doubted = None
        return answer

    async def _ask_at(self, address: str, ask: Callable[[Connection, float], Awaitable[T]], timeout_s: float) -> T:
        return await self._connections.get(address).call(lambda c: ask(c, timeout_s))

    def _addresses(self) -> list[str]:
        brokers = self._broker_addresses()
        servers = self._bootstrap.servers
        self._dice.shuffle(brokers)
        first = [self.answered_last] if self.answered_last in (*brokers, *servers) else []
        addresses = dict.fromkeys(a for a in (*first, *brokers, *servers) if a)
        return sorted(addresses, key=self._may_be_doubted)

    def _broker_addresses(self) -> list[str]:
        return [broker.address for broker in self.metadata.brokers.values()]

    def _may_be_doubted(self, address: str) -> bool:
        # A bootstrap server may be the same node under another name.
        known = self._broker_addresses()
        return self._doubted is not None and (address == self._doubted or address not in known)

    def _deadline(self, timeout_ms: float | None) -> float:
        return now_ms() + (self.request_timeout_ms if timeout_ms is None else timeout_ms)


def unknown_partition(topic: str, partition: int, count: int) -> TidelogError:
    """Return the error for a partition that its topic does not have."""
    return error_for(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'topic "{topic}" has no partition {partition}, it has {count}'
    )


def _topic_error(name: str, known: Topic | None) -> TidelogError:
    error = known.error if known is not None and known.error is not None else None
    if error is None or error.error_code() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic "{name}"')
    return error_for(error.error_code(), error.str())


def _no_answer(failures: Mapping[str, TidelogError]) -> TidelogError:
    silent = (*UNREACHABLE, ErrorCode._RESOLVE, ErrorCode.REQUEST_TIMED_OUT)
    spoken = [e for e in failures.values() if e.code not in silent]
    if spoken:
        return spoken[-1]
    codes = {e.code for e in failures.values()}
    text = f"no broker answered: {_reasons(failures)}"
    if codes in ({ErrorCode._RESOLVE}, {ErrorCode._SSL}):
        return error_for(codes.pop(), text)
    if ErrorCode.REQUEST_TIMED_OUT in codes:
        return error_for(ErrorCode._TIMED_OUT, text)
    return error_for(ErrorCode._ALL_BROKERS_DOWN, text)


def _refused_login(failures: Mapping[str, TidelogError]) -> TidelogError | None:
    return next((e for e in failures.values() if e.code is ErrorCode._AUTHENTICATION), None)


def _reasons(failures: Mapping[str, TidelogError]) -> str:
    return "; ".join(with_address(address, error.message) for address, error in failures.items())
