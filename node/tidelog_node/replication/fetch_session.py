"""Fetch sessions of a node: the partitions of each reader, and the subset that a fetch must read (KIP-227).

The rules follow Kafka (FetchSession, FetchManager, FetchSessionCache) unless noted:

- A full request creates a session. An incremental request changes one: it adds or updates the partitions that it names
  and removes those that it forgets. Each request carries the epoch that the session expects, one more than the last;
  2147483647 is followed by 1. A full request ends the session that it names. A session without partitions ends.
- Each request fetches all partitions of its session. Kafka reads them all; Tidelog reads a partition only while it is
  ``changed``: a request named it, it had something that its reader has not taken yet, it failed, or its log or state
  changed since. For all others a fetch has the last fetch's result: a follower acknowledges the same offset, the end of
  the log. The session's ``lease`` holds the time of that acknowledgement.
- A response to an incremental request contains the partitions that the request named, and those with records, an error,
  a diverging epoch, a preferred read replica, or a changed high watermark or log start.
- The cache has ``slots`` for sessions. When all are taken, a new session replaces one that was unused for two minutes,
  or else the least valuable one if that is worth less. Followers' sessions are worth more than consumers', then larger
  ones more than smaller ones. A session younger than two minutes is not replaced, except that a follower's session may
  replace a consumer's. Without a slot the reader gets no session.
- Sessions also have bounds that Kafka's do not: ``MAX_SESSION_PARTITIONS`` each, and ``MAX_CACHED_PARTITIONS``
  together. A session that an incremental request takes above a bound ends. A new session replaces larger ones by the
  rules above, and a follower's session replaces the largest consumers' sessions.
- A follower that registers anew ends the sessions of its earlier epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import field
from typing import NamedTuple, TypeAlias

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_node.replication.progress import NEVER_MS, FetchLease

NO_SESSION = 0
"""The session id of a request without a session."""
FULL_EPOCH = 0
"""The epoch of a request that names all partitions and asks for a session."""
FINAL_EPOCH = -1
"""The epoch of a request that names all partitions and asks for no session."""
MAX_EPOCH = 2**31 - 1
EVICTION_MS = 120_000
"""The idle time after which a session is stale, and the age below which a new one is spared."""
MAX_SESSION_PARTITIONS = 100_000
"""The most partitions that one request can name. After a session ends here, its reader cannot start a larger one."""
MAX_CACHED_PARTITIONS = 500_000
"""The bound on all sessions together; a partition takes some hundreds of bytes."""

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""Errors that end a session: the reader's next request names all partitions."""

TopicRef: TypeAlias = str | bytes
"""A topic's name, or its id in a session that uses topic ids."""
PartitionKey: TypeAlias = tuple[TopicRef, int]


def next_epoch(epoch: int) -> int:
    """Return the session epoch that follows ``epoch``."""
    return 1 if epoch == MAX_EPOCH else epoch + 1


class FetchSpec(NamedTuple):
    """The fields of a request's FetchPartition for one partition; None for an absent field."""

    topic_id: bytes
    fetch_offset: int
    max_bytes: int
    leader_epoch: LeaderEpoch | None = None
    last_fetched_epoch: LeaderEpoch | None = None
    log_start_offset: int = -1


@dataclass(slots=True)
class SessionPartition:
    """A partition of a session: its fetch spec, and the high watermark and log start that the reader last received.

    ``must_answer``: a request named the partition, and no response has contained it yet. ``name`` is the topic's name
    once it is resolved, for a request by topic id.
    """

    spec: FetchSpec
    told: tuple[int, int] | None = None
    must_answer: bool = True
    name: str | None = None

    def is_news(self, high_watermark: int, log_start_offset: int) -> bool:
        """Return True if these offsets differ from those that the reader last received."""
        return self.must_answer or self.told != (high_watermark, log_start_offset)

    def tell(self, high_watermark: int, log_start_offset: int) -> None:
        """Record the offsets that a response contains."""
        self.told = (high_watermark, log_start_offset)
        self.must_answer = False

    def tell_error(self) -> None:
        """Record that a response contains an error, so that the next result counts as changed."""
        self.told = None
        self.must_answer = False


@dataclass(slots=True, eq=False)
class FetchSession:
    """The partitions of one reader. ``epoch`` is the expected epoch of its next request.

    ``changed`` holds the partitions to read, longest waiting first. ``replica`` is a follower's identity, None for a
    consumer. ``cached_size`` is the number of partitions at the last use. ``uses_topic_ids`` holds for all requests of
    the session. ``owner`` is the reader's principal; others cannot continue or end the session.
    """

    replica: tuple[BrokerId, BrokerEpoch] | None
    created_ms: int
    id: int = NO_SESSION
    epoch: int = 1
    last_used_ms: int = NEVER_MS
    cached_size: int = 0
    uses_topic_ids: bool | None = None
    partitions: dict[PartitionKey, SessionPartition] = field(default_factory=dict)
    changed: dict[PartitionKey, None] = field(default_factory=dict)
    lease: FetchLease = field(default_factory=lambda: FetchLease(NEVER_MS))
    owner: str = ""

    @property
    def is_privileged(self) -> bool:
        """True if the session belongs to a follower."""
        return self.replica is not None

    def add_in_steps(self, named: Mapping[PartitionKey, FetchSpec]) -> Generator[None, None, None]:
        """Add the partitions that a request names, one per step."""
        for key, spec in named.items():
            self.ask_for(key, spec)
            yield

    def ask_for(self, key: PartitionKey, spec: FetchSpec) -> None:
        """Add a partition that a request names, or change its fields."""
        known = self.partitions.get(key)
        if known is None:
            self.partitions[key] = SessionPartition(spec)
        else:
            known.spec, known.must_answer = spec, True
        self.changed.pop(key, None)
        self.changed[key] = None

    def remove(self, key: PartitionKey) -> bool:
        """Remove a partition. Return True if the session had it."""
        self.changed.pop(key, None)
        return self.partitions.pop(key, None) is not None

    def mark(self, key: PartitionKey) -> None:
        """Mark a partition as changed."""
        if key in self.partitions:
            self.changed[key] = None

    def mark_all(self) -> None:
        """Mark every partition as changed."""
        self.changed.update(dict.fromkeys(self.partitions))

    def take_changed(self) -> list[PartitionKey]:
        """Return the changed partitions and clear their marks."""
        taken = list(self.changed)
        self.changed.clear()
        return taken

    def check_invariants(self) -> None:
        """Assert what must hold after every step."""
        assert self.changed.keys() <= self.partitions.keys()
        assert 1 <= self.epoch <= MAX_EPOCH


class FetchSessionCache:
    """The sessions of a node by id. ``draw_id`` returns unguessable numbers from 1 to 2147483647."""

    def __init__(self, slots: int, draw_id: Callable[[], int], max_partitions: int = MAX_CACHED_PARTITIONS) -> None:
        self._slots = slots
        self._max = max_partitions
        self._draw_id = draw_id
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(list(self._sessions.values()))

    def resume(
        self,
        session_id: int,
        epoch: int,
        replica: tuple[BrokerId, BrokerEpoch] | None,
        now_ms: int,
        uses_topic_ids: bool | None = None,
        *,
        owner: str = "",
    ) -> FetchSession:
        """Return the session of an incremental request and advance its epoch.

        Raises:
            TidelogError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR; the
                cache is unchanged.
        """
        session = self._sessions.get(session_id)
        if session is None or session.replica != replica or session.owner != owner:
            raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            text = f"fetch session {session_id} expects epoch {session.epoch}, the request has {epoch}"
            raise error_for(ErrorCode.INVALID_FETCH_SESSION_EPOCH, text)
        if session.uses_topic_ids is not uses_topic_ids:
            text = f"fetch session {session_id} names topics by id and the request by name, or the reverse"
            raise error_for(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, text)
        session.epoch = next_epoch(epoch)
        self.touch(session, now_ms)
        return session

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Record the time and the size of a session at its use."""
        session.last_used_ms = now_ms
        session.cached_size = len(session.partitions)

    def admit(self, session: FetchSession, now_ms: int) -> tuple[bool, list[FetchSession]]:
        """Give a new session a slot and an id. Return whether it got one, and the sessions that it evicted."""
        gone = [s for s in self if _is_of_earlier_epoch(s, session)]
        for old in gone:
            del self._sessions[old.id]
        if len(session.partitions) > min(MAX_SESSION_PARTITIONS, self._max):
            return False, gone
        while (is_full := len(self._sessions) >= self._slots) or self._partitions + len(session.partitions) > self._max:
            victim = self._victim(session, now_ms) if is_full else self._largest(session, now_ms)
            if victim is None:
                return False, gone
            del self._sessions[victim.id]
            gone.append(victim)
        session.id = self._new_id()
        self._sessions[session.id] = session
        self.touch(session, now_ms)
        return True, gone

    def check_size(self, session: FetchSession) -> None:
        """Raise if a session, or all sessions together, exceed their bounds. The caller then removes the session.

        Raises:
            TidelogError: FETCH_SESSION_ID_NOT_FOUND: the reader's next request names all partitions.
        """
        size = len(session.partitions)
        if size > MAX_SESSION_PARTITIONS or self._partitions > self._max:
            text = f"fetch session {session.id} is closed: it has {size} partitions (the limit is"
            text += f" {MAX_SESSION_PARTITIONS}), all sessions together {self._partitions} (the limit is {self._max})"
            raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, text)

    def remove(self, session_id: int) -> FetchSession | None:
        """End a session and return it, or None if there is none."""
        return self._sessions.pop(session_id, None)

    def check_invariants(self) -> None:
        """Assert what must hold after every step."""
        assert len(self._sessions) <= self._slots
        assert self._partitions <= self._max
        for session_id, session in self._sessions.items():
            assert session_id == session.id != NO_SESSION
            session.check_invariants()

    @property
    def _partitions(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def _largest(self, newcomer: FetchSession, now_ms: int) -> FetchSession | None:
        """Return the largest session that a newcomer may evict, if it is larger or the newcomer is worth more."""
        stale = [s for s in self._sessions.values() if now_ms - s.last_used_ms > EVICTION_MS]
        evictable = stale or [s for s in self._sessions.values() if _is_evictable(s, newcomer)]
        largest = max((s for s in evictable if s in stale or not s.is_privileged), key=_value, default=None)
        if largest is None or largest in stale or newcomer.is_privileged:
            return largest
        return largest if len(largest.partitions) > len(newcomer.partitions) else None

    def _victim(self, newcomer: FetchSession, now_ms: int) -> FetchSession | None:
        if not self._sessions:
            return None
        oldest = min(self._sessions.values(), key=lambda s: (s.last_used_ms, s.id))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            return oldest
        least = min((s for s in self._sessions.values() if _is_evictable(s, newcomer)), key=_value, default=None)
        worth = (newcomer.is_privileged, len(newcomer.partitions), 0)
        return least if least is not None and worth >= _value(least) else None

    def _new_id(self) -> int:
        while (drawn := self._draw_id()) in self._sessions or drawn == NO_SESSION:
            pass
        return drawn


def _value(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_privileged, session.cached_size, session.id


def _is_evictable(session: FetchSession, newcomer: FetchSession) -> bool:
    is_settled = session.last_used_ms - session.created_ms > EVICTION_MS
    return is_settled or (newcomer.is_privileged and not session.is_privileged)


def _is_of_earlier_epoch(session: FetchSession, newcomer: FetchSession) -> bool:
    if session.replica is None or newcomer.replica is None:
        return False
    return session.replica[0] == newcomer.replica[0] and session.replica[1] < newcomer.replica[1]
