"""Commands of a controller's terms. The shell executes them in order.

``Handle``, ``Encode`` and ``Propose`` come last in their list. The outcome of ``Propose`` is the core's next event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_quorum.controller.state_machine import ChangedPartition
from tidelog_quorum.controller.term.events import DeferredEvent
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import MetadataRecord
from tidelog_quorum.raft.protocol import CommittedEntry


@dataclass(frozen=True, slots=True)
class Handle:
    """Handle a request on the latest image. Answered by ``Handled`` or ``HandlingFailed``, now or later.

    A request that ``is_long`` is handled in a thread. No other request is handled meanwhile.
    """

    request_id: int
    is_long: bool


@dataclass(frozen=True, slots=True)
class Encode:
    """Encode records, too many for the event loop, in a thread. Answered by ``Encoded`` or ``HandlingFailed``."""

    records: Sequence[MetadataRecord]


@dataclass(frozen=True, slots=True)
class Propose:
    """Propose an entry in an epoch. Answered by ``Proposed`` or ``ProposalFailed``."""

    payload: bytes
    epoch: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a request. Everything that it could see is committed."""

    request_id: int
    response: object


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer a request with an error."""

    request_id: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Publish:
    """Give committed entries and their resulting image to the followers of the metadata log."""

    entries: Sequence[CommittedEntry]
    image: MetadataImage


@dataclass(frozen=True, slots=True)
class TermBegan:
    """Report that this controller leads; ``offset`` is that of its announcement."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Report the brokers whose state differs between two images."""

    before: MetadataImage
    after: MetadataImage


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """Report the partitions whose leader or ISR a committed entry of this leader has changed."""

    before: MetadataImage
    after: MetadataImage
    partitions: Sequence[ChangedPartition]


@dataclass(frozen=True, slots=True)
class Later:
    """Feed the event back to the core after other work had its turn."""

    event: DeferredEvent


@dataclass(frozen=True, slots=True)
class Fail:
    """End the process with an error."""

    error: Exception


Command: TypeAlias = (
    Handle
    | Encode
    | Propose
    | Answer
    | Refuse
    | Publish
    | TermBegan
    | BrokersChanged
    | PartitionsChanged
    | Later
    | Fail
)
