"""Registration of brokers, repeated registration and unregistration (KIP-631, KIP-584, KIP-966).

- A process registers with an id of this start, its incarnation; the answer is the broker's epoch. It starts fenced and
  leaves the ISRs of the earlier incarnation. It is refused while that incarnation has a session.
- A broker that does not support the level of a feature of the cluster is refused.
- A log directory's id belongs to one broker: it identifies the directory in failures, and replicas by their directory.
  So an id that another broker has, that is reserved, or that comes twice is refused (KIP-858). A disk that moves to
  another broker is first removed from the old one, by a registration without it or by unregistering.
- ``previous_broker_epoch`` proves that the broker stopped cleanly after its last registration. Without the proof it may
  have lost records that it had acknowledged, and leaves every ELR too.
- An epoch is the offset of a committed registration, so every leader's log has reached it. A broker that proves an
  epoch beyond the log is refused: this quorum has lost its log, or was replaced by a restored one (``generation``), and
  the broker would give up every replica that this quorum does not know. A new log that has become longer than the epoch
  hides the loss.
- Unregistering removes a broker, running or not. Its replicas stay in the partitions, but not in ISRs and ELRs.

All changes of partitions are in one entry with the registration, because a new incarnation must not find itself
leading. If they are too many, they are written before (``PartitionQueue``), and the broker repeats its request until
few are left.
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from tidelog_foundation.config.endpoints import GRPC, speaks_grpc
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, uuid_text
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_foundation.requests.brokers import RegisterBrokerRequest, RegisterBrokerResponse
from tidelog_foundation.requests.cluster import UnregisterBrokerRequest, UnregisterBrokerResponse
from tidelog_quorum.controller.elections import NOBODY, with_members
from tidelog_quorum.controller.partition_queue import PartitionQueue
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.sessions import BrokerSessions
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import MetadataRecord, UnregisterBrokerRecord
from tidelog_quorum.metadata.registrations import BrokerRegistration

ID_BYTES = 16
_MAX_NAME_LENGTH = 255
_MAX_LOG_DIRS = 1_000
_MAX_FEATURES = 100
_MAX_LISTENERS = 100
_RESERVED_DIRECTORY_IDS = 100
"""The lowest ids are reserved: unassigned, lost, migrating (Kafka's DirectoryId)."""


def register_broker(
    state: ControllerState, request: RegisterBrokerRequest, now_ms: int
) -> Result[RegisterBrokerResponse]:
    """Register a broker's process. A new incarnation starts fenced and outside of every ISR that has another member.

    Raises:
        TidelogError: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, INVALID_REGISTRATION (the log directories, or an epoch
            that this quorum has not given out), UNSUPPORTED_VERSION, or DUPLICATE_BROKER_REGISTRATION while another
            incarnation of the same id has a session and is not shutting down, or while its partitions are being handed
            over.
    """
    image, sessions = state.latest, state.sessions
    _check_registration(state.config.cluster_id, request)
    _check_former_epoch(image, request)
    _check_listeners(request)
    _check_directories(image, request)
    _check_features(image, request)
    broker_id = request.broker_id
    existing = image.brokers.get(broker_id)
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        return _register_again(existing, sessions, request, now_ms)
    if existing is not None and sessions.is_alive(existing, now_ms) and not existing.in_controlled_shutdown:
        raise error_for(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process is registered as broker {broker_id} at {existing.endpoint}; if it was stopped, its "
            f"session ends within broker.session.timeout.ms",
        )
    registration = _registration(request, BrokerEpoch(image.offset + 1))
    records = _handed_over(image, sessions, state.queue, existing, registration, request)
    sessions.begin(broker_id, registration.broker_epoch, now_ms)
    return Result([*records, registration.to_record()], RegisterBrokerResponse(broker_epoch=registration.broker_epoch))


def unregister_broker(
    state: ControllerState, request: UnregisterBrokerRequest, now_ms: int
) -> Result[UnregisterBrokerResponse]:
    """Remove a broker. A running one registers again.

    Raises:
        TidelogError: BROKER_ID_NOT_REGISTERED.
    """
    image = state.latest
    broker = image.brokers.get(BrokerId(request.broker_id))
    if broker is None:
        raise error_for(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered")
    gone = frozenset({broker.broker_id})
    others = {i: b for i, b in image.brokers.items() if i != broker.broker_id}
    changes = state.queue.changes(image, others, with_members(image, gone), unclean_shutdown=gone)
    state.sessions.end(broker.broker_id)
    record = UnregisterBrokerRecord(broker.broker_id, broker.broker_epoch)
    return Result([*changes, record], UnregisterBrokerResponse())


def _check_registration(cluster_id: str, request: RegisterBrokerRequest) -> None:
    if request.cluster_id != cluster_id:
        raise error_for(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker_id} belongs to cluster {request.cluster_id!r}, this is {cluster_id!r}",
        )
    if len(request.rack) > _MAX_NAME_LENGTH or len(request.endpoint.host) > _MAX_NAME_LENGTH:
        text = f"the rack or the host of broker {request.broker_id} is longer than {_MAX_NAME_LENGTH} characters"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    if len(request.log_dirs) > _MAX_LOG_DIRS or len(request.features) > _MAX_FEATURES:
        text = (
            f"broker {request.broker_id} names {len(request.log_dirs)} log directories and {len(request.features)} "
            f"features, more than {_MAX_LOG_DIRS} or {_MAX_FEATURES}"
        )
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    if request.broker_id < 0:
        raise error_for(ErrorCode.INVALID_REQUEST, f"invalid broker id {request.broker_id}: must be at least 0")
    if any(len(i) != ID_BYTES for i in (request.incarnation_id, *request.log_dirs)):
        raise error_for(ErrorCode.INVALID_REQUEST, f"incarnation and log directory ids must have {ID_BYTES} bytes")
    if not request.endpoint.host or not 0 < request.endpoint.port < 65_536:
        address = f"{request.endpoint.host}:{request.endpoint.port}"
        raise error_for(ErrorCode.INVALID_REQUEST, f"invalid endpoint {address!r} of broker {request.broker_id}")


def _check_former_epoch(image: MetadataImage, request: RegisterBrokerRequest) -> None:
    if request.previous_broker_epoch > image.offset:
        text = (
            f"broker {request.broker_id} was registered with epoch {request.previous_broker_epoch}, but the metadata "
            f"log of this quorum ends at offset {image.offset}: its controllers have lost their log, or were replaced "
            "by others with restored metadata; do not let the broker join it"
        )
        raise error_for(ErrorCode.INVALID_REGISTRATION, text)


def _check_listeners(request: RegisterBrokerRequest) -> None:
    """Check that each listener has a unique name and a valid address, and that ``endpoint`` is among them."""
    listeners = request.listeners
    names = Counter(x.name for x in listeners)
    grpc_endpoints = [Endpoint(x.host, x.port) for x in listeners if speaks_grpc(x.security_protocol)]
    fault = ""
    if len(listeners) > _MAX_LISTENERS:
        fault = f"has {len(listeners)} listeners, more than {_MAX_LISTENERS}"
    elif wrong := [str(x) for x in listeners if not _can_be(x)]:
        fault = f"has the invalid listener {wrong[0]!r}"
    elif twice := [name for name, count in names.items() if count > 1]:
        fault = f"has the listener {twice[0]!r} {names[twice[0]]} times"
    elif listeners and request.endpoint not in grpc_endpoints:
        fault = f"has the endpoint {request.endpoint.host}:{request.endpoint.port}, which no {GRPC} listener of it has"
    if fault:
        raise error_for(ErrorCode.INVALID_REQUEST, f"broker {request.broker_id} {fault}")


def _can_be(listener: ListenerEndpoint) -> bool:
    texts = (listener.name, listener.host, listener.security_protocol)
    return all(0 < len(text) <= _MAX_NAME_LENGTH for text in texts) and 0 < listener.port < 65_536


def _check_directories(image: MetadataImage, request: RegisterBrokerRequest) -> None:
    """Check the log directories as ClusterControlManager.registerBroker does, but allow a broker without any."""
    owners = {d: b.broker_id for b in image.brokers.values() if b.broker_id != request.broker_id for d in b.log_dirs}
    for directory_id, count in Counter(request.log_dirs).items():
        fault = ""
        if int.from_bytes(directory_id) < _RESERVED_DIRECTORY_IDS:
            fault = "the id is reserved"
        elif count > 1:
            fault = f"it is named {count} times"
        elif directory_id in owners:
            fault = f"broker {owners[directory_id]} is registered with it"
        if fault:
            text = f"broker {request.broker_id} cannot have the log directory {uuid_text(directory_id)}: {fault}"
            raise error_for(ErrorCode.INVALID_REGISTRATION, text)


def _check_features(image: MetadataImage, request: RegisterBrokerRequest) -> None:
    """Check the features; a feature that the broker does not name has level 0."""
    ranges = {f.name: (f.min_level, f.max_level) for f in request.features}
    if len(ranges) != len(request.features) or any(low > high for low, high in ranges.values()):
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"invalid ranges of features of broker {request.broker_id}: {ranges}"
        )
    for name, level in image.feature_levels.items():
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            raise error_for(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster has {name} at level {level}, broker {request.broker_id} does levels {low} to {high}",
            )


def _registration(request: RegisterBrokerRequest, broker_epoch: BrokerEpoch) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=request.broker_id,
        broker_epoch=broker_epoch,
        incarnation_id=request.incarnation_id,
        endpoint=request.endpoint,
        rack=request.rack,
        log_dirs=request.log_dirs,
        features=request.features,
        listeners=request.listeners,
    )


def _register_again(
    existing: BrokerRegistration, sessions: BrokerSessions, request: RegisterBrokerRequest, now_ms: int
) -> Result[RegisterBrokerResponse]:
    """Answer the same process again, for example after a lost answer: it keeps its epoch and its state.

    It also keeps its directories: its next heartbeat reports those that failed.
    """
    sessions.begin(existing.broker_id, existing.broker_epoch, now_ms)
    changed = dataclasses.replace(
        _registration(request, existing.broker_epoch),
        log_dirs=existing.log_dirs,
        fenced=existing.fenced,
        in_controlled_shutdown=existing.in_controlled_shutdown,
    )
    records = [] if changed == existing else [changed.to_record()]
    return Result(records, RegisterBrokerResponse(broker_epoch=existing.broker_epoch))


def _handed_over(
    image: MetadataImage,
    sessions: BrokerSessions,
    queue: PartitionQueue,
    existing: BrokerRegistration | None,
    registration: BrokerRegistration,
    request: RegisterBrokerRequest,
) -> list[MetadataRecord]:
    """Return the changes after which the new, fenced incarnation is in no ISR or leadership of the earlier one."""
    broker_id = registration.broker_id
    stopped_cleanly = existing is not None and request.previous_broker_epoch == existing.broker_epoch
    unclean = NOBODY if stopped_cleanly else frozenset({broker_id})
    brokers = {**image.brokers, broker_id: registration}
    records = queue.changes_at_once(image, brokers, with_members(image, frozenset({broker_id})), unclean)
    if records is not None:
        return records
    if existing is not None and not existing.fenced:
        # It has no session, or is stopping: the next tick fences it.
        sessions.end(broker_id)
    else:
        queue.postpone(with_members(image, frozenset({broker_id})), unclean)
    text = f"the partitions that broker {broker_id} held before its restart are being handed over; try again"
    raise error_for(ErrorCode.DUPLICATE_BROKER_REGISTRATION, text)
