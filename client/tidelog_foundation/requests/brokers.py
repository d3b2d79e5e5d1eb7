"""A broker's calls to the controller: registration, heartbeats and producer ids (KIP-631, KIP-730)."""

from __future__ import annotations

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import BrokerEpoch, BrokerId, DirectoryId
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_foundation.requests.features import FeatureRange
from tidelog_foundation.requests.request import Request

NO_BROKER_EPOCH = BrokerEpoch(-1)


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponse:
    """The broker's epoch."""

    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class RegisterBrokerRequest(Request[RegisterBrokerResponse]):
    """The registration of a broker's process.

    ``incarnation_id`` has 16 random bytes, new for each start. ``log_dirs`` are the usable log directories.
    ``previous_broker_epoch`` is the epoch before the last clean shutdown, -1 after an unclean one (KIP-966).
    ``listeners`` include the one of ``endpoint``.
    """

    broker_id: BrokerId
    cluster_id: str
    incarnation_id: bytes
    endpoint: Endpoint
    rack: str = ""
    log_dirs: tuple[DirectoryId, ...] = ()
    previous_broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    features: tuple[FeatureRange, ...] = ()
    listeners: tuple[ListenerEndpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatResponse:
    """The broker's state.

    ``should_shut_down`` means that it leads no partitions any more and may stop. ``session_timeout_ms`` is the time
    after the heartbeat was sent for which the broker is not fenced, 0 if unknown. ``metadata_offset`` is the end of the
    metadata when the controller handled the heartbeat; earlier changes of the broker are below it.
    """

    is_caught_up: bool = False
    is_fenced: bool = False
    should_shut_down: bool = False
    session_timeout_ms: int = 0
    metadata_offset: int = 0


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatRequest(Request[BrokerHeartbeatResponse]):
    """A sign of life, with the last applied metadata offset and the requested state.

    ``offline_log_dirs`` are the log directories that have failed since the registration, in every heartbeat (KIP-858).
    With ``shutdown_may_wait``, the controlled shutdown begins only when no replica that catches up could make it
    harmless.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    current_metadata_offset: int = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[DirectoryId, ...] = ()
    shutdown_may_wait: bool = False


@dataclass(frozen=True, slots=True)
class HoldConnectionResponse:
    """The end of a held connection, which no controller sends."""


@dataclass(frozen=True, slots=True)
class HoldConnectionRequest(Request[HoldConnectionResponse]):
    """A call that stays open while the broker lives, so that the controller notices when its process is gone."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsResponse:
    """A block of producer ids."""

    producer_id_start: int
    producer_id_len: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsRequest(Request[AllocateProducerIdsResponse]):
    """A request for a block of unique producer ids."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
