"""Sessions of brokers: soft state that the leading controller alone keeps and never writes.

A broker has a session while less than ``session_timeout_ms`` passed since its registration or its last heartbeat. A new
leader starts a session for every unfenced broker, so that each has one full timeout to find the new leader.

A refused connection to a broker's address ends its session as well, once per process: the controller cannot judge the
network path to a broker that returns after such a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import UNKNOWN_OFFSET, BrokerEpoch, BrokerId
from tidelog_foundation.requests.quorum import BrokerProgress
from tidelog_foundation.requests.request import Request
from tidelog_quorum.metadata.registrations import BrokerRegistration


@dataclass(frozen=True, slots=True)
class BrokerRefused(Request[bool]):
    """A broken connection to a broker whose address refused all new connections from ``since_ms`` on.

    The response tells whether no further check is needed.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    since_ms: int


@dataclass(slots=True)
class _Session:
    broker_epoch: BrokerEpoch
    last_contact_ms: int
    registered_offset: int
    metadata_offset: int = UNKNOWN_OFFSET
    shutdown_offset: int | None = None


class BrokerSessions:
    """The sessions of all brokers; the controller's handlers call every method with the time of the request."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.timeout_ms = session_timeout_ms
        self._sessions: dict[BrokerId, _Session] = {}
        self._first_offset = 0
        self._refused: dict[BrokerId, bytes] = {}

    def restart(self, brokers: Iterable[BrokerRegistration], now_ms: int, offset: int = 0) -> None:
        """Drop all sessions and start one for each unfenced broker.

        ``offset`` is the end of the entries that others wrote: all registrations so far are at or below it.
        """
        self._first_offset = offset
        self._refused.clear()
        self._sessions = {b.broker_id: _Session(b.broker_epoch, now_ms, offset) for b in brokers if not b.fenced}

    def prolong(self, now_ms: int) -> None:
        """Restart every session, because this process did not listen for a while."""
        for session in self._sessions.values():
            session.last_contact_ms = now_ms

    def begin(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> None:
        """Start the session of a broker that has just registered."""
        self._sessions[broker_id] = _Session(broker_epoch, now_ms, max(broker_epoch, self._first_offset))

    def note_registered(self, broker_id: BrokerId, offset: int) -> None:
        """Record the entry of a registration: the broker's epoch, or later (``Controller.append``)."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.registered_offset = offset

    def touch(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, metadata_offset: int, now_ms: int) -> None:
        """Record a heartbeat and the metadata offset that the broker has applied."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            offset = max(broker_epoch, self._first_offset)
            session = self._sessions[broker_id] = _Session(broker_epoch, now_ms, offset)
        session.last_contact_ms = now_ms
        session.metadata_offset = metadata_offset

    def end(self, broker_id: BrokerId) -> None:
        """Remove a broker's session: it may stop, or was fenced."""
        self._sessions.pop(broker_id, None)

    def end_refused(self, broker: BrokerRegistration, since_ms: int) -> bool:
        """End the session of a broker whose address refuses connections; return whether it has none now.

        The session continues if the broker was heard from since, or if its process has returned after a refusal before.
        """
        session = self._sessions.get(broker.broker_id)
        is_heard = session is not None and session.last_contact_ms >= since_ms
        if is_heard or self._refused.get(broker.broker_id) == broker.incarnation_id:
            return False
        self._refused[broker.broker_id] = broker.incarnation_id
        self.end(broker.broker_id)
        return True

    def is_alive(self, broker: BrokerRegistration, now_ms: int) -> bool:
        """Return whether this very registration has a session."""
        session = self._sessions.get(broker.broker_id)
        if session is None or session.broker_epoch != broker.broker_epoch:
            return False
        return now_ms - session.last_contact_ms < self.timeout_ms

    def is_caught_up(self, broker_id: BrokerId) -> bool:
        """Return whether a broker, after a heartbeat, has applied the metadata with its registration."""
        session = self._sessions.get(broker_id)
        return session is not None and session.metadata_offset >= session.registered_offset

    def progress(self, now_ms: int) -> list[BrokerProgress]:
        """Return the progress of each broker that has sent a heartbeat, ordered by id."""
        return [
            BrokerProgress(broker_id, session.metadata_offset, now_ms - session.last_contact_ms)
            for broker_id, session in sorted(self._sessions.items())
            if session.metadata_offset != UNKNOWN_OFFSET
        ]

    def begin_shutdown(self, broker_id: BrokerId, offset: int) -> int:
        """Return the offset that the others must reach before the broker may stop; ``offset`` if none is set yet."""
        session = self._sessions[broker_id]
        if session.shutdown_offset is None:
            session.shutdown_offset = offset
        return session.shutdown_offset

    def have_reached(self, brokers: Iterable[BrokerRegistration], offset: int) -> bool:
        """Return whether every given broker has reported the metadata up to ``offset`` as applied."""
        sessions = (self._sessions.get(b.broker_id) for b in brokers)
        return all(s is None or s.metadata_offset >= offset for s in sessions)
