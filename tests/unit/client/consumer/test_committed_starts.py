"""A partition that is assigned in a group starts at the committed offset, else where auto.offset.reset says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidelog.consumer.core.events import (
    AssignedPartition,
    Command,
    Fetch,
    FetchCommitted,
    LookUp,
    OffsetFound,
    PositionSettings,
    Report,
    RequestFailed,
)
from tidelog.consumer.core.positions import Positions
from tidelog_foundation.errors import ErrorCode, error_for

KEY = ("t", 0)


def make(reset_timestamp_ms: int | None = -2) -> Positions:
    settings = PositionSettings(
        queue_bytes=10_000, reset_timestamp_ms=reset_timestamp_ms, report_end=False, has_group=True
    )
    positions = Positions(settings, lambda attempt: 10.0)
    assert positions.assign([(KEY, None, None)]) == []
    return positions


def poll(positions: Positions, now_ms: float = 0) -> list[Command]:
    commands = positions.poll(now_ms, lambda topic, partition: (1, 4))
    positions.check_invariants()
    return commands


def asked(commands: Sequence[Command]) -> AssignedPartition:
    [command] = commands
    assert isinstance(command, FetchCommitted)
    [spec] = command.specs
    return spec


def test_reading_starts_at_the_committed_offset() -> None:
    positions = make()
    spec = asked(poll(positions))
    assert poll(positions) == []
    assert positions.handle(OffsetFound(spec, 7, 3), 0) == []
    [fetch] = poll(positions)
    assert isinstance(fetch, Fetch)
    assert fetch.specs[0].offset == 7
    state = positions.state(*KEY)
    assert state is not None
    assert (state.position, state.consumed, state.offset_epoch) == (7, False, 3)


def test_without_a_committed_offset_auto_offset_reset_decides() -> None:
    positions = make()
    positions.handle(OffsetFound(asked(poll(positions)), None), 0)
    [look_up] = poll(positions)
    assert isinstance(look_up, LookUp)
    assert look_up.specs[0].timestamp_ms == -2


def test_without_a_committed_offset_and_a_reset_the_application_is_told() -> None:
    positions = make(reset_timestamp_ms=None)
    [report] = positions.handle(OffsetFound(asked(poll(positions)), None), 0)
    assert isinstance(report, Report)
    assert report.error.code is ErrorCode._AUTO_OFFSET_RESET
    assert poll(positions) == []
    positions.seek(KEY, 3, None)
    [fetch] = poll(positions)
    assert isinstance(fetch, Fetch)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.NOT_COORDINATOR]
)
def test_the_question_is_repeated_while_the_answer_may_change(code: ErrorCode) -> None:
    positions = make()
    assert positions.handle(RequestFailed(asked(poll(positions)), error_for(code)), 0) == []
    assert poll(positions, 5) == []
    asked(poll(positions, 10))


def test_an_error_that_does_not_pass_is_reported() -> None:
    positions = make()
    [report] = positions.handle(
        RequestFailed(asked(poll(positions)), error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED)), 0
    )
    assert isinstance(report, Report)
    assert poll(positions, 1_000) == []


def test_an_answer_for_an_earlier_assignment_does_not_count() -> None:
    positions = make()
    old = asked(poll(positions))
    positions.remove([KEY])
    positions.add([(KEY, None, None)])
    new = asked(poll(positions))
    positions.handle(OffsetFound(old, 7), 0)
    assert poll(positions) == []
    positions.handle(OffsetFound(new, 9), 0)
    [fetch] = poll(positions)
    assert isinstance(fetch, Fetch)
    assert fetch.specs[0].offset == 9


def test_a_given_offset_counts_more_than_the_committed_one() -> None:
    positions = make()
    positions.assign([(KEY, 5, None)])
    [fetch] = poll(positions)
    assert isinstance(fetch, Fetch)
    assert fetch.specs[0].offset == 5
