"""Decides which offsets are committed when, without I/O or a clock.

Rules:

1. One commit is under way at a time, the others wait in their order: what was committed later is what counts.
2. What is stored and not yet committed is committed every ``auto_commit_interval_ms``, unless a commit waits already.
3. A commit is made for the generation of its time. When that has passed meanwhile (ILLEGAL_GENERATION,
   STALE_MEMBER_EPOCH), the partitions that the consumer has had all the time are committed for the generation of now,
   which may become known a moment after the coordinator's answer. The others may be another member's, whose offsets
   must not be moved back.
4. Errors that may pass are retried for ``timeout_ms``, each time only what was not committed. All others are told, and
   what is stored then is tried again with the next automatic commit.
5. What a consumer that subscribes is to commit is a member's. Where it is none, nothing is committed: to an empty group
   it would be committed, over what another member has committed meanwhile. With the loss of the membership all that is
   stored is forgotten.
6. What is stored of a partition is forgotten when it is unassigned: it would be another assignment's.
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
"""A member that is told that its generation has passed learns the next one within this time, or is out of the group."""
_FINAL = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))
"""Retriable for others, but whoever commits for what is not there should know it at once."""


class OffsetAndMetadata(NamedTuple):
    """What is committed of a partition: the offset after the last record that is done with."""

    offset: int
    leader_epoch: int = -1
    """Of the record before the offset; -1 when it is not known."""
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """On whose behalf offsets are committed; generation -1 and an empty id: nobody's in the group."""

    generation_id: int = -1
    member_id: str = ""


NOBODY = Member()
_NO_MEMBER = "the consumer is no member of its group: what it has read may be another member's"


@dataclass(frozen=True, slots=True)
class SendCommit:
    """Send one OffsetCommit; answered by :meth:`Commits.answered` or :meth:`Commits.failed`."""

    commit_id: int
    member: Member
    offsets: Mapping[Key, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class CommitDone:
    """A commit has ended: each partition's error, or None where it is committed."""

    commit_id: int
    offsets: Mapping[Key, OffsetAndMetadata]
    errors: Mapping[Key, TidelogError | None]


CommitCommand = SendCommit | CommitDone


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSettings:
    """``auto_commit_interval_ms`` None: only what is asked for is committed."""

    auto_commit_interval_ms: int | None
    timeout_ms: float


@dataclass(slots=True, eq=False)
class _Commit:
    """``left`` and ``errors`` have each partition of ``offsets`` once; ``held`` are those that were never given up."""

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
    """When the coordinator has first said that the generation has passed."""
    errors: dict[Key, TidelogError | None] = field(default_factory=dict)


class Commits:
    """One consumer's. The caller serialises: the shell holds one lock around each method."""

    def __init__(self, settings: CommitSettings, backoff_ms: Callable[[int], float]) -> None:
        self._settings = settings
        self._backoff_ms = backoff_ms
        self._stored: dict[Key, OffsetAndMetadata] = {}
        self._committed: dict[Key, int] = {}
        self._queue: deque[_Commit] = deque()
        self._member = Member()
        self.needs_member = False
        """Whether the consumer subscribes."""
        self._last_id = 0
        self._auto_due_ms: float | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no commit waits or is under way."""
        return not self._queue

    @property
    def member(self) -> Member:
        """Who commits now."""
        return self._member

    def member_changed(self, member: Member) -> None:
        """Commits that follow are made by this member."""
        if member == NOBODY != self._member:
            self._stored.clear()
            self._committed.clear()
            for commit in self._queue:
                commit.held.clear()
        self._member = member

    def store(self, key: Key, what: OffsetAndMetadata) -> None:
        """Have this committed with the next automatic commit, in place of what was stored before."""
        self._stored[key] = what

    def offsets_of(self, key: Key) -> tuple[int | None, int | None]:
        """Return a partition's stored offset and the one that this consumer has committed; None for none."""
        stored = self._stored.get(key)
        return None if stored is None else stored.offset, self._committed.get(key)

    def unassigned(self, keys: Iterable[Key]) -> None:
        """The consumer gives partitions up (rules 3 and 6)."""
        for key in keys:
            self._stored.pop(key, None)
            self._committed.pop(key, None)
            for commit in self._queue:
                commit.held.discard(key)

    def uncommitted(self, keys: Iterable[Key] | None = None) -> dict[Key, OffsetAndMetadata]:
        """Return what is stored of these partitions (None: of all) and was not committed as it is."""
        wanted = self._stored if keys is None else [key for key in keys if key in self._stored]
        return {key: self._stored[key] for key in wanted if self._committed.get(key) != self._stored[key].offset}

    def commit(self, offsets: Mapping[Key, OffsetAndMetadata], now_ms: float) -> int:
        """Commit these after all that were asked for before; returns the id that :class:`CommitDone` will have."""
        return self._enqueue(offsets, now_ms).commit_id

    def poll(self, now_ms: float) -> list[CommitCommand]:
        """Return what is due: an automatic commit, one that waited, the end of one whose time is over."""
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
        """Return when :meth:`poll` is next due by the clock; None when only an event can change anything."""
        times = [] if self._auto_due_ms is None else [self._auto_due_ms]
        if self._queue and not self._queue[0].is_sent:
            times.append(self._queue[0].not_before_ms)
        return max(min(times), now_ms) if times else None

    def answered(self, commit_id: int, errors: Mapping[Key, TidelogError | None], now_ms: float) -> None:
        """Take the coordinator's answer: each partition's error or None."""
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
            head.member = head.member if retried or self._member == NOBODY else self._member
            self._back_off(head, now_ms)

    def failed(self, commit_id: int, error: TidelogError, now_ms: float) -> None:
        """No coordinator has answered; it may have committed all the same."""
        head = self._sent(commit_id)
        if self._may_pass(error, now_ms, head):
            self._back_off(head, now_ms)
            return
        for key in list(head.left):
            self._settle(head, key, error)

    def check_invariants(self) -> None:
        """Assert what the classes say of their fields."""
        for number, commit in enumerate(self._queue):
            assert not commit.left.keys() & commit.errors.keys()
            assert commit.left.keys() | commit.errors.keys() == commit.offsets.keys()
            assert number == 0 or not commit.is_sent
        assert [c.commit_id for c in self._queue] == sorted(c.commit_id for c in self._queue)

    @property
    def _is_kept_out(self) -> bool:
        return self.needs_member and self._member == NOBODY

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
        commit = _Commit(self._last_id, offsets, self._member, deadline_ms, dict(offsets), set(offsets))
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
        return self._member not in (NOBODY, commit.member) or now_ms < commit.passed_ms + _GENERATION_GRACE_MS

    def _may_pass(self, error: TidelogError, now_ms: float, commit: _Commit) -> bool:
        is_final = error.code in _FINAL or now_ms >= commit.deadline_ms
        return not is_final and (error.code.retriable or error.code in OUTAGES)
