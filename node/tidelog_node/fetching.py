"""Fetch requests and responses as handlers and fetchers use them: without a wire format, with records by reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple, Protocol, TypeAlias

from tidelog_foundation.authorization import READ_TOPIC, Access
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_foundation.requests.acls import AclOperation
from tidelog_node.replication.fetch_session import FetchSpec, PartitionKey, TopicRef
from tidelog_node.replication.truncation import EpochEnd

Buffer: TypeAlias = bytes | bytearray | memoryview


class SessionStep(NamedTuple):
    """The session and its epoch that a request continues (KIP-227). ``ends_wait`` means that it only ends that wait."""

    id: int = 0
    epoch: int = 0
    ends_wait: bool = False


@dataclass(slots=True)
class FetchRequest:
    """A fetch. ``wanted`` and ``forgotten`` have topics by name or id.

    ``replica`` is a follower's id and registration epoch, None for a consumer. ``session`` is None for a request that
    names all its partitions and leaves no state on the node. ``uses_topic_ids`` is whether the version names topics by
    id alone, None if each topic decides. ``may_read_followers`` is whether a replica that does not lead may answer a
    consumer (KIP-392).
    """

    wanted: dict[PartitionKey, FetchSpec]
    max_bytes: int
    max_wait_ms: int = 0
    min_bytes: int = 0
    replica: tuple[BrokerId, BrokerEpoch] | None = None
    is_read_committed: bool = False
    rack_id: str = ""
    cluster_id: str = ""
    session: SessionStep | None = None
    forgotten: Sequence[PartitionKey] = ()
    uses_topic_ids: bool | None = None
    may_read_followers: bool = False
    access: Access | None = None
    """The permissions of the caller; None on a node without an authorizer."""
    owner: str = ""
    """The caller's principal. Sessions of others do not exist for it."""
    is_denied: bool = False
    """True if the caller names a replica and may not act for the cluster. It has quotas, and gets no session."""
    decision: tuple[str, bool] | None = None
    """A topic and whether the follower may read it: the answer of the next :meth:`may_read`, decided and logged."""

    def may_read(self, topic: str) -> bool:
        """Return whether the caller may read a topic: a follower acts for the cluster, a consumer reads topics."""
        if self.access is None:
            return True
        if self.replica is None:
            return self.access.has(READ_TOPIC, topic)
        decision, self.decision = self.decision, None
        if decision is not None and decision[0] == topic:
            return decision[1]
        return self.access.on_cluster(AclOperation.CLUSTER_ACTION)

    def ending_wait(self) -> FetchRequest:
        """Return the request that asks a leader to answer this request now. It must belong to a session."""
        assert self.session is not None, "a request without a session cannot be ended early"
        session = SessionStep(self.session.id, self.session.epoch, ends_wait=True)
        return FetchRequest({}, 0, replica=self.replica, cluster_id=self.cluster_id, session=session)


@dataclass(frozen=True, slots=True)
class CurrentLeader:
    """The leader of a partition, as far as the answering node knows (KIP-951)."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(slots=True)
class FetchResult:
    """The answer for one partition. -1 and None stand for unknown or absent values.

    ``records`` are whole batches; the first may begin before the requested offset. For readers of committed
    transactions, ``aborted`` contains the producer id and first offset of each transaction to skip.
    """

    index: int
    error: TidelogError | None = None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer = b""
    aborted: Sequence[tuple[int, int]] | None = None
    diverging: EpochEnd | None = None
    current_leader: CurrentLeader | None = None
    preferred_replica: BrokerId | None = None


@dataclass(slots=True)
class FetchResponse:
    """The partitions' answers by topic, in order. A ``session_id`` of 0 means no session; an ``error`` stands alone."""

    topics: dict[TopicRef, list[FetchResult]] = field(default_factory=dict)
    session_id: int = 0
    error: TidelogError | None = None
    throttle_time_ms: int = 0
    """The time for which the client's quotas delay it, in milliseconds. It has no results then."""

    @property
    def size(self) -> int:
        """The total size of the records in bytes."""
        return sum([len(result.records) for results in self.topics.values() for result in results])

    @property
    def results(self) -> dict[PartitionKey, FetchResult]:
        """The answers by partition."""
        return {(topic, result.index): result for topic, results in self.topics.items() for result in results}


class ReplicaTransport(Protocol):
    """A transport of followers' fetches to other nodes."""

    async def fetch(self, address: str, request: FetchRequest, timeout_s: float) -> FetchResponse:
        """Send one fetch to ``host:port``; raise TidelogError when the call failed as a whole."""

    async def close(self) -> None:
        """Close all connections."""
