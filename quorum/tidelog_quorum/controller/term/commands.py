"""Commands of a controller's terms. The shell executes them in order.

``Handle``, ``Encode`` and ``Propose`` come last in their list. The outcome of ``Propose`` is the core's next event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidelog_quorum.controller.term.events import DeferredEvent
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import MetadataRecord
from tidelog_quorum.raft.protocol import CommittedEntry


@dataclass(frozen=True, slots=True)
class Handle:
    """Handle a request on the latest image; answered by ``Handled`` or ``HandlingFailed``, now or later.

    A request that ``is_long`` is handled in a thread. No other request is handled meanwhile.
    """

    request_id: int
    is_long: bool


@dataclass(frozen=True, slots=True)
class Encode:
    """Encode records, too many for the event loop, in a thread; answered by ``Encoded`` or ``HandlingFailed``."""

    records: Sequence[MetadataRecord]


@dataclass(frozen=True, slots=True)
class Propose:
    """Propose an entry in an epoch; answered by ``Proposed`` or ``ProposalFailed``."""

    payload: bytes
    epoch: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a request: everything that it could see is committed."""

    request_id: int
    response: object


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer a request with an error."""

    request_id: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Publish:
    """Give committed entries, and the image that they lead to, to the followers of the metadata log."""

    entries: Sequence[CommittedEntry]
    image: MetadataImage


@dataclass(frozen=True, slots=True)
class TermBegan:
    """Tell the operator that this controller leads; ``offset`` is that of its announcement."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Tell the operator which brokers changed their state between two images."""

    before: MetadataImage
    after: MetadataImage


@dataclass(frozen=True, slots=True)
class Later:
    """Give the event back to the core after other work had its turn."""

    event: DeferredEvent


@dataclass(frozen=True, slots=True)
class Fail:
    """End the process with an error."""

    error: Exception


Command: TypeAlias = Handle | Encode | Propose | Answer | Refuse | Publish | TermBegan | BrokersChanged | Later | Fail
