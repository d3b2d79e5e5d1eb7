"""The life of a registered broker: heartbeats, fencing, controlled shutdown (KIP-631, KIP-841).

::

    (none) --register--> fenced --caught up with its registration--> unfenced --want_shut_down--> shutting down
                           ^  <------- want_fence, session expired, refused ---'                        |
                           '<-------- leads nothing, the others know, or session expired, refused ------'

"Refused" means that the broker's address refuses connections: its process is gone, which ends the session early.

A broker that permits it shuts down only when no live replica is catching up that a partition needs in its place
(``stop_safety``). A fenced broker that was shutting down returns only by a new registration (``registration``). A log
directory that a heartbeat reports as failed is removed from the registration, and its replicas from their ISRs; it
returns only by a registration of another incarnation (KIP-858). A broker that leaves "unfenced" leaves every ISR that
has another member, or every ISR with ELR (``partition_change``), in the same entry; if they are too many,
``partition_queue`` has the rest.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerId
from tidelog_foundation.requests.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tidelog_quorum.controller.elections import leads_any, with_members, with_members_in, without_leader
from tidelog_quorum.controller.partition_queue import PartitionQueue
from tidelog_quorum.controller.result import Result
from tidelog_quorum.controller.sessions import BrokerRefused, BrokerSessions
from tidelog_quorum.controller.state import ControllerState
from tidelog_quorum.controller.stop_safety import waits_for_replicas
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import BrokerRegistrationChangeRecord, MetadataRecord
from tidelog_quorum.metadata.registrations import BrokerRegistration


class _Next(enum.Enum):
    """The state of a broker after a heartbeat."""

    FENCED = enum.auto()
    UNFENCED = enum.auto()
    SHUTTING_DOWN = enum.auto()
    SHUT_DOWN = enum.auto()


def heartbeat(state: ControllerState, request: BrokerHeartbeatRequest, now_ms: int) -> Result[BrokerHeartbeatResponse]:
    """Extend a broker's session, record failed directories, and change its state as it requests.

    Raises:
        TidelogError: STALE_BROKER_EPOCH, the broker is not registered with that epoch.
    """
    image, sessions = state.latest, state.sessions
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    sessions.touch(broker.broker_id, broker.broker_epoch, request.current_metadata_offset, now_ms)
    is_caught_up = sessions.is_caught_up(broker.broker_id)
    failures, after = _without_failed_directories(image, state.queue, broker, request)
    broker = after.brokers[broker.broker_id]
    following = _next_state(after, sessions, broker, request, state.own)
    records = [*failures, *_records_towards(after, state.queue, broker, following)]
    if following is _Next.SHUT_DOWN:
        sessions.end(broker.broker_id)
    response = BrokerHeartbeatResponse(
        is_caught_up=is_caught_up,
        is_fenced=following in (_Next.FENCED, _Next.SHUT_DOWN),
        should_shut_down=following is _Next.SHUT_DOWN,
        session_timeout_ms=sessions.timeout_ms,
        metadata_offset=image.offset,
    )
    return Result(records, response)


def expire_sessions(state: ControllerState, now_ms: int) -> Result[frozenset[BrokerId]]:
    """Fence the unfenced brokers whose session has expired; the response has their ids."""
    image, sessions = state.latest, state.sessions
    stale = [b for b in image.brokers.values() if not b.fenced and not sessions.is_alive(b, now_ms)]
    gone = frozenset(b.broker_id for b in stale)
    if not gone:
        return Result([], gone)
    for broker_id in gone:
        sessions.end(broker_id)
    return Result(_all_fenced(image, state.queue, stale), gone)


def fence_refused(state: ControllerState, request: BrokerRefused, now_ms: int) -> Result[bool]:
    """Fence a broker whose address refuses connections; the response tells whether no further check is needed.

    It is also True if the broker is fenced already or another process has registered. It is False if the broker was
    heard from since, or has returned after a refusal: such a broker keeps its session and is fenced when that expires.
    """
    image = state.latest
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.broker_epoch != request.broker_epoch or broker.fenced:
        return Result([], True)
    if not state.sessions.end_refused(broker, request.since_ms):
        return Result([], False)
    return Result(_all_fenced(image, state.queue, [broker]), True)


def check_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """Return the registration of a broker that names its current epoch.

    Raises:
        TidelogError: STALE_BROKER_EPOCH, the broker is not registered with that epoch.
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


def _without_failed_directories(
    image: MetadataImage, queue: PartitionQueue, broker: BrokerRegistration, request: BrokerHeartbeatRequest
) -> tuple[list[MetadataRecord], MetadataImage]:
    """Return the records that take newly failed directories out of use, and the resulting image."""
    failed = frozenset(broker.log_dirs).intersection(request.offline_log_dirs)
    if not failed or _has_lost_all(broker, request):
        return [], image
    left = tuple(d for d in broker.log_dirs if d not in failed)
    brokers = {**image.brokers, broker.broker_id: dataclasses.replace(broker, log_dirs=left)}
    change = BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, log_dirs=left)
    records = [change, *queue.changes(image, brokers, with_members_in(image, broker.broker_id, failed))]
    return records, image.apply(image.offset + 1, image.epoch, records)


def _has_lost_all(broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> bool:
    """Return whether a broker has no directory left; it stays fenced until another incarnation registers."""
    return bool(broker.log_dirs) and set(broker.log_dirs) <= set(request.offline_log_dirs)


def _next_state(
    image: MetadataImage,
    sessions: BrokerSessions,
    broker: BrokerRegistration,
    request: BrokerHeartbeatRequest,
    own: TopicConfig,
) -> _Next:
    if broker.fenced:
        return _next_of_fenced(sessions, broker, request)
    if _has_lost_all(broker, request):
        return _Next.SHUT_DOWN if request.want_shut_down else _Next.FENCED
    if broker.in_controlled_shutdown:
        return _next_of_shutting_down(image, sessions, broker)
    if request.want_fence:
        return _Next.SHUT_DOWN if request.want_shut_down else _Next.FENCED
    if request.want_shut_down and request.shutdown_may_wait and waits_for_replicas(image, broker.broker_id, own):
        return _Next.UNFENCED
    if request.want_shut_down:
        return _Next.SHUTTING_DOWN if leads_any(image, broker.broker_id) else _Next.SHUT_DOWN
    return _Next.UNFENCED


def _next_of_fenced(sessions: BrokerSessions, broker: BrokerRegistration, request: BrokerHeartbeatRequest) -> _Next:
    if request.want_shut_down:
        return _Next.SHUT_DOWN
    may_serve = sessions.is_caught_up(broker.broker_id) and not _has_lost_all(broker, request)
    if may_serve and not request.want_fence and not broker.in_controlled_shutdown:
        return _Next.UNFENCED
    return _Next.FENCED


def _next_of_shutting_down(image: MetadataImage, sessions: BrokerSessions, broker: BrokerRegistration) -> _Next:
    if leads_any(image, broker.broker_id):
        return _Next.SHUTTING_DOWN
    offset = sessions.begin_shutdown(broker.broker_id, image.offset)
    active = (b for b in image.brokers.values() if b.is_active)
    # The others must have seen that it no longer leads; otherwise they would still fetch from it.
    return _Next.SHUT_DOWN if sessions.have_reached(active, offset) else _Next.SHUTTING_DOWN


def _records_towards(
    image: MetadataImage, queue: PartitionQueue, broker: BrokerRegistration, following: _Next
) -> list[MetadataRecord]:
    if following is _Next.UNFENCED and broker.fenced:
        change = BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=False)
        brokers = {**image.brokers, broker.broker_id: dataclasses.replace(broker, fenced=False)}
        return [change, *queue.changes(image, brokers, without_leader(image, broker.broker_id))]
    if following is _Next.SHUTTING_DOWN and not broker.in_controlled_shutdown:
        change = BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, in_controlled_shutdown=True)
        return [change, *_changes_as(dataclasses.replace(broker, in_controlled_shutdown=True), image, queue)]
    if following in (_Next.FENCED, _Next.SHUT_DOWN) and not broker.fenced:
        return [*_changes_as(dataclasses.replace(broker, fenced=True), image, queue), _fence(broker)]
    return []


def _changes_as(broker: BrokerRegistration, image: MetadataImage, queue: PartitionQueue) -> list[MetadataRecord]:
    """Return the partition changes for a broker's future registration."""
    brokers = {**image.brokers, broker.broker_id: broker}
    return queue.changes(image, brokers, with_members(image, frozenset({broker.broker_id})))


def _all_fenced(
    image: MetadataImage, queue: PartitionQueue, gone: Sequence[BrokerRegistration]
) -> list[MetadataRecord]:
    brokers = {**image.brokers, **{b.broker_id: dataclasses.replace(b, fenced=True) for b in gone}}
    partitions = with_members(image, frozenset(b.broker_id for b in gone))
    return [*queue.changes(image, brokers, partitions), *(_fence(b) for b in gone)]


def _fence(broker: BrokerRegistration) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=True)
