"""For whom offsets are committed when the membership changes meanwhile."""

from __future__ import annotations

import pytest

from tidelog.consumer.core.commits import CommitDone, Commits, CommitSettings, Member, OffsetAndMetadata, SendCommit
from tidelog_foundation.errors import ErrorCode, error_for

A = ("t", 0)
ME = Member(3, "me")
FIVE = {A: OffsetAndMetadata(5)}


def make(interval_ms: int | None = None) -> Commits:
    commits = Commits(CommitSettings(auto_commit_interval_ms=interval_ms, timeout_ms=30_000), lambda attempt: 10.0)
    commits.needs_member = True
    commits.member_changed(ME)
    return commits


def code_of(commits: Commits, now_ms: float) -> ErrorCode | None:
    [done] = commits.poll(now_ms)
    assert isinstance(done, CommitDone)
    error = done.errors[A]
    return None if error is None else error.code


@pytest.mark.parametrize("stored_after", [False, True])
def test_nothing_that_was_stored_is_committed_by_a_member_that_was_lost(stored_after: bool) -> None:
    commits = make(interval_ms=100)
    assert commits.poll(0) == []
    commits.store(A, FIVE[A])
    commits.member_changed(Member())
    if stored_after:
        commits.store(A, FIVE[A])
    assert commits.poll(100) == []
    commits.unassigned([A])
    commits.member_changed(Member(9, "again"))
    assert commits.poll(200) == []


def test_what_is_committed_without_a_membership_is_refused_and_not_sent() -> None:
    commits = make()
    commits.member_changed(Member())
    commits.commit(FIVE, 0)
    assert code_of(commits, 0) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("again", [Member(), Member(9, "again")])
def test_a_commit_of_a_lost_membership_is_not_made_by_another(again: Member) -> None:
    commits = make()
    commit_id = commits.commit(FIVE, 0)
    assert commits.poll(0) == [SendCommit(commit_id, ME, FIVE)]
    commits.member_changed(Member())
    commits.member_changed(again)
    commits.answered(commit_id, {A: error_for(ErrorCode.ILLEGAL_GENERATION)}, 1)
    assert code_of(commits, 1) is ErrorCode.ILLEGAL_GENERATION


def test_a_consumer_that_does_not_subscribe_commits_as_nobody() -> None:
    commits = make(interval_ms=100)
    commits.needs_member = False
    commits.member_changed(Member())
    commits.poll(0)
    commits.store(A, FIVE[A])
    assert commits.poll(100) == [SendCommit(1, Member(), FIVE)]


def test_a_commit_that_has_waited_long_is_made_again_in_the_epoch_that_is_learned_after_the_answer() -> None:
    commits = make()
    commit_id = commits.commit(FIVE, 0)
    commits.poll(0)
    commits.failed(commit_id, error_for(ErrorCode.NOT_COORDINATOR), 4_000)
    assert commits.poll(4_010) == [SendCommit(commit_id, ME, FIVE)]
    commits.answered(commit_id, {A: error_for(ErrorCode.STALE_MEMBER_EPOCH)}, 5_000)
    commits.member_changed(Member(4, "me"))
    assert commits.poll(5_010) == [SendCommit(commit_id, ME, FIVE)]
    commits.answered(commit_id, {A: error_for(ErrorCode.STALE_MEMBER_EPOCH)}, 5_020)
    assert commits.poll(5_030) == [SendCommit(commit_id, Member(4, "me"), FIVE)]
    commits.answered(commit_id, {A: None}, 5_040)
    assert code_of(commits, 5_040) is None
