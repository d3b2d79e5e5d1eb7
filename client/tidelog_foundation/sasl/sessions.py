"""The sessions of a gRPC listener's authenticated clients, without I/O, clock or randomness.

Kafka authenticates connections. gRPC hides connections from services, so a login begins a session, and each call
names it. A session ends when it expires (KIP-368), when no call has named it for a time, or when its principal or host
begins more sessions than the limit: the one that has been unused for longest makes room. Tokens are stored as digests,
so that neither a memory dump nor the time of a lookup reveals one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import Final

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.security.principal import Principal

_REFRESH_MS: Final = 1_000
"""The resolution of the time of the last use."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The limits of a listener's sessions. An idle session without a stream ends after ``max_idle_ms``."""

    max_sessions: int = 20_000
    max_per_owner: int = 2_000
    """The limit for one principal, and for one host."""
    max_idle_ms: int = 600_000


@dataclass(slots=True, eq=False)
class Session:
    """An authenticated client. ``expires_at_ms`` is the time of its end, None without one."""

    digest: bytes = field(repr=False)
    principal: Principal
    is_token: bool
    """True if a delegation token was the credential."""
    host: str
    expires_at_ms: float | None
    used_at_ms: float
    streams: int = 0
    """The open streams, which keep an idle session alive."""
    has_ended: bool = False

    def is_valid(self, now_ms: float) -> bool:
        """Return whether calls may use the session."""
        return not self.has_ended and (self.expires_at_ms is None or now_ms < self.expires_at_ms)


class SessionTable:
    """The sessions of one listener by the digests of their tokens, in the order of their last use."""

    def __init__(self, limits: SessionLimits) -> None:
        self._limits = limits
        self._sessions: dict[bytes, Session] = {}
        self._owned: dict[Hashable, dict[Session, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        digest: bytes,
        principal: Principal,
        host: str,
        now_ms: float,
        *,
        expires_at_ms: float | None = None,
        is_token: bool = False,
    ) -> Session:
        """Add a session with the digest of its token. Sessions beyond the limits end."""
        self._end_idle(now_ms)
        session = Session(digest, principal, is_token, host, expires_at_ms, now_ms)
        for owner in _owners(session):
            owned = self._owned.setdefault(owner, {})
            if len(owned) >= self._limits.max_per_owner:
                self._end(next(iter(owned)))
        if len(self._sessions) >= self._limits.max_sessions:
            busiest = max(self._owned, key=lambda owner: len(self._owned[owner]))
            self._end(next(iter(self._owned[busiest])))
        self._sessions[digest] = session
        for owner in _owners(session):
            self._owned.setdefault(owner, {})[session] = None
        return session

    def find(self, digest: bytes, now_ms: float) -> Session | None:
        """Return the valid session with this digest, and record its use."""
        session = self._sessions.get(digest)
        if session is None:
            return None
        if not session.is_valid(now_ms):
            self._end(session)
            return None
        if now_ms - session.used_at_ms >= _REFRESH_MS:
            self._touch(session, now_ms)
        return session

    def prolong(self, session: Session, expires_at_ms: float | None, now_ms: float) -> None:
        """Set the end of a valid session after a new login of its principal."""
        session.expires_at_ms = expires_at_ms
        self._touch(session, now_ms)

    def check_invariants(self) -> None:
        """Raise AssertionError if the table contradicts itself or its limits."""
        assert len(self._sessions) <= self._limits.max_sessions
        owned = {session for sessions in self._owned.values() for session in sessions}
        assert owned == set(self._sessions.values())
        for owner, sessions in self._owned.items():
            assert 0 < len(sessions) <= self._limits.max_per_owner
            assert all(owner in _owners(session) and not session.has_ended for session in sessions)

    def _end_idle(self, now_ms: float) -> None:
        """End the sessions that were not used for long; those with streams count as used now."""
        limit_ms = now_ms - self._limits.max_idle_ms
        while self._sessions:
            session = next(iter(self._sessions.values()))
            if session.used_at_ms > limit_ms:
                return
            if session.streams and session.is_valid(now_ms):
                self._touch(session, now_ms)
            else:
                self._end(session)

    def _touch(self, session: Session, now_ms: float) -> None:
        session.used_at_ms = now_ms
        self._sessions[session.digest] = self._sessions.pop(session.digest)
        for owner in _owners(session):
            owned = self._owned[owner]
            owned[session] = owned.pop(session)

    def _end(self, session: Session) -> None:
        session.has_ended = True
        del self._sessions[session.digest]
        for owner in _owners(session):
            owned = self._owned[owner]
            del owned[session]
            if not owned:
                del self._owned[owner]


def _owners(session: Session) -> tuple[Hashable, Hashable]:
    return session.principal, session.host
