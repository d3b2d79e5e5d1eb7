"""Which brokers were heard of lately: the controller's soft state, kept by the leader alone and never written.

A broker has a session while less than ``session_timeout_ms`` passed since its registration or its last heartbeat. A new
leader begins with a session for every unfenced broker, so that nobody is fenced before it had one full timeout
to find the new leader.

That nobody listens at a broker's address any more ends its session as well, once per process: a broker that comes back
from it is reached by a way that the controller cannot judge.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidelog_foundation.ids import UNKNOWN_OFFSET, BrokerEpoch, BrokerId
from tidelog_quorum.metadata.registrations import BrokerRegistration


@dataclass(frozen=True, slots=True)
class BrokerProgress:
    """How far a broker has come, by its last heartbeat: the last metadata offset that it has applied."""

    broker_id: BrokerId
    metadata_offset: int
    last_contact_age_ms: int


@dataclass(frozen=True, slots=True)
class BrokerRefused:
    """A broker's connection broke, and its machine refused all connections to it from ``since_ms`` on."""

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
    """Created by a controller; every method is called by its handlers with the time of the request."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.timeout_ms = session_timeout_ms
        self._sessions: dict[BrokerId, _Session] = {}
        self._first_offset = 0
        self._refused: dict[BrokerId, bytes] = {}

    def restart(self, brokers: Iterable[BrokerRegistration], now_ms: int, offset: int = 0) -> None:
        """Forget everything and give each unfenced broker a session that begins now.

        ``offset`` is the end of what others wrote: all registrations so far are in entries up to there.
        """
        self._first_offset = offset
        self._refused.clear()
        self._sessions = {b.broker_id: _Session(b.broker_epoch, now_ms, offset) for b in brokers if not b.fenced}

    def prolong(self, now_ms: int) -> None:
        """Let every session begin now: this process did not listen for a while."""
        for session in self._sessions.values():
            session.last_contact_ms = now_ms

    def begin(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, now_ms: int) -> None:
        """Begin the session of a broker that has just registered."""
        self._sessions[broker_id] = _Session(broker_epoch, now_ms, max(broker_epoch, self._first_offset))

    def note_registered(self, broker_id: BrokerId, offset: int) -> None:
        """Note in which entry a registration was written: the broker's epoch, or later (``Controller.append``)."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.registered_offset = offset

    def touch(self, broker_id: BrokerId, broker_epoch: BrokerEpoch, metadata_offset: int, now_ms: int) -> None:
        """Note a heartbeat and how much of the metadata the broker has applied."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            offset = max(broker_epoch, self._first_offset)
            session = self._sessions[broker_id] = _Session(broker_epoch, now_ms, offset)
        session.last_contact_ms = now_ms
        session.metadata_offset = metadata_offset

    def end(self, broker_id: BrokerId) -> None:
        """Forget a broker: it may stop, or was fenced."""
        self._sessions.pop(broker_id, None)

    def end_refused(self, broker: BrokerRegistration, since_ms: int) -> bool:
        """End the session of a broker at whose address nobody listens; return whether it has none now.

        It goes on when the broker was heard of since, and when its process has come back from a refusal before.
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
        """Return whether a broker, of which there was a heartbeat, has applied the metadata with its registration."""
        session = self._sessions.get(broker_id)
        return session is not None and session.metadata_offset >= session.registered_offset

    def progress(self, now_ms: int) -> list[BrokerProgress]:
        """Return how far each broker has come of which there was a heartbeat, in the order of their ids."""
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
        """Return whether every given broker said that it has applied the metadata up to ``offset``."""
        sessions = (self._sessions.get(b.broker_id) for b in brokers)
        return all(s is None or s.metadata_offset >= offset for s in sessions)
