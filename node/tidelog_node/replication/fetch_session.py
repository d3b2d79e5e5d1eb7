"""Fetch sessions of a node: what it remembers of each reader's partitions, and which of them it must look at (KIP-227).

The rules, Kafka's where it has them (FetchSession, FetchManager, FetchSessionCache):

- A full request makes a session, an incremental one changes it: what it names is added or asked for otherwise, what it
  forgets goes. Each has the epoch that the session expects, one more than the last; after 2147483647 comes 1. A full
  request ends the session that it names. A session without partitions ends.
- All partitions of a session are fetched with each request. Kafka reads them all; here a partition is looked at only
  while it is ``changed``: it was named, it had something that its reader has not taken yet, it failed, or its log or
  state was changed since. Of all others a fetch finds what the last one found: for a follower an acknowledgement of
  the same offset, which is the log's end. The session's ``lease`` has the time of that.
- A response to an incremental request has the partitions with records, an error, a diverging epoch, a preferred read
  replica, or another high watermark or log start than was told last, and those that the request named.
- There are ``slots`` for sessions. When all are taken a new one takes the place of one that was not used for two
  minutes; else of the least valuable, if that is not worth more: followers' before consumers', then by partitions.
  One younger than two minutes is spared, except a consumer's by a follower's. Without a place there is no session.
- Sessions have bounds beside the slots, which Kafka's do not: ``MAX_SESSION_PARTITIONS`` each, and
  ``MAX_CACHED_PARTITIONS`` together. A session that an incremental request takes above one of them ends. A new one
  takes the place of larger ones by the rules above, and a follower's that of the largest consumers'.
- A follower that registers anew ends the sessions of its earlier epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidelog_node.replication.progress import NEVER_MS, FetchLease

NO_SESSION = 0
"""The id where there is no session."""
FULL_EPOCH = 0
"""A request with it names all partitions and asks for a session."""
FINAL_EPOCH = -1
"""A request with it names all partitions and asks for no session."""
MAX_EPOCH = 2**31 - 1
EVICTION_MS = 120_000
"""How long a session must be unused to be stale, and how long a new one is spared."""
MAX_SESSION_PARTITIONS = 100_000
"""As many as one request can name: a reader whose session ends for having more cannot begin one that has."""
MAX_CACHED_PARTITIONS = 500_000
"""Of all sessions together; some hundreds of bytes each."""

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
"""What a request is answered with whose session cannot be gone on with: the next one names all partitions."""

TopicRef: TypeAlias = str | bytes
"""A topic's name; or its id, in a session that goes by ids."""
PartitionKey: TypeAlias = tuple[TopicRef, int]


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request after that of ``epoch``."""
    return 1 if epoch == MAX_EPOCH else epoch + 1


class FetchSpec(NamedTuple):
    """What a reader asks of one partition: the fields of a request's FetchPartition; None where one is absent."""

    topic_id: bytes
    fetch_offset: int
    max_bytes: int
    leader_epoch: LeaderEpoch | None = None
    last_fetched_epoch: LeaderEpoch | None = None
    log_start_offset: int = -1


@dataclass(slots=True)
class SessionPartition:
    """A partition of a session: what is asked of it, and the high watermark and log start that were told last.

    ``must_answer``: it was named and not answered yet. ``name`` is its topic's, when that was asked for by its id and
    has been found once.
    """

    spec: FetchSpec
    told: tuple[int, int] | None = None
    must_answer: bool = True
    name: str | None = None

    def is_news(self, high_watermark: int, log_start_offset: int) -> bool:
        """Return whether the reader has to hear of these."""
        return self.must_answer or self.told != (high_watermark, log_start_offset)

    def tell(self, high_watermark: int, log_start_offset: int) -> None:
        """Note that a response has these."""
        self.told = (high_watermark, log_start_offset)
        self.must_answer = False

    def tell_error(self) -> None:
        """Note that a response has an error: what follows it is news."""
        self.told = None
        self.must_answer = False


@dataclass(slots=True, eq=False)
class FetchSession:
    """The partitions of one reader. ``epoch`` is what its next request must have.

    ``changed`` are the partitions to look at, in order: those that waited longest first. ``replica`` is a follower's
    identity, None for a consumer. ``cached_size`` is the number of partitions when it was last used.
    ``uses_topic_ids`` is that of its requests, all of which have the same.
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

    @property
    def is_privileged(self) -> bool:
        """Whether it is a follower's."""
        return self.replica is not None

    def add_in_steps(self, named: Mapping[PartitionKey, FetchSpec]) -> Generator[None, None, None]:
        """Take in the partitions that a request names, one a step."""
        for key, spec in named.items():
            self._ask_for(key, spec)
            yield

    def remove(self, key: PartitionKey) -> bool:
        """Take out a partition; return whether it was there."""
        self.changed.pop(key, None)
        return self.partitions.pop(key, None) is not None

    def mark(self, key: PartitionKey) -> None:
        """Say that a partition has to be looked at."""
        if key in self.partitions:
            self.changed[key] = None

    def mark_all(self) -> None:
        """Say that every partition has to be looked at."""
        self.changed.update(dict.fromkeys(self.partitions))

    def take_changed(self) -> list[PartitionKey]:
        """Return the partitions to look at; they count as looked at."""
        taken = list(self.changed)
        self.changed.clear()
        return taken

    def check_invariants(self) -> None:
        """Assert what must hold after every step."""
        assert self.changed.keys() <= self.partitions.keys()
        assert 1 <= self.epoch <= MAX_EPOCH

    def _ask_for(self, key: PartitionKey, spec: FetchSpec) -> None:
        known = self.partitions.get(key)
        if known is None:
            self.partitions[key] = SessionPartition(spec)
        else:
            known.spec, known.must_answer = spec, True
        self.changed.pop(key, None)
        self.changed[key] = None


class FetchSessionCache:
    """The sessions of a node by id. ``draw_id`` returns numbers from 1 to 2147483647 that cannot be guessed."""

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
    ) -> FetchSession:
        """Return the session of an incremental request, which is its use and moves its epoch on.

        Raises:
            TidelogError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR; nothing
                is changed.
        """
        session = self._sessions.get(session_id)
        if session is None or session.replica != replica:
            raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            text = f"fetch session {session_id} expects epoch {session.epoch}, the request has {epoch}"
            raise error_for(ErrorCode.INVALID_FETCH_SESSION_EPOCH, text)
        if session.uses_topic_ids is not uses_topic_ids:
            text = f"fetch session {session_id} was begun with topics named otherwise, by id or by name"
            raise error_for(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, text)
        session.epoch = next_epoch(epoch)
        self.touch(session, now_ms)
        return session

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Note that a session is used, and how large it is."""
        session.last_used_ms = now_ms
        session.cached_size = len(session.partitions)

    def admit(self, session: FetchSession, now_ms: int) -> tuple[bool, list[FetchSession]]:
        """Give a new session a slot and an id; returns whether there was one, and the sessions that had to go."""
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
        """Raise when a session that has grown is too large, or all together are; it is to be removed then.

        Raises:
            TidelogError: FETCH_SESSION_ID_NOT_FOUND: its reader goes on with a request that names all partitions.
        """
        size = len(session.partitions)
        if size > MAX_SESSION_PARTITIONS or self._partitions > self._max:
            text = f"fetch session {session.id} has ended: it has {size} partitions of at most {MAX_SESSION_PARTITIONS}"
            text += f", all sessions together have {self._partitions} of at most {self._max}"
            raise error_for(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, text)

    def remove(self, session_id: int) -> FetchSession | None:
        """End a session; returns it, None when there is none."""
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
        """Return the largest session that may end for a newcomer, if it is larger or the newcomer is worth more."""
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
