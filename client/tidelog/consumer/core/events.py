"""The events of the fetch positions, and their commands to the shell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog_foundation.errors import TidelogError


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionSettings:
    """The settings of the fetch positions. With ``reset_timestamp_ms`` None, a reset reports an error."""

    queue_bytes: int
    reset_timestamp_ms: int | None
    report_end: bool
    queue_messages: int | None = None
    """The most messages of one partition that wait for the application; None leaves only the limit ``queue_bytes``."""
    overdue_ms: float = 1_500
    """The age of an overdue fetch, above the longest wait of a node for records."""
    preferred_ms: float = 300_000
    """The time for which a preferred replica is read before the leader is asked again."""
    has_group: bool = False
    """True if a partition without an offset starts at the group's committed offset."""


AbortedTransactions = tuple[tuple[int, int], ...]
"""(producer id, first offset) of the aborted transactions among fetched records, by offset."""


@dataclass(frozen=True, slots=True)
class AssignedPartition:
    """A partition as of a generation. A seek, pause or assignment ends the generation, and its answers are ignored."""

    topic: str
    partition: int
    generation: int


@dataclass(frozen=True, slots=True)
class FetchSpec(AssignedPartition):
    """A fetch of a partition from ``offset``."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class LookUpSpec(AssignedPartition):
    """A search for a partition's offset by ``timestamp_ms`` (-1 latest, -2 earliest)."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ValidationSpec(AssignedPartition):
    """A request for the end of ``offset_epoch`` in the log of ``leader_epoch``'s leader."""

    offset_epoch: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition of an answer. ``leader_known`` tells that it named a newer leader.

    ``is_unchanged`` tells that the answer left the partition out because nothing changed. ``preferred_node`` is the
    replica to read from.
    """

    spec: FetchSpec
    records: bytes = b""
    high_watermark: int = -1
    log_start_offset: int = -1
    error: TidelogError | None = None
    leader_known: bool = False
    is_unchanged: bool = False
    preferred_node: int | None = None
    aborted: AbortedTransactions = ()
    end_offset: int | None = None
    """The end of the readable records: the last stable offset with read_committed, or None for the high watermark."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A node's answer; ``results`` has an entry for each spec of its Fetch."""

    node_id: int
    results: Sequence[FetchedPartition]


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """A fetch that failed as a whole, or was interrupted for another one (``error`` None)."""

    node_id: int
    specs: Sequence[FetchSpec]
    error: TidelogError | None


@dataclass(frozen=True, slots=True)
class Validated:
    """The leader's largest epoch not above the requested one, and its end; -1 and -1 if the leader knows none."""

    spec: ValidationSpec
    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class OffsetFound:
    """The offset found for a request, None if nothing is committed, and a leader epoch; -1 if unknown.

    The epoch is that of the record there or, for a committed offset, of the record before it.
    """

    spec: AssignedPartition
    offset: int | None
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A failed request for an offset, the end of an epoch, or a committed offset."""

    spec: AssignedPartition
    error: TidelogError


@dataclass(frozen=True, slots=True)
class Refused:
    """A partition without metadata, or one that does not exist."""

    topic: str
    partition: int
    error: TidelogError


Event = Refused | Fetched | FetchFailed | OffsetFound | Validated | RequestFailed


@dataclass(frozen=True, slots=True)
class Fetch:
    """Long-poll these partitions at their leader, or at their preferred replica."""

    node_id: int
    specs: Sequence[FetchSpec]


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Interrupt the long poll at a node, because there is more to fetch. Answer with FetchFailed without an error."""

    node_id: int


@dataclass(frozen=True, slots=True)
class LookUp:
    """Request these offsets."""

    specs: Sequence[LookUpSpec]


@dataclass(frozen=True, slots=True)
class Validate:
    """Ask a leader for the ends of these epochs."""

    node_id: int
    specs: Sequence[ValidationSpec]


@dataclass(frozen=True, slots=True)
class FetchCommitted:
    """Ask the group's coordinator for these committed offsets, after all pending commits."""

    specs: Sequence[AssignedPartition]


@dataclass(frozen=True, slots=True)
class AskMetadata:
    """Request the partitions and leaders of these topics."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Deliver(AssignedPartition):
    """Deliver whole batches to the application, without records before ``offset`` and aborted ones."""

    offset: int
    records: bytes
    aborted: AbortedTransactions = ()


@dataclass(frozen=True, slots=True)
class Report(AssignedPartition):
    """Report an error or the partition's end, at ``offset``, to the application."""

    offset: int
    error: TidelogError


Command = Fetch | Interrupt | LookUp | Validate | FetchCommitted | AskMetadata | Deliver | Report
