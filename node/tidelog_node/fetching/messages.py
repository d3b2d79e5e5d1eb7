"""Fetch requests and responses as handlers and fetchers see them: no wire format, records by reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_node.replication.fetch_session import FetchSpec, PartitionKey, TopicRef
from tidelog_node.replication.truncation import EpochEnd

Buffer: TypeAlias = bytes | bytearray | memoryview


class SessionStep(NamedTuple):
    """Which session a request goes on with, and how (KIP-227); ``ends_wait``: it only ends the wait of that request."""

    id: int = 0
    epoch: int = 0
    ends_wait: bool = False


@dataclass(slots=True)
class FetchRequest:
    """A fetch. ``wanted`` and ``forgotten`` have topics by name, or by id.

    ``replica`` is who a follower is, in which registration; None for a consumer. ``session`` is None for a request that
    names all its partitions and of which the node keeps nothing. ``uses_topic_ids``: whether the version names topics
    by their ids alone, None where a listener leaves that to each topic. ``may_read_followers``: whether a consumer is
    answered by a replica that does not lead, too (KIP-392).
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

    def ending_wait(self) -> FetchRequest:
        """Return the request by which a leader is asked to answer this one now, which must be of a session."""
        assert self.session is not None, "there is no session by which to name it"
        session = SessionStep(self.session.id, self.session.epoch, ends_wait=True)
        return FetchRequest({}, 0, replica=self.replica, cluster_id=self.cluster_id, session=session)


@dataclass(frozen=True, slots=True)
class CurrentLeader:
    """Who leads a partition, as far as the answering node knows (KIP-951)."""

    leader_id: BrokerId
    leader_epoch: LeaderEpoch


@dataclass(slots=True)
class FetchResult:
    """The answer for one partition; -1 and None stand for what is not known or not there.

    ``records`` are whole batches, of which the first may begin before the offset that was asked for. ``aborted`` are,
    for readers of committed transactions, the producer id and first offset of each that is to be left out.
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
    """The partitions' answers by topic, in order. ``session_id`` 0: the node keeps none. ``error``: nothing else."""

    topics: dict[TopicRef, list[FetchResult]] = field(default_factory=dict)
    session_id: int = 0
    error: TidelogError | None = None

    @property
    def size(self) -> int:
        """The bytes of all records."""
        return sum([len(result.records) for results in self.topics.values() for result in results])

    @property
    def results(self) -> dict[PartitionKey, FetchResult]:
        """The answers by partition."""
        return {(topic, result.index): result for topic, results in self.topics.items() for result in results}
