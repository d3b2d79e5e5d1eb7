from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest
from example_counts import examples, steps
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tidelog.consumer.core.events import (
    AskMetadata,
    Command,
    Deliver,
    Fetch,
    Fetched,
    FetchedPartition,
    FetchFailed,
    FetchSpec,
    Interrupt,
    LookUp,
    LookUpSpec,
    OffsetFound,
    PositionSettings,
    Refused,
    Report,
    RequestFailed,
    Validate,
    Validated,
    ValidationSpec,
)
from tidelog.consumer.core.positions import LeaderOf, Positions
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.records import RecordBatchBuilder, assign_offsets, iter_headers

SETTINGS = PositionSettings(queue_bytes=10_000, reset_timestamp_ms=-2, report_end=True)
KEY = ("t", 0)


def batch(base_offset: int, count: int = 1) -> bytes:
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(None, b"v", (), 1)
    records = bytearray(builder.build())
    assign_offsets(records, base_offset, 0)
    return bytes(records)


def make(offset: int | None = 0, settings: PositionSettings = SETTINGS) -> Positions:
    positions = Positions(settings, lambda attempt: 10.0)
    positions.assign([(KEY, offset, None)])
    return positions


def leader(topic: str, partition: int) -> tuple[int, int]:
    return 1, 4


def fetch_of(commands: Sequence[Command]) -> Fetch:
    [fetch] = [c for c in commands if isinstance(c, Fetch)]
    return fetch


def test_positions_fetch_on_where_the_answer_ended() -> None:
    positions = make()
    fetch = fetch_of(positions.poll(0, leader))
    assert fetch.specs == [FetchSpec("t", 0, fetch.specs[0].generation, 0, 4)]
    records = batch(0, 3) + batch(3, 2)
    delivered, *rest = positions.handle(Fetched(1, [FetchedPartition(fetch.specs[0], records, 9, 0)]), 1)
    assert isinstance(delivered, Deliver)
    assert rest == []
    assert fetch_of(positions.poll(1, leader)).specs[0].offset == 5


def test_positions_report_the_end_once() -> None:
    positions = make(5)
    for expected in (1, 0):
        fetch = fetch_of(positions.poll(0, leader))
        reports = positions.handle(Fetched(1, [FetchedPartition(fetch.specs[0], b"", 5, 0)]), 1)
        assert [r.error.code for r in reports if isinstance(r, Report)] == [ErrorCode._PARTITION_EOF] * expected


def test_positions_reset_when_the_offset_is_out_of_range() -> None:
    positions = make(99)
    fetch = fetch_of(positions.poll(0, leader))
    error = error_for(ErrorCode.OFFSET_OUT_OF_RANGE, "99")
    assert positions.handle(Fetched(1, [FetchedPartition(fetch.specs[0], error=error)]), 1) == []
    [look_up] = positions.poll(1, leader)
    assert isinstance(look_up, LookUp)
    assert look_up.specs[0].timestamp_ms == -2
    positions.handle(OffsetFound(look_up.specs[0], 3), 2)
    assert fetch_of(positions.poll(2, leader)).specs[0].offset == 3


def test_positions_report_out_of_range_and_stop_until_a_seek_when_reset_is_error() -> None:
    positions = make(99, PositionSettings(queue_bytes=1, reset_timestamp_ms=None, report_end=False))
    fetch = fetch_of(positions.poll(0, leader))
    error = error_for(ErrorCode.OFFSET_OUT_OF_RANGE, "99 is not in 0 to 3")
    [report] = positions.handle(Fetched(1, [FetchedPartition(fetch.specs[0], error=error)]), 1)
    assert isinstance(report, Report)
    assert (report.error.code, report.offset) == (ErrorCode._AUTO_OFFSET_RESET, 99)
    assert positions.poll(1, leader) == []
    positions.seek(KEY, 2, None)
    assert fetch_of(positions.poll(1, leader)).specs[0].offset == 2


def test_positions_drop_the_answer_to_a_fetch_from_before_a_seek() -> None:
    positions = make()
    fetch = fetch_of(positions.poll(0, leader))
    positions.seek(KEY, 7, None)
    assert positions.poll(1, leader) == [Interrupt(1)]
    assert positions.poll(1, leader) == []
    assert positions.handle(Fetched(1, [FetchedPartition(fetch.specs[0], batch(0), 9, 0)]), 2) == []
    assert fetch_of(positions.poll(2, leader)).specs[0].offset == 7


def test_positions_fetch_again_from_the_application_after_a_pause() -> None:
    positions = make()
    fetch = fetch_of(positions.poll(0, leader))
    [delivered] = positions.handle(Fetched(1, [FetchedPartition(fetch.specs[0], batch(0, 5), 9, 0)]), 1)
    assert isinstance(delivered, Deliver)
    positions.consumed("t", 0, 2)
    positions.pause(KEY)
    assert not positions.is_current("t", 0, delivered.generation)
    assert positions.poll(2, leader) == []
    positions.resume(KEY)
    assert fetch_of(positions.poll(3, leader)).specs[0].offset == 2


@pytest.mark.parametrize("whole", [True, False])
def test_positions_retry_from_the_same_offset_when_the_leader_moved(whole: bool) -> None:
    positions = make(4)
    fetch = fetch_of(positions.poll(0, leader))
    error = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")
    failed = FetchFailed(1, fetch.specs, error)
    event = failed if whole else Fetched(1, [FetchedPartition(fetch.specs[0], error=error)])
    assert positions.handle(event, 1) == [AskMetadata(frozenset(["t"]))]
    assert positions.poll(10, leader) == []
    assert positions.next_timer_ms(10) == 11
    again = fetch_of(positions.poll(11, lambda t, p: (2, 5)))
    assert (again.node_id, again.specs[0].offset, again.specs[0].leader_epoch) == (2, 4, 5)


def test_positions_stop_fetching_when_the_queue_is_full_and_start_at_half() -> None:
    positions = make(0, PositionSettings(queue_bytes=100, reset_timestamp_ms=-2, report_end=False))
    fetch = fetch_of(positions.poll(0, leader))
    records = batch(0) + batch(1)
    positions.handle(Fetched(1, [FetchedPartition(fetch.specs[0], records, 9, 0)]), 1)
    assert positions.poll(1, leader) == []
    positions.released(len(records) - 60)
    assert positions.poll(1, leader) == []
    positions.released(60)
    assert fetch_of(positions.poll(1, leader)).specs[0].offset == 2


def test_positions_interrupt_a_long_poll_for_a_partition_that_can_be_fetched_too() -> None:
    positions = make()
    positions.poll(0, leader)
    positions.add([(("t", 1), 0, None)])
    assert positions.poll(1, leader) == [Interrupt(1)]


def test_positions_report_an_unknown_topic_once_and_go_on_trying() -> None:
    positions = make()
    unknown = Refused("t", 0, error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 'there is no topic "t"'))
    assert positions.poll(0, lambda t, p: None) == [AskMetadata(frozenset(["t"]))]
    assert [type(c) for c in positions.handle(unknown, 1)] == [AskMetadata, Report]
    assert [type(c) for c in positions.handle(unknown, 2)] == [AskMetadata]
    assert positions.poll(30, leader)


@pytest.mark.parametrize("code", [ErrorCode._ALL_BROKERS_DOWN, ErrorCode._TIMED_OUT, ErrorCode._RESOLVE])
def test_positions_report_an_outage_and_go_on_trying(code: ErrorCode) -> None:
    positions = make(None)
    [look_up] = positions.poll(0, leader)
    assert isinstance(look_up, LookUp)
    [report] = positions.handle(RequestFailed(look_up.specs[0], error_for(code)), 1)
    assert isinstance(report, Report)
    assert [type(c) for c in positions.poll(11, leader)] == [LookUp]


def test_positions_stop_at_bytes_that_have_no_record() -> None:
    positions = make(5)
    fetch = fetch_of(positions.poll(0, leader))
    [report] = positions.handle(Fetched(1, [FetchedPartition(fetch.specs[0], batch(0, 3), 9, 0)]), 1)
    assert isinstance(report, Report)
    assert report.error.code is ErrorCode.CORRUPT_MESSAGE
    assert positions.poll(2, leader) == []


def test_positions_ask_for_metadata_when_a_fetch_is_overdue_and_go_to_the_new_leader() -> None:
    positions = make(4)
    fetch = fetch_of(positions.poll(0, leader))
    assert positions.next_timer_ms(0) == 1_500
    assert positions.poll(1_499, lambda t, p: (2, 5)) == []
    assert positions.poll(1_500, leader) == [AskMetadata(frozenset(["t"]))]
    assert positions.poll(1_600, lambda t, p: (2, 5)) == [Interrupt(1)]
    assert positions.poll(1_700, lambda t, p: (2, 5)) == []
    assert positions.handle(FetchFailed(1, fetch.specs, None), 1_701) == []
    again = fetch_of(positions.poll(1_701, lambda t, p: (2, 5)))
    assert (again.node_id, again.specs[0].offset) == (2, 4)


def test_positions_ignore_the_answer_of_a_partition_that_an_error_has_stopped() -> None:
    positions = make(0)
    positions.add([(("t", 1), 0, None)])
    fetch = fetch_of(positions.poll(0, leader))
    refused = Refused("t", 0, error_for(ErrorCode.INCONSISTENT_CLUSTER_ID, "another cluster"))
    assert [type(c) for c in positions.handle(refused, 1)] == [Report]
    results = [FetchedPartition(spec, batch(0), 1, 0) for spec in fetch.specs]
    assert [c.partition for c in positions.handle(Fetched(1, results), 2) if isinstance(c, Deliver)] == [1]
    positions.check_invariants()
    assert [spec.partition for spec in fetch_of(positions.poll(3, leader)).specs] == [1]


def moved(epoch: int, node_id: int = 2) -> LeaderOf:
    return lambda topic, partition: (node_id, epoch)


def after_three_records(settings: PositionSettings = SETTINGS) -> Positions:
    """Return positions at offset 3 of a partition, read in leader epoch 4, that find leader epoch 5."""
    positions = make(0, settings)
    fetch = fetch_of(positions.poll(0, leader))
    records = bytearray(batch(0, 3))
    assign_offsets(records, 0, 4)
    positions.handle(Fetched(1, [FetchedPartition(fetch.specs[0], bytes(records), 3, 0)]), 1)
    positions.released(len(records))
    return positions


def validation_of(positions: Positions, now_ms: float = 2) -> ValidationSpec:
    [validate] = positions.poll(now_ms, moved(5))
    assert isinstance(validate, Validate)
    assert validate.node_id == 2
    [spec] = validate.specs
    assert (spec.offset_epoch, spec.leader_epoch) == (4, 5)
    assert positions.poll(now_ms, moved(5)) == [], "nothing is fetched before the answer"
    return spec


def test_positions_go_on_when_the_new_leader_has_what_was_read() -> None:
    positions = after_three_records()
    assert positions.handle(Validated(validation_of(positions), 4, 3), 3) == []
    fetch = fetch_of(positions.poll(3, moved(5)))
    assert (fetch.specs[0].offset, fetch.specs[0].leader_epoch) == (3, 5)
    positions.handle(Fetched(2, [FetchedPartition(fetch.specs[0], is_unchanged=True)]), 4)
    assert fetch_of(positions.poll(4, moved(5))), "validated once"


def test_positions_go_back_to_where_a_truncated_log_leaves_what_was_read() -> None:
    positions = after_three_records()
    positions.consumed("t", 0, 3)
    generation = positions.state("t", 0).generation  # type: ignore[union-attr]
    assert positions.handle(Validated(validation_of(positions), 3, 1), 3) == []
    assert not positions.is_current("t", 0, generation), "what is queued is not in the log any more"
    assert fetch_of(positions.poll(3, moved(5))).specs[0].offset == 1


def test_positions_never_go_forward_by_a_truncation() -> None:
    positions = after_three_records()
    positions.consumed("t", 0, 1)
    positions.handle(Validated(validation_of(positions), 3, 2), 3)
    assert fetch_of(positions.poll(3, moved(5))).specs[0].offset == 1


def test_positions_reset_when_the_new_leader_knows_no_epoch_as_old() -> None:
    positions = after_three_records()
    positions.handle(Validated(validation_of(positions), -1, -1), 3)
    [look_up] = positions.poll(3, moved(5))
    assert isinstance(look_up, LookUp)


@pytest.mark.parametrize("end", [(3, 1), (-1, -1)])
def test_positions_report_a_truncated_log_when_reset_is_error(end: tuple[int, int]) -> None:
    positions = after_three_records(PositionSettings(queue_bytes=10_000, reset_timestamp_ms=None, report_end=False))
    [report] = positions.handle(Validated(validation_of(positions), *end), 3)
    assert isinstance(report, Report)
    assert (report.error.code, report.offset) == (ErrorCode._LOG_TRUNCATION, 3)
    assert positions.poll(3, moved(5)) == []


def test_positions_validate_again_after_an_error_and_with_the_next_leader() -> None:
    positions = after_three_records()
    error = error_for(ErrorCode.FENCED_LEADER_EPOCH, "old")
    assert positions.handle(RequestFailed(validation_of(positions), error), 3) == [AskMetadata(frozenset(["t"]))]
    [validate] = positions.poll(13, moved(6, 3))
    assert isinstance(validate, Validate)
    assert (validate.node_id, validate.specs[0].leader_epoch) == (3, 6)
    assert positions.next_timer_ms(13) is None
    assert positions.poll(99_999, moved(6, 3)) == [], "it has a deadline of its own"


def test_positions_without_a_record_have_nothing_to_validate() -> None:
    positions = make(7)
    fetch = fetch_of(positions.poll(0, leader))
    positions.handle(FetchFailed(1, fetch.specs, error_for(ErrorCode._TRANSPORT, "gone")), 1)
    assert fetch_of(positions.poll(11, moved(5))).specs[0].offset == 7


def preferring(now_ms: float = 0) -> Positions:
    """Return positions that the leader has sent from node 1 to node 3."""
    positions = make(5)
    fetch = fetch_of(positions.poll(now_ms, leader))
    positions.handle(Fetched(1, [FetchedPartition(fetch.specs[0], b"", 9, 0, preferred_node=3)]), now_ms)
    return positions


def test_positions_read_from_the_preferred_replica_for_a_while() -> None:
    positions = preferring()
    fetch = fetch_of(positions.poll(1, leader))
    assert (fetch.node_id, fetch.specs[0].leader_epoch) == (3, 4)
    positions.handle(Fetched(3, [FetchedPartition(fetch.specs[0], is_unchanged=True)]), 2)
    assert fetch_of(positions.poll(300_000, leader)).node_id == 1, "the leader is asked again"


def not_3(topic: str, partition: int, node_id: int) -> bool:
    return node_id != 3


def test_positions_leave_a_preferred_replica_that_the_metadata_has_no_more() -> None:
    positions = preferring()
    fetch = fetch_of(positions.poll(1, leader))
    positions.handle(Fetched(3, [FetchedPartition(fetch.specs[0], is_unchanged=True)]), 2)
    assert fetch_of(positions.poll(3, leader, not_3)).node_id == 1


def test_positions_ask_for_metadata_where_the_leader_names_a_replica_that_it_does_not_have() -> None:
    """The leader would name it again and again, without a record."""
    positions = preferring()
    assert positions.poll(1, leader, not_3) == [AskMetadata(frozenset(["t"]))]
    assert positions.poll(2, leader, not_3) == []
    assert positions.next_timer_ms(2) == 11
    assert fetch_of(positions.poll(11, leader, not_3)).node_id == 1


def test_positions_leave_the_preferred_replica_with_the_leader() -> None:
    assert fetch_of(preferring().poll(1, moved(5))).node_id == 2


@pytest.mark.parametrize(
    "code",
    [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, None],
)
def test_positions_go_back_to_the_leader_after_an_error_of_the_preferred_replica(code: ErrorCode | None) -> None:
    positions = preferring()
    fetch = fetch_of(positions.poll(1, leader))
    if code is None:
        positions.handle(FetchFailed(3, fetch.specs, error_for(ErrorCode._TRANSPORT, "gone")), 2)
    else:
        results = [FetchedPartition(fetch.specs[0], error=error_for(code, "not here"))]
        commands = positions.handle(Fetched(3, results), 2)
        assert (AskMetadata(frozenset(["t"])) in commands) == (code is not ErrorCode.OFFSET_OUT_OF_RANGE)
    again = fetch_of(positions.poll(20, leader))
    assert (again.node_id, again.specs[0].offset) == (1, 5), "no offset is reset for it"


def test_positions_go_back_to_the_leader_from_a_preferred_replica_that_does_not_answer() -> None:
    positions = preferring()
    fetch = fetch_of(positions.poll(0, leader))
    assert Interrupt(3) in positions.poll(1_500, leader)
    positions.handle(FetchFailed(3, fetch.specs, None), 1_501)
    assert fetch_of(positions.poll(1_501, leader)).node_id == 1


def test_positions_do_not_reset_for_a_late_answer_of_a_replica_that_was_given_up() -> None:
    positions = preferring()
    fetch = fetch_of(positions.poll(0, leader))
    assert Interrupt(3) in positions.poll(1_500, leader)
    error = error_for(ErrorCode.OFFSET_OUT_OF_RANGE, "not here")
    positions.handle(Fetched(3, [FetchedPartition(fetch.specs[0], error=error)]), 1_501)
    again = fetch_of(positions.poll(1_501, leader))
    assert (again.node_id, again.specs[0].offset) == (1, 5)


class PositionsMachine(RuleBasedStateMachine):
    """Leaders that move, answers that come late or never, seeks and pauses at any moment.

    Property: between two seeks the application sees each offset once, in order, from where it sought.
    """

    END = 40

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0.0
        self.positions = Positions(
            PositionSettings(queue_bytes=400, reset_timestamp_ms=-2, report_end=False, overdue_ms=15),
            lambda attempt: 10.0,
        )
        self.leaders: dict[int, int] = defaultdict(lambda: 1)
        self.fetches: dict[int, Fetch] = {}
        self.interrupted: set[int] = set()
        self.look_ups: list[LookUpSpec] = []
        self.validations: list[ValidationSpec] = []
        self.queue: list[Deliver] = []
        self.expected: dict[int, int] = {}

    @initialize()
    def assign(self) -> None:
        self.positions.assign([(("t", p), 0, None) for p in range(3)])
        self.expected = {0: 0, 1: 0, 2: 0}

    def do(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Fetch():
                    assert command.node_id not in self.fetches, "two long polls at one node"
                    self.fetches[command.node_id] = command
                case Interrupt():
                    assert command.node_id in self.fetches
                    self.interrupted.add(command.node_id)
                case LookUp():
                    self.look_ups.extend(command.specs)
                case Deliver():
                    self.queue.append(command)
                case Validate():
                    self.validations.extend(command.specs)
                case AskMetadata() | Report():
                    pass

    @rule(elapsed=st.sampled_from([0, 1, 10]))
    def poll(self, elapsed: int) -> None:
        self.now_ms += elapsed
        self.do(self.positions.poll(self.now_ms, lambda t, p: (self.leaders[p], 0)))

    @rule(partition=st.integers(0, 2), node=st.integers(1, 3))
    def move_leader(self, partition: int, node: int) -> None:
        self.leaders[partition] = node

    @precondition(lambda self: self.fetches)
    @rule(data=st.data(), whole_failure=st.booleans())
    def answer(self, data: st.DataObject, whole_failure: bool) -> None:
        fetch = self.fetches.pop(data.draw(st.sampled_from(sorted(self.fetches))))
        self.interrupted.discard(fetch.node_id)
        if whole_failure:
            error = error_for(ErrorCode._TRANSPORT, "gone")
            self.do(self.positions.handle(FetchFailed(fetch.node_id, fetch.specs, error), self.now_ms))
            return
        results = [self.result(fetch.node_id, spec, data) for spec in fetch.specs]
        self.do(self.positions.handle(Fetched(fetch.node_id, results), self.now_ms))

    @precondition(lambda self: self.interrupted)
    @rule()
    def interrupt(self) -> None:
        node_id = self.interrupted.pop()
        fetch = self.fetches.pop(node_id)
        self.do(self.positions.handle(FetchFailed(node_id, fetch.specs, None), self.now_ms))

    def result(self, node_id: int, spec: FetchSpec, data: st.DataObject) -> FetchedPartition:
        if self.leaders[spec.partition] != node_id and data.draw(st.booleans()):
            codes = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_LEADER_EPOCH)
            return FetchedPartition(spec, error=error_for(data.draw(st.sampled_from(codes)), "not here"))
        if data.draw(st.integers(0, 4)) == 0:
            return FetchedPartition(spec, b"", self.END, 0, preferred_node=3)
        if data.draw(st.integers(0, 4)) == 0:
            return FetchedPartition(spec, is_unchanged=True)
        base = spec.offset - spec.offset % 4
        count = data.draw(st.integers(0, 2))
        records = b"".join(batch(o, 4) for o in range(base, min(base + 4 * count, self.END), 4))
        return FetchedPartition(spec, records, self.END, 0)

    @precondition(lambda self: self.look_ups)
    @rule(fails=st.booleans())
    def look_up(self, fails: bool) -> None:
        spec = self.look_ups.pop()
        error = error_for(ErrorCode.REQUEST_TIMED_OUT, "slow")
        event = RequestFailed(spec, error) if fails else OffsetFound(spec, 0)
        self.do(self.positions.handle(event, self.now_ms))

    @precondition(lambda self: self.validations)
    @rule(fails=st.booleans())
    def validate(self, fails: bool) -> None:
        spec = self.validations.pop()
        error = error_for(ErrorCode.FENCED_LEADER_EPOCH, "moved")
        event = RequestFailed(spec, error) if fails else Validated(spec, 0, self.END)
        self.do(self.positions.handle(event, self.now_ms))

    @precondition(lambda self: self.queue)
    @rule(part=st.booleans())
    def consume(self, part: bool) -> None:
        item = self.queue[0]
        current = self.positions.is_current(item.topic, item.partition, item.generation)
        offsets = [o for _, h in iter_headers(item.records) for o in range(h.base_offset, h.next_offset)]
        offsets = [o for o in offsets if o >= max(item.offset, self.expected[item.partition])]
        for offset in offsets[: 1 if part else None] if current else []:
            assert offset == self.expected[item.partition]
            self.expected[item.partition] = offset + 1
            self.positions.consumed(item.topic, item.partition, offset + 1)
        if not current or not part or len(offsets) <= 1:
            self.positions.released(len(self.queue.pop(0).records))

    @rule(partition=st.integers(0, 2), offset=st.integers(0, END) | st.none())
    def seek(self, partition: int, offset: int | None) -> None:
        self.positions.seek(("t", partition), offset, None)
        self.expected[partition] = offset or 0

    @rule(partition=st.integers(0, 2), paused=st.booleans())
    def pause(self, partition: int, paused: bool) -> None:
        key = ("t", partition)
        self.positions.pause(key) if paused else self.positions.resume(key)

    @invariant()
    def invariants_hold(self) -> None:
        self.positions.check_invariants()
        assert self.positions.queued_bytes == sum(len(item.records) for item in self.queue)


TestPositionsMachine = PositionsMachine.TestCase
TestPositionsMachine.settings = settings(max_examples=examples(100), stateful_step_count=steps(60), deadline=None)
