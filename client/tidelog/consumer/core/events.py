"""What the fetch positions are told, and what they ask the shell to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog_foundation.errors import TidelogError

AbortedTransactions = tuple[tuple[int, int], ...]
"""(producer id, first offset) of transactions among the records whose records are not to be returned, by offset."""


@dataclass(frozen=True, slots=True)
class FetchSpec:
    """Fetch a partition from ``offset`` on; an answer counts only while the generation is the same."""

    topic: str
    partition: int
    generation: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class LookUpSpec:
    """Find a partition's offset for ``timestamp_ms`` (-1 latest, -2 earliest)."""

    topic: str
    partition: int
    generation: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ValidationSpec:
    """Ask where ``offset_epoch`` ends in the log of the leader of ``leader_epoch``."""

    topic: str
    partition: int
    generation: int
    offset_epoch: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class CommittedSpec:
    """Find the offset that the group has committed of a partition."""

    topic: str
    partition: int
    generation: int


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """One partition of an answer; ``leader_known`` says that it named a newer leader.

    ``is_unchanged``: the answer says nothing of it, as all is as it was. ``preferred_node`` is where to read from.
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
    """Where the reader's records end: the last stable offset for one that waits for transactions; None: as written."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A node has answered; each spec of its Fetch is in ``results``."""

    node_id: int
    results: Sequence[FetchedPartition]


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """A fetch failed whole, or was given up for another one (``error`` None)."""

    node_id: int
    specs: Sequence[FetchSpec]
    error: TidelogError | None


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The offset that was asked for, and the leader epoch of the record there; -1 when it is not known."""

    spec: LookUpSpec
    offset: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class LookUpFailed:
    """The offset was not found."""

    spec: LookUpSpec
    error: TidelogError


@dataclass(frozen=True, slots=True)
class Validated:
    """The leader's largest epoch not above the one asked for, and where it ends; -1 and -1 when it knows none."""

    spec: ValidationSpec
    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class ValidationFailed:
    """Nobody told where the epoch ends."""

    spec: ValidationSpec
    error: TidelogError


@dataclass(frozen=True, slots=True)
class CommittedFound:
    """The committed offset, None when there is none, and the leader epoch of the record before it; -1 not known."""

    spec: CommittedSpec
    offset: int | None
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class CommittedFailed:
    """Nobody told the committed offset."""

    spec: CommittedSpec
    error: TidelogError


@dataclass(frozen=True, slots=True)
class Refused:
    """The metadata of a partition could not be had, or says that there is no such partition."""

    topic: str
    partition: int
    error: TidelogError


Event = (
    Refused
    | Fetched
    | FetchFailed
    | LookedUp
    | LookUpFailed
    | Validated
    | ValidationFailed
    | CommittedFound
    | CommittedFailed
)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Long-poll these partitions at the node that leads them, or that is to be read from in its place."""

    node_id: int
    specs: Sequence[FetchSpec]


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Give up the long poll at a node: there is more to ask it for. Answer with FetchFailed without an error."""

    node_id: int


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask for these offsets."""

    specs: Sequence[LookUpSpec]


@dataclass(frozen=True, slots=True)
class Validate:
    """Ask a leader where these epochs end."""

    node_id: int
    specs: Sequence[ValidationSpec]


@dataclass(frozen=True, slots=True)
class FetchCommitted:
    """Ask the group's coordinator for these committed offsets, after all commits that are under way."""

    specs: Sequence[CommittedSpec]


@dataclass(frozen=True, slots=True)
class AskMetadata:
    """Ask for these topics' partitions and leaders."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand whole batches to the application, leaving out what is before ``offset`` and what was aborted."""

    topic: str
    partition: int
    generation: int
    offset: int
    records: bytes
    aborted: AbortedTransactions = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the application of an error, or of the partition's end, at ``offset``."""

    topic: str
    partition: int
    generation: int
    offset: int
    error: TidelogError


Command = Fetch | Interrupt | LookUp | Validate | FetchCommitted | AskMetadata | Deliver | Report
