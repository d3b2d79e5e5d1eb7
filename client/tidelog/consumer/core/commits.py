"""The decisions about offset commits, without I/O or a clock.

Rules:

1. One commit is in flight at a time; the others wait in order, so that the latest one wins.
2. Stored, uncommitted offsets are committed every ``auto_commit_interval_ms``, unless an automatic commit waits
   already.
3. A commit belongs to the generation of its time. If that generation is over (ILLEGAL_GENERATION, STALE_MEMBER_EPOCH),
   the partitions that the consumer has kept throughout are committed in the current generation, which may become known
   a moment after the coordinator's answer. The others may belong to another member, whose offsets must not move back.
4. Transient errors are retried for ``timeout_ms``, each time only for uncommitted partitions. All other errors are
   reported, and the next automatic commit retries the stored offsets.
5. A subscribed consumer commits only as a member. Without membership it commits nothing: the coordinator would accept
   the commit in an empty group, over offsets that another member has committed. Losing the membership clears all stored
   offsets.
6. Unassigning a partition clears its stored offset, which would belong to another assignment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog_foundation.errors import OUTAGES, ErrorCode, TidelogError, error_for

Key = tuple[str, int]
_PASSED = frozenset((ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH))
_GENERATION_GRACE_MS = 1_000
"""The time within which a member learns its next generation; after it, the member is out of the group."""
_FINAL = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))
"""Retriable elsewhere, but a commit for a missing partition should fail at once."""


class OffsetAndMetadata(NamedTuple):
    """A partition's committed position: the offset after the last processed record."""

    offset: int
    leader_epoch: int = -1
    """The leader epoch of the record before the offset; -1 if unknown."""
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """The identity under which offsets are committed. Generation -1 and an empty id mean no member."""

    generation_id: int = -1
    member_id: str = ""


NOBODY = Member()
_NO_MEMBER = "the consumer is not a member of its group: another member may own what it has read"


@dataclass(frozen=True, slots=True)
class SendCommit:
    """Send one OffsetCommit. :meth:`Commits.answered` or :meth:`Commits.failed` takes the outcome."""

    commit_id: int
    member: Member
    offsets: Mapping[Key, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class CommitDone:
    """A finished commit. Each partition has its error, or None if it is committed."""

    commit_id: int
    offsets: Mapping[Key, OffsetAndMetadata]
    errors: Mapping[Key, TidelogError | None]


CommitCommand = SendCommit | CommitDone


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSettings:
    """The settings of commits. Without ``auto_commit_interval_ms``, only explicit commits happen."""

    auto_commit_interval_ms: int | None
    timeout_ms: float


@dataclass(slots=True, eq=False)
class _Commit:
    """A commit. ``left`` and ``errors`` partition ``offsets``; ``held`` are partitions that were never given up."""

    commit_id: int
    offsets: Mapping[Key, OffsetAndMetadata]
    member: Member
    deadline_ms: float
    left: dict[Key, OffsetAndMetadata]
    held: set[Key]
    is_automatic: bool = False
    is_sent: bool = False
    attempts: int = 0
    not_before_ms: float = 0.0
    passed_ms: float | None = None
    """The time of the coordinator's first answer that the generation is over."""
    errors: dict[Key, TidelogError | None] = field(default_factory=dict)


class Commits:
    """The commits of one consumer. Not thread-safe: the shell holds a lock around each call."""

    def __init__(self, settings: CommitSettings, backoff_ms: Callable[[int], float]) -> None:
        self._settings = settings
        self._backoff_ms = backoff_ms
        self._stored: dict[Key, OffsetAndMetadata] = {}
        self._committed: dict[Key, int] = {}
        self._queue: deque[_Commit] = deque()
        self.member = Member()
        """The member in whose name commits are made now."""
        self.needs_member = False
        """True if the consumer subscribes."""
        self._last_id = 0
        self._auto_due_ms: float | None = None

    @property
    def is_idle(self) -> bool:
        """True if no commit waits or is in flight."""
        return not self._queue

    def member_changed(self, member: Member) -> None:
        """Set the member for subsequent commits."""
        if member == NOBODY != self.member:
            self._stored.clear()
            self._committed.clear()
            for commit in self._queue:
                commit.held.clear()
        self.member = member

    def store(self, key: Key, what: OffsetAndMetadata) -> None:
        """Store an offset for the next automatic commit, replacing the previous one."""
        self._stored[key] = what

    def offsets_of(self, key: Key) -> tuple[int | None, int | None]:
        """Return a partition's stored offset and the one that this consumer has committed, or None for either."""
        stored = self._stored.get(key)
        return None if stored is None else stored.offset, self._committed.get(key)

    def unassigned(self, keys: Iterable[Key]) -> None:
        """Release partitions (rules 3 and 6)."""
        for key in keys:
            self._stored.pop(key, None)
            self._committed.pop(key, None)
            for commit in self._queue:
                commit.held.discard(key)

    def uncommitted(self, keys: Iterable[Key] | None = None) -> dict[Key, OffsetAndMetadata]:
        """Return the stored, uncommitted offsets of these partitions (None: of all)."""
        wanted = self._stored if keys is None else [key for key in keys if key in self._stored]
        return {key: self._stored[key] for key in wanted if self._committed.get(key) != self._stored[key].offset}

    def commit(self, offsets: Mapping[Key, OffsetAndMetadata], now_ms: float) -> int:
        """Queue a commit after all earlier ones, and return its id for :class:`CommitDone`."""
        return self._enqueue(offsets, now_ms).commit_id

    def poll(self, now_ms: float) -> list[CommitCommand]:
        """Return the due commands: an automatic commit, a waiting commit, or the end of an expired one."""
        self._commit_stored(now_ms)
        done: list[CommitCommand] = []
        while self._queue:
            head = self._queue[0]
            if head.is_sent or head.not_before_ms > now_ms:
                break
            if not head.left:
                self._queue.popleft()
                done.append(CommitDone(head.commit_id, head.offsets, head.errors))
                continue
            if self._is_kept_out and head.member == NOBODY:
                for key in list(head.left):
                    self._settle(head, key, error_for(ErrorCode.UNKNOWN_MEMBER_ID, _NO_MEMBER))
                continue
            head.is_sent = True
            return [*done, SendCommit(head.commit_id, head.member, dict(head.left))]
        return done

    def next_timer_ms(self, now_ms: float) -> float | None:
        """Return the time of the next :meth:`poll`; None if only an event can change anything."""
        times = [] if self._auto_due_ms is None else [self._auto_due_ms]
        if self._queue and not self._queue[0].is_sent:
            times.append(self._queue[0].not_before_ms)
        return max(min(times), now_ms) if times else None

    def answered(self, commit_id: int, errors: Mapping[Key, TidelogError | None], now_ms: float) -> None:
        """Apply the coordinator's answer: each partition's error or None."""
        head = self._sent(commit_id)
        retried: list[TidelogError] = []
        for key in list(head.left):
            error = errors.get(key)
            if error is None:
                self._committed[key] = head.left[key].offset
                self._settle(head, key, None)
            elif self._may_pass(error, now_ms, head):
                retried.append(error)
            elif not self._has_next_generation(error, key, now_ms, head):
                self._settle(head, key, error)
        if head.left:
            head.member = head.member if retried or self.member == NOBODY else self.member
            self._back_off(head, now_ms)

    def failed(self, commit_id: int, error: TidelogError, now_ms: float) -> None:
        """Handle a commit without an answer; the coordinator may have executed it."""
        head = self._sent(commit_id)
        if self._may_pass(error, now_ms, head):
            self._back_off(head, now_ms)
            return
        for key in list(head.left):
            self._settle(head, key, error)

    def check_invariants(self) -> None:
        """Assert the invariants of the fields."""
        for number, commit in enumerate(self._queue):
            assert not commit.left.keys() & commit.errors.keys()
            assert commit.left.keys() | commit.errors.keys() == commit.offsets.keys()
            assert number == 0 or not commit.is_sent
        assert [c.commit_id for c in self._queue] == sorted(c.commit_id for c in self._queue)

    @property
    def _is_kept_out(self) -> bool:
        return self.needs_member and self.member == NOBODY

    def _commit_stored(self, now_ms: float) -> None:
        interval_ms = self._settings.auto_commit_interval_ms
        if interval_ms is None:
            return
        if self._auto_due_ms is None:
            self._auto_due_ms = now_ms + interval_ms
        if self._auto_due_ms > now_ms:
            return
        self._auto_due_ms = now_ms + interval_ms
        is_to_wait = self._is_kept_out or any(c.is_automatic for c in self._queue)
        due = {} if is_to_wait else self.uncommitted()
        if due:
            self._enqueue(due, now_ms).is_automatic = True

    def _enqueue(self, offsets: Mapping[Key, OffsetAndMetadata], now_ms: float) -> _Commit:
        self._last_id += 1
        deadline_ms = now_ms + self._settings.timeout_ms
        commit = _Commit(self._last_id, offsets, self.member, deadline_ms, dict(offsets), set(offsets))
        self._queue.append(commit)
        return commit

    def _sent(self, commit_id: int) -> _Commit:
        head = self._queue[0]
        assert head.commit_id == commit_id
        assert head.is_sent
        head.is_sent = False
        return head

    def _settle(self, commit: _Commit, key: Key, error: TidelogError | None) -> None:
        del commit.left[key]
        commit.errors[key] = error

    def _back_off(self, commit: _Commit, now_ms: float) -> None:
        commit.attempts += 1
        commit.not_before_ms = now_ms + self._backoff_ms(commit.attempts)

    def _has_next_generation(self, error: TidelogError, key: Key, now_ms: float, commit: _Commit) -> bool:
        if error.code not in _PASSED or key not in commit.held:
            return False
        if commit.passed_ms is None:
            commit.passed_ms = now_ms
        return self.member not in (NOBODY, commit.member) or now_ms < commit.passed_ms + _GENERATION_GRACE_MS

    def _may_pass(self, error: TidelogError, now_ms: float, commit: _Commit) -> bool:
        is_final = error.code in _FINAL or now_ms >= commit.deadline_ms
        return not is_final and (error.code.retriable or error.code in OUTAGES)
