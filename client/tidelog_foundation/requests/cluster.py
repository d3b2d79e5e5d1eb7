"""The brokers and controllers of the cluster."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_foundation.requests.request import Request


@dataclass(frozen=True, slots=True)
class ClusterBroker:
    """A registered broker. ``host`` and ``port`` are those of its gRPC listener.

    ``listeners`` are all of its listeners; none if the broker's version did not report them.
    """

    broker_id: BrokerId
    host: str
    port: int
    rack: str
    is_fenced: bool
    listeners: tuple[ListenerEndpoint, ...]


@dataclass(frozen=True, slots=True)
class QuorumVoter:
    """A controller with a vote."""

    voter_id: int
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class DescribeClusterResponse:
    """The processes of the cluster. ``controller_id`` is the leading controller, -1 if unknown."""

    cluster_id: str
    controller_id: int
    brokers: tuple[ClusterBroker, ...]
    voters: tuple[QuorumVoter, ...]
    authorized_operations: int | None = None
    """The permitted operations, one bit each, if an authorizer has been asked for them."""


@dataclass(frozen=True, slots=True)
class DescribeClusterRequest(Request[DescribeClusterResponse]):
    """A request for the processes of the cluster."""

    include_authorized_operations: bool = False


@dataclass(frozen=True, slots=True)
class UnregisterBrokerResponse:
    """The success of an UnregisterBrokerRequest."""


@dataclass(frozen=True, slots=True)
class UnregisterBrokerRequest(Request[UnregisterBrokerResponse]):
    """A request to forget a broker that will not return (KIP-631)."""

    broker_id: int
