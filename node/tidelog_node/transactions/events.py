"""The events and commands of transaction shards, in addition to those of all shards."""

from __future__ import annotations

from typing import TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_node.shards.events import RequestReceived, ShardCommand, ShardEvent
from tidelog_node.transactions.requests import TransactionRequest, TransactionResponse
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.states import Producer, TopicPartition


@dataclass(frozen=True, slots=True)
class ProducerIdAllocated:
    """The answer to :class:`AllocateProducerId`: an id that nobody had before, or the error."""

    transactional_id: str
    producer_id: int | None
    error: TidelogError | None = None


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """The markers of :class:`WriteMarkers` are in all partitions that still exist, on all in-sync replicas."""

    transactional_id: str
    producer: Producer


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """The settings of the node, or the finalized ``transaction.version``, have changed."""

    settings: TransactionSettings


TransactionCall: TypeAlias = RequestReceived[TransactionRequest]
TransactionNews: TypeAlias = ProducerIdAllocated | MarkersWritten | SettingsChanged
"""The events that only shards of transactions have."""
Event: TypeAlias = ShardEvent[TransactionRequest] | TransactionNews


@dataclass(frozen=True, slots=True)
class AllocateProducerId:
    """Get a new producer id. :class:`ProducerIdAllocated` follows. At most one per transactional id is open."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write the markers of a prepared transaction to its partitions until each has one.

    :class:`MarkersWritten` follows. The shard's leader epoch is the coordinator epoch of the markers.
    """

    transactional_id: str
    producer: Producer
    committed: bool
    partitions: frozenset[TopicPartition]
    version: int
    """The ``transaction.version`` of the client that ended the transaction."""


TransactionCommand: TypeAlias = AllocateProducerId | WriteMarkers
"""The commands that only shards of transactions return."""
Command: TypeAlias = ShardCommand[TransactionResponse] | TransactionCommand
