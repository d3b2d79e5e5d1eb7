"""The life of a broker: registration, heartbeats, fencing, controlled shutdown (KIP-631, KIP-841).

::

    (none) --register--> fenced --caught up with its registration--> unfenced --want_shut_down--> shutting down
                           ^  <--------- want_fence, session expired ---------'                        |
                           '<------------- leads nothing, the others know, or session expired ---------'

A fenced broker that was shutting down comes back only by a new registration. A log directory that a heartbeat says has
failed is taken off the registration, and with it the replicas in it out of their ISRs; it comes back only by a
registration of another incarnation (KIP-858). Whoever leaves "unfenced" leaves every
ISR that has another member in the same entry (``elections``).
"""

from __future__ import annotations

import dataclasses
import enum

from tidelog.errors import ErrorCode, error_for
from tidelog.ids import BrokerEpoch, BrokerId, DirectoryId
from tidelog.v1 import controller_service_pb2 as pb
from tidelog_quorum.controller.elections import (
    changes_with,
    changes_without,
    changes_without_directories,
    leads_any,
)
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.sessions import BrokerSessions
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import BrokerRegistrationChangeRecord, Endpoint, MetadataRecord
from tidelog_quorum.metadata.registrations import BrokerRegistration

ID_BYTES = 16


class _Next(enum.Enum):
    """Where a heartbeat takes a broker."""

    FENCED = enum.auto()
    UNFENCED = enum.auto()
    SHUTTING_DOWN = enum.auto()
    SHUT_DOWN = enum.auto()


def register_broker(
    image: MetadataImage, sessions: BrokerSessions, cluster_id: str, request: pb.RegisterBrokerRequest, now_ms: int
) -> Result[pb.RegisterBrokerResponse]:
    """Register a broker's process. A new incarnation starts fenced and outside of every ISR that has another member.

    Raises:
        TidelogError: INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, or DUPLICATE_BROKER_REGISTRATION while another
            incarnation of the same id has a session and is not shutting down.
    """
    _check_registration(cluster_id, request)
    broker_id = BrokerId(request.broker_id)
    existing = image.brokers.get(broker_id)
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        return _register_again(existing, sessions, request, now_ms)
    if existing is not None and sessions.is_alive(existing, now_ms) and not existing.in_controlled_shutdown:
        raise error_for(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process is registered as broker {broker_id} at {existing.endpoint}; if it was stopped, its "
            f"session ends within broker.session.timeout.ms",
        )
    broker_epoch = BrokerEpoch(image.offset + 1)
    registration = _registration(request, broker_epoch)
    sessions.begin(broker_id, broker_epoch, now_ms)
    records = [*changes_without(image, frozenset({broker_id})), registration.to_record()]
    return Result(records, pb.RegisterBrokerResponse(broker_epoch=broker_epoch))


def heartbeat(
    image: MetadataImage, sessions: BrokerSessions, request: pb.BrokerHeartbeatRequest, now_ms: int
) -> Result[pb.BrokerHeartbeatResponse]:
    """Keep a broker's session alive, take note of directories that failed, and move it on to what it wants to be.

    Raises:
        TidelogError: STALE_BROKER_EPOCH when the broker is not registered with that epoch.
    """
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    sessions.touch(broker.broker_id, broker.broker_epoch, request.current_metadata_offset, now_ms)
    failures, after = _without_failed_directories(image, broker, request)
    broker = after.brokers[broker.broker_id]
    following = _next_state(after, sessions, broker, request)
    records = [*failures, *_records_towards(after, broker, following)]
    if following is _Next.SHUTTING_DOWN:
        sessions.begin_shutdown(broker.broker_id, image.offset + bool(records))
    if following is _Next.SHUT_DOWN:
        sessions.end(broker.broker_id)
    response = pb.BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= broker.broker_epoch,
        is_fenced=following in (_Next.FENCED, _Next.SHUT_DOWN),
        should_shut_down=following is _Next.SHUT_DOWN,
    )
    return Result(records, response)


def expire_sessions(image: MetadataImage, sessions: BrokerSessions, now_ms: int) -> Result[frozenset[BrokerId]]:
    """Fence the unfenced brokers whose session has ended; the response names them."""
    stale = [b for b in image.brokers.values() if not b.fenced and not sessions.is_alive(b, now_ms)]
    gone = frozenset(b.broker_id for b in stale)
    if not gone:
        return Result([], gone)
    for broker_id in gone:
        sessions.end(broker_id)
    return Result([*changes_without(image, gone), *(_fence(b) for b in stale)], gone)


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """Return the registration of a broker that names its present epoch.

    Raises:
        TidelogError: STALE_BROKER_EPOCH when the broker is not registered with that epoch.
    """
    broker = image.brokers.get(BrokerId(broker_id))
    if broker is None:
        raise error_for(ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered")
    if broker.broker_epoch != broker_epoch:
        raise error_for(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} has epoch {broker.broker_epoch}, not {broker_epoch}",
        )
    return broker


def _check_registration(cluster_id: str, request: pb.RegisterBrokerRequest) -> None:
    if request.cluster_id != cluster_id:
        raise error_for(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker_id} belongs to cluster {request.cluster_id!r}, this is {cluster_id!r}",
        )
    if request.broker_id < 0:
        raise error_for(ErrorCode.INVALID_REQUEST, f"invalid broker id {request.broker_id}: must be at least 0")
    if any(len(i) != ID_BYTES for i in (request.incarnation_id, *request.log_dirs)):
        raise error_for(ErrorCode.INVALID_REQUEST, f"incarnation and log directory ids must have {ID_BYTES} bytes")
    if not request.endpoint.host or not 0 < request.endpoint.port < 65_536:
        address = f"{request.endpoint.host}:{request.endpoint.port}"
        raise error_for(ErrorCode.INVALID_REQUEST, f"invalid endpoint {address!r} of broker {request.broker_id}")


def _registration(request: pb.RegisterBrokerRequest, broker_epoch: BrokerEpoch) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=BrokerId(request.broker_id),
        broker_epoch=broker_epoch,
        incarnation_id=request.incarnation_id,
        endpoint=Endpoint(request.endpoint.host, request.endpoint.port),
        rack=request.rack,
        log_dirs=tuple(DirectoryId(i) for i in request.log_dirs),
    )


def _register_again(
    existing: BrokerRegistration, sessions: BrokerSessions, request: pb.RegisterBrokerRequest, now_ms: int
) -> Result[pb.RegisterBrokerResponse]:
    """The same process asks again, say because the answer was lost: it keeps its epoch and its state.

    Its directories too: one that it does not name any more has failed, which its next heartbeat says.
    """
    sessions.begin(existing.broker_id, existing.broker_epoch, now_ms)
    changed = dataclasses.replace(
        _registration(request, existing.broker_epoch),
        log_dirs=existing.log_dirs,
        fenced=existing.fenced,
        in_controlled_shutdown=existing.in_controlled_shutdown,
    )
    records = [] if changed == existing else [changed.to_record()]
    return Result(records, pb.RegisterBrokerResponse(broker_epoch=existing.broker_epoch))


def _without_failed_directories(
    image: MetadataImage, broker: BrokerRegistration, request: pb.BrokerHeartbeatRequest
) -> tuple[list[MetadataRecord], MetadataImage]:
    """Return the records by which newly failed directories are left, and the image that they make."""
    failed = frozenset(broker.log_dirs).intersection(map(DirectoryId, request.offline_log_dirs))
    if not failed or _has_lost_all(broker, request):
        return [], image
    left = tuple(d for d in broker.log_dirs if d not in failed)
    change = BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, log_dirs=left)
    records = [change, *changes_without_directories(image, broker.broker_id, failed)]
    return records, image.apply(image.offset + 1, image.epoch, records)


def _has_lost_all(broker: BrokerRegistration, request: pb.BrokerHeartbeatRequest) -> bool:
    """A broker without any directory cannot serve; it stays fenced until another incarnation registers."""
    return bool(broker.log_dirs) and set(broker.log_dirs) <= set(request.offline_log_dirs)


def _next_state(
    image: MetadataImage, sessions: BrokerSessions, broker: BrokerRegistration, request: pb.BrokerHeartbeatRequest
) -> _Next:
    if broker.fenced:
        return _next_of_fenced(broker, request)
    if _has_lost_all(broker, request):
        return _Next.SHUT_DOWN if request.want_shut_down else _Next.FENCED
    if broker.in_controlled_shutdown:
        return _next_of_shutting_down(image, sessions, broker)
    if request.want_fence:
        return _Next.SHUT_DOWN if request.want_shut_down else _Next.FENCED
    if request.want_shut_down:
        return _Next.SHUTTING_DOWN if leads_any(image, broker.broker_id) else _Next.SHUT_DOWN
    return _Next.UNFENCED


def _next_of_fenced(broker: BrokerRegistration, request: pb.BrokerHeartbeatRequest) -> _Next:
    if request.want_shut_down:
        return _Next.SHUT_DOWN
    caught_up = request.current_metadata_offset >= broker.broker_epoch
    may_serve = caught_up and not _has_lost_all(broker, request)
    if may_serve and not request.want_fence and not broker.in_controlled_shutdown:
        return _Next.UNFENCED
    return _Next.FENCED


def _next_of_shutting_down(image: MetadataImage, sessions: BrokerSessions, broker: BrokerRegistration) -> _Next:
    offset = sessions.begin_shutdown(broker.broker_id, image.offset)
    active = (b for b in image.brokers.values() if b.is_active)
    # The others must have seen that it leads no more: else they would still fetch from it.
    if leads_any(image, broker.broker_id) or not sessions.have_reached(active, offset):
        return _Next.SHUTTING_DOWN
    return _Next.SHUT_DOWN


def _records_towards(image: MetadataImage, broker: BrokerRegistration, following: _Next) -> list[MetadataRecord]:
    gone = frozenset({broker.broker_id})
    if following is _Next.UNFENCED and broker.fenced:
        unfence = BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=False)
        return [unfence, *changes_with(image, broker.broker_id)]
    if following is _Next.SHUTTING_DOWN and not broker.in_controlled_shutdown:
        change = BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True)
        return [change, *changes_without(image, gone)]
    if following in (_Next.FENCED, _Next.SHUT_DOWN) and not broker.fenced:
        return [*changes_without(image, gone), _fence(broker)]
    return []


def _fence(broker: BrokerRegistration) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=True)
