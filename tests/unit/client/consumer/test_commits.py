"""Commits of offsets: they keep the order of the calls and never go back."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from example_counts import examples, steps
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tidelog.consumer.core.commits import (
    CommitCommand,
    CommitDone,
    Commits,
    CommitSettings,
    Member,
    OffsetAndMetadata,
    SendCommit,
)
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for

A, B = ("t", 0), ("t", 1)
ME = Member(3, "me")


def make(interval_ms: int | None = None) -> Commits:
    commits = Commits(CommitSettings(auto_commit_interval_ms=interval_ms, timeout_ms=1_000), lambda attempt: 10.0)
    commits.member_changed(ME)
    return commits


def at(**offsets: int) -> dict[tuple[str, int], OffsetAndMetadata]:
    return {{"a": A, "b": B}[name]: OffsetAndMetadata(offset) for name, offset in offsets.items()}


def sent(commands: list[CommitCommand]) -> SendCommit:
    [command] = commands
    assert isinstance(command, SendCommit)
    return command


def done(commands: list[CommitCommand]) -> CommitDone:
    assert isinstance(commands[0], CommitDone)
    return commands[0]


def fine(*keys: tuple[str, int]) -> Mapping[tuple[str, int], TidelogError | None]:
    return dict.fromkeys(keys, None)


def test_commits_are_sent_one_after_the_other_in_their_order() -> None:
    commits = make()
    first, second = commits.commit(at(a=5), 0), commits.commit(at(a=4, b=1), 0)
    assert sent(commits.poll(0)) == SendCommit(first, ME, at(a=5))
    assert commits.poll(0) == []
    commits.answered(first, fine(A), 1)
    ended, following = commits.poll(1)
    assert ended == CommitDone(first, at(a=5), fine(A))
    assert following == SendCommit(second, ME, at(a=4, b=1))
    assert not commits.is_idle


def test_what_is_stored_is_committed_once_per_interval_and_only_when_it_is_new() -> None:
    commits = make(interval_ms=100)
    commits.store(A, OffsetAndMetadata(5))
    assert commits.poll(0) == []
    assert commits.next_timer_ms(0) == 100
    commit = sent(commits.poll(100))
    assert commit.offsets == at(a=5)
    commits.store(A, OffsetAndMetadata(6))
    assert commits.poll(200) == []
    commits.answered(commit.commit_id, fine(A), 210)
    done(commits.poll(210))
    commit = sent(commits.poll(300))
    assert commit.offsets == at(a=6)
    commits.answered(commit.commit_id, fine(A), 310)
    done(commits.poll(310))
    assert commits.poll(1_000) == []
    assert commits.uncommitted() == {}


def test_a_refused_automatic_commit_is_tried_again_with_the_next() -> None:
    commits = make(interval_ms=100)
    commits.poll(0)
    commits.store(A, OffsetAndMetadata(5))
    commit = sent(commits.poll(100))
    commits.answered(commit.commit_id, {A: error_for(ErrorCode.REBALANCE_IN_PROGRESS)}, 110)
    error = done(commits.poll(110)).errors[A]
    assert error is not None
    assert error.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert sent(commits.poll(200)).offsets == at(a=5)


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode._TRANSPORT]
)
def test_errors_that_may_pass_are_retried_for_what_was_not_committed(code: ErrorCode) -> None:
    commits = make()
    commit_id = commits.commit(at(a=5, b=6), 0)
    sent(commits.poll(0))
    commits.answered(commit_id, {A: None, B: error_for(code)}, 1)
    assert commits.poll(1) == []
    assert commits.next_timer_ms(1) == 11
    assert sent(commits.poll(11)).offsets == at(b=6)
    commits.failed(commit_id, error_for(code), 12)
    assert sent(commits.poll(22)).offsets == at(b=6)
    commits.answered(commit_id, fine(B), 23)
    assert done(commits.poll(23)).errors == fine(A, B)


def test_retries_end_with_the_time_that_a_commit_has() -> None:
    commits = make()
    commit_id = commits.commit(at(a=5), 0)
    sent(commits.poll(0))
    commits.failed(commit_id, error_for(ErrorCode._TRANSPORT), 1_000)
    error = done(commits.poll(1_000)).errors[A]
    assert error is not None
    assert error.code is ErrorCode._TRANSPORT
    assert commits.is_idle


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH])
def test_what_was_never_given_up_is_committed_for_the_next_generation(code: ErrorCode) -> None:
    commits = make()
    commit_id = commits.commit(at(a=5, b=6), 0)
    sent(commits.poll(0))
    commits.unassigned([B])
    commits.member_changed(Member(4, "me"))
    commits.answered(commit_id, dict.fromkeys((A, B), error_for(code)), 1)
    assert sent(commits.poll(11)) == SendCommit(commit_id, Member(4, "me"), at(a=5))
    commits.answered(commit_id, fine(A), 12)
    errors = done(commits.poll(12)).errors
    assert errors[A] is None
    assert errors[B] is not None


def test_what_was_given_up_is_not_committed_for_the_next_generation_by_a_retry() -> None:
    commits = make()
    commit_id = commits.commit(at(a=5, b=6), 0)
    sent(commits.poll(0))
    commits.unassigned([B])
    commits.member_changed(Member(4, "me"))
    mixed = {A: error_for(ErrorCode.ILLEGAL_GENERATION), B: error_for(ErrorCode.NOT_COORDINATOR)}
    commits.answered(commit_id, mixed, 1)
    assert sent(commits.poll(11)) == SendCommit(commit_id, ME, at(a=5, b=6))


def test_the_next_generation_may_become_known_after_the_answer() -> None:
    commits = make()
    commit_id = commits.commit(at(a=5), 0)
    sent(commits.poll(0))
    commits.answered(commit_id, {A: error_for(ErrorCode.ILLEGAL_GENERATION)}, 1)
    commits.member_changed(Member(4, "me"))
    assert sent(commits.poll(11)).member == ME
    commits.answered(commit_id, {A: error_for(ErrorCode.ILLEGAL_GENERATION)}, 12)
    assert sent(commits.poll(22)).member == Member(4, "me")


def test_a_generation_that_no_other_follows_is_an_error() -> None:
    commits = make()
    commit_id = commits.commit(at(a=5), 0)
    sent(commits.poll(0))
    for now_ms in (999, 1_998):
        commits.answered(commit_id, {A: error_for(ErrorCode.STALE_MEMBER_EPOCH)}, now_ms)
        assert sent(commits.poll(now_ms + 10)).commit_id == commit_id
    commits.answered(commit_id, {A: error_for(ErrorCode.STALE_MEMBER_EPOCH)}, 2_010)
    assert done(commits.poll(2_010)).errors[A] is not None
    commit_id = commits.commit(at(a=5), 2_000)
    sent(commits.poll(2_000))
    commits.unassigned([A])
    commits.answered(commit_id, {A: error_for(ErrorCode.STALE_MEMBER_EPOCH)}, 2_001)
    assert done(commits.poll(2_001)).errors[A] is not None


def test_a_commit_that_waited_is_made_for_the_generation_in_which_it_was_asked_for() -> None:
    commits = make()
    first, second = commits.commit(at(a=5), 0), commits.commit(at(b=1), 0)
    sent(commits.poll(0))
    commits.unassigned([B])
    commits.member_changed(Member(4, "me"))
    commits.answered(first, fine(A), 1)
    following = commits.poll(1)[1]
    assert following == SendCommit(second, ME, at(b=1))


def test_what_was_stored_of_a_partition_goes_with_it() -> None:
    commits = make(interval_ms=100)
    commits.poll(0)
    commits.store(A, OffsetAndMetadata(5))
    commits.store(B, OffsetAndMetadata(6))
    assert commits.uncommitted([A]) == at(a=5)
    commits.unassigned([A])
    assert commits.uncommitted() == at(b=6)
    assert sent(commits.poll(100)).offsets == at(b=6)


def test_a_partition_that_does_not_exist_is_told_at_once() -> None:
    commits = make()
    commit_id = commits.commit(at(a=5), 0)
    sent(commits.poll(0))
    commits.answered(commit_id, {A: error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}, 1)
    assert done(commits.poll(1)).errors[A] is not None


class CommittingGroup(RuleBasedStateMachine):
    """One partition among members that pass it on: a coordinator that checks generations, answers that get lost.

    The offset that the coordinator has never goes back below what the owner of now started from.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.generation = 1
        self.members = [make(interval_ms=50), make(interval_ms=50)]
        for number, commits in enumerate(self.members):
            commits.member_changed(Member(1, str(number)))
        self.owner = 0
        self.position = 0
        self.stored = 0
        self.committed = 0
        self.floor = 0
        self.under_way: list[tuple[int, SendCommit]] = []
        self.ids = itertools.count()

    @rule()
    def read(self) -> None:
        self.position += 1
        self.members[self.owner].store(A, OffsetAndMetadata(self.position))

    @rule()
    def commit(self) -> None:
        commits = self.members[self.owner]
        if offsets := commits.uncommitted():
            commits.commit(offsets, self.now)

    @rule(ms=st.integers(1, 80))
    def time_passes(self, ms: int) -> None:
        self.now += ms
        for number, commits in enumerate(self.members):
            for command in commits.poll(self.now):
                if isinstance(command, SendCommit):
                    self.under_way.append((number, command))

    @precondition(lambda self: self.under_way)
    @rule(answer=st.sampled_from(["fine", "lost before", "lost after"]))
    def coordinate(self, answer: str) -> None:
        number, command = self.under_way.pop(0)
        commits = self.members[number]
        if answer == "lost before":
            commits.failed(command.commit_id, error_for(ErrorCode._TRANSPORT), self.now)
            return
        if command.member.generation_id != self.generation:
            error: TidelogError | None = error_for(ErrorCode.ILLEGAL_GENERATION)
        else:
            error = None
            self.committed = command.offsets[A].offset
        if answer == "lost after":
            commits.failed(command.commit_id, error_for(ErrorCode.REQUEST_TIMED_OUT), self.now)
        else:
            commits.answered(command.commit_id, {A: error}, self.now)

    @rule(passes_on=st.booleans())
    def rebalance(self, passes_on: bool) -> None:
        self.generation += 1
        if passes_on:
            self.members[self.owner].unassigned([A])
            self.owner = 1 - self.owner
            self.position = self.floor = self.committed
        for number, commits in enumerate(self.members):
            commits.member_changed(Member(self.generation, str(number)))

    @invariant()
    def committed_offsets_do_not_go_back(self) -> None:
        assert self.floor <= self.committed <= self.position
        for commits in self.members:
            commits.check_invariants()


CommittingGroup.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=steps(40), deadline=None)
test_commits_of_a_group = CommittingGroup.TestCase
