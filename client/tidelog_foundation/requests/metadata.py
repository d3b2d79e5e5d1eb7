"""The view of the cluster that clients follow: brokers, topics and leaders."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.request import Request
from tidelog_foundation.requests.topics import TopicMetadata


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    """An unfenced broker at its gRPC listener."""

    node_id: BrokerId
    host: str
    port: int
    rack: str


@dataclass(frozen=True, slots=True)
class GetMetadataResponse:
    """The brokers and the requested topics. ``controller_id`` is the leading controller, -1 if unknown."""

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerMetadata, ...] = ()
    topics: tuple[TopicMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class GetMetadataRequest(Request[GetMetadataResponse]):
    """A request for the brokers, and for all topics or the named ones."""

    topics: tuple[str, ...] = ()
    all_topics: bool = False
    allow_auto_topic_creation: bool = False
